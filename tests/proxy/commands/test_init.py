"""`spangate init`: a file that loads, from what is found, and never over another."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from spangate.proxy import config
from spangate.proxy.commands.failure import Failure
from spangate.proxy.commands.init import OLLAMA, init, listens

from program import on_a_terminal, spangate

KEYS = {"OPENAI_API_KEY": "sk-one", "GROQ_API_KEY": "gsk-two"}


def test_it_writes_what_loads(tmp_path: Path) -> None:
    ran = spangate("init", folder=tmp_path, **KEYS)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("found OPENAI_API_KEY, GROQ_API_KEY")
    assert "wrote spangate.yaml\n\nNext:\n  spangate check " in ran.err
    made = config.load(tmp_path / "spangate.yaml", environ=KEYS)
    assert {"openai", "groq"} <= set(made.settings.providers)
    assert not any(secret in (tmp_path / "spangate.yaml").read_text("utf-8") + ran.err for secret in KEYS.values())


def test_it_never_overwrites(tmp_path: Path) -> None:
    there = tmp_path / "gate.yaml"
    there.write_text("mine", encoding="utf-8")
    with pytest.raises(Failure, match=r"gate\.yaml is there already and stays as it is"):
        init(there, {})
    assert there.read_text("utf-8") == "mine"


def test_it_says_so_when_nothing_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An Ollama that runs here is found, whoever tests."""
    ollama = listens(*OLLAMA)
    assert init(tmp_path / "gate.yaml", {}) == 0
    told = capsys.readouterr().err
    assert told.startswith("found a local Ollama\n" if ollama else "found no provider's key (OPENAI_API_KEY, ")
    assert (f"or set OPENAI_API_KEY and name it under providers in {tmp_path}/gate.yaml" in told) is not ollama
    assert f"spangate serve -c {tmp_path}/gate.yaml" in told
    config.load(tmp_path / "gate.yaml", environ={})


def test_it_asks_and_takes_no_for_an_answer(tmp_path: Path) -> None:
    asked: list[str] = []
    with pytest.raises(Failure, match="nothing was written"):
        init(tmp_path / "gate.yaml", KEYS, lambda text: bool(asked.append(text)))
    assert asked == [f"Write {tmp_path}/gate.yaml?"]
    assert list(tmp_path.iterdir()) == []


def test_yes_asks_nothing_on_a_terminal(tmp_path: Path) -> None:
    ran = on_a_terminal("init", "--yes", folder=tmp_path)
    assert (ran.code, "Write " in ran.out, (tmp_path / "spangate.yaml").exists()) == (0, False, True)


@pytest.mark.parametrize(("typed", "code", "written"), [("\n", 0, True), ("n\n", 1, False), ("\x04", 130, False)])
def test_on_a_terminal_it_asks(typed: str, code: int, written: bool, tmp_path: Path) -> None:
    ran = on_a_terminal("init", folder=tmp_path, typed=typed)
    assert "Write spangate.yaml? [Y/n]" in ran.out
    assert (ran.code, (tmp_path / "spangate.yaml").exists()) == (code, written)


def test_it_sees_who_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens("127.0.0.1", port)
    assert not listens("127.0.0.1", port)
