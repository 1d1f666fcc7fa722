"""What commands beside the gateway read, without its secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spangate.proxy.commands.failure import Failure
from spangate.proxy.commands.written import Written, written
from spangate.proxy.config import ConfigMistakes
from spangate.proxy.server import Address

YAML = """\
server: {host: "${HOST}", port: "${PORT}", keys_file: keys/here.yaml}
providers: {openai: {kind: openai, api_key: "${OPENAI_API_KEY}"}}
models: {"gpt-*": {}, fast: {}, strong: {}}
teams: {search: {keys: [{name: ci, hash: "sha256:%s"}, {name: broken}, 5]}, support: null}
""" % ("a" * 64)


def of(text: str, folder: Path, **environ: str) -> Written:
    (folder / "gate.yaml").write_text(text, encoding="utf-8")
    found = written(folder / "gate.yaml", environ)
    assert found is not None
    return found


def test_variables_that_are_not_set_do_not_matter(tmp_path: Path) -> None:
    found = of(YAML, tmp_path)
    assert list(found.teams) == ["search", "support"]
    assert found.models == ["fast", "strong"]
    assert found.address == Address("127.0.0.1", 8484)
    assert found.keys_path == tmp_path / "keys/here.yaml"
    assert [(team, key.name) for team, key in found.own_keys()] == [("search", "ci")]


def test_a_name_or_a_pattern_may_answer(tmp_path: Path) -> None:
    found = of(YAML, tmp_path)
    assert [name for name in ("fast", "gpt-5", "gpt", "fas", "*") if found.may_answer(name)] == ["fast", "gpt-5"]


def test_those_that_are_set_count(tmp_path: Path) -> None:
    assert of(YAML, tmp_path, HOST="10.0.0.1", PORT="99").address == Address("10.0.0.1", 99)


def test_a_keys_file_of_an_unset_variable_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="names a variable that isn't set here"):
        assert of("server: {keys_file: '${KEYS}'}", tmp_path).keys_path


@pytest.mark.parametrize(
    "text", ["", "[]", "server: 5", "server: {host: [], keys_file: 5}", "teams: []\nmodels: x", "server: {port: 70000}"]
)
def test_what_is_not_of_its_shape_counts_as_nothing(text: str, tmp_path: Path) -> None:
    found = of(text, tmp_path)
    assert (found.teams, found.models, list(found.own_keys())) == ({}, [], [])
    assert found.address == Address("127.0.0.1", 8484)
    assert found.keys_path == tmp_path / "spangate.keys.yaml"


def test_what_cannot_be_read_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistakes, match=r"gate\.yaml:\d+:\d+: is not YAML"):
        of("teams: {", tmp_path)
    (tmp_path / "gate.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigMistakes, match="is not UTF-8"):
        written(tmp_path / "gate.yaml", {})
    with pytest.raises(ConfigMistakes, match="there is no such file"):
        written(tmp_path / "other.yaml", {})


def test_what_never_ends(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistakes, match="can't be read: it is neither a file nor a pipe"):
        written(Path("/dev/zero"), {})


def test_a_pipe_is_in_the_working_folder() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"usage: {path: u.duckdb}\n")
    os.close(theirs)
    found = written(Path(f"/dev/fd/{ours}"), {})
    os.close(ours)
    assert found is not None
    assert (found.usage.path, found.folder, found.keys_path) == ("u.duckdb", Path(), Path("spangate.keys.yaml"))


def test_no_file_is_no_mistake_unless_one_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert written(None, {}) is None


def test_usage_and_prices_without_the_secrets_of_the_rest(tmp_path: Path) -> None:
    text = "providers: {o: {kind: openai, api_key: '${NOT_SET}'}}\nusage: {path: u.duckdb}\nprices: [{model: m, input: 1, output: 2}]\n"
    found = of(text, tmp_path)
    assert found.usage.path == "u.duckdb"
    assert [price.model for price in found.prices] == ["m"]
    nothing = of("prices: 5\n", tmp_path)
    assert (nothing.usage.path, nothing.prices) == ("spangate.duckdb", [])


@pytest.mark.parametrize("text", ["usage:", "usage: {path: 7}", "usage: []", "usage: {pth: x}", "usage: {path: '${NOT_SET}'}"])
def test_usage_that_can_not_be_used(text: str, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="usage of"):
        assert of(text, tmp_path).usage


def test_who_can_answer_and_where_models_lead(tmp_path: Path) -> None:
    models = "models: {fast: {targets: [{provider: openai, model: gpt-5}, {provider: local}]}, strong: {targets: 5}, x: null}"
    found = of(f"providers: {{openai: {{}}, local: null}}\n{models}", tmp_path)
    assert found.providers == ["openai", "local"]
    assert found.targets == [("openai", "gpt-5"), ("local", "")]
