"""proxy/starter.py: the file that `spangate init` writes."""

from __future__ import annotations

import itertools

import pytest

from spangate.proxy.config import Config, Kinds, parse
from spangate.proxy.starter import SCHEMA_FILE, VENDORS, init_text

KINDS = Kinds()


def config_of(environ: dict[str, str], *, ollama: bool) -> Config:
    return parse(init_text(environ, ollama=ollama).encode(), "spangate.yaml", environ=environ, kinds=KINDS)


@pytest.mark.parametrize("ollama", [True, False])
def test_whatever_is_found_it_loads_without_a_mistake(ollama: bool) -> None:
    names = [vendor.variable for vendor in VENDORS]
    for count in range(len(names) + 1):
        for chosen in itertools.combinations(names, count):
            config = config_of(dict.fromkeys(chosen, "key-CANARY"), ollama=ollama)
            wanted = {vendor.name for vendor in VENDORS if vendor.variable in chosen} | ({"local"} if ollama or not chosen else set())
            assert set(config.settings.providers) == wanted
            assert config.settings.models["*"].targets[0].provider in wanted
            assert config.warnings == ()


def test_a_key_is_named_and_never_written() -> None:
    text = init_text({"OPENAI_API_KEY": "sk-CANARY", "MISTRAL_API_KEY": ""}, ollama=False)
    assert '"${OPENAI_API_KEY}"' in text
    assert "CANARY" not in text
    assert "mistral" not in text


def test_an_editor_finds_the_schema() -> None:
    assert init_text({}, ollama=False).splitlines()[0] == f"# yaml-language-server: $schema={SCHEMA_FILE}"


def test_what_is_commented_out_loads_too() -> None:
    environ = {"OPENAI_API_KEY": "k"}
    text = init_text(environ, ollama=True)
    begin = text.index("# teams:")
    uncommented = text[:begin] + text[begin:].replace("\n# ", "\n").removeprefix("# ")
    config = parse(uncommented.encode(), "f", environ=environ, kinds=KINDS)
    assert list(config.settings.teams["search"].models) == ["fast"]
