"""`spangate connect`: each text can be pasted, and says where and with which key."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from spangate.proxy.commands.connect import CLIENTS, Way, connect
from spangate.proxy.commands.failure import Failure

WAY = Way("http://127.0.0.1:8484/v1", "sg-it's", "fast")
OPEN = (
    "server: {port: 9000}\nproviders: {s: {kind: scripted}}\nmodels: {'*': {targets: [{provider: s}]}, fast: {targets: [{provider: s}]}}\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("client", set(CLIENTS) - {"continue"})
def test_a_shell_takes_it(client: str) -> None:
    bash = shutil.which("bash") or "sh"
    assert subprocess.run([bash, "-n"], input=CLIENTS[client](WAY), text=True, check=True).returncode == 0
    assert WAY.url in CLIENTS[client](WAY)


def test_the_key_is_the_key_whatever_stands_in_it() -> None:
    exported = CLIENTS["env"](WAY) + '\nprintf %s "$OPENAI_API_KEY"'
    assert subprocess.check_output(["sh", "-c", exported], text=True) == WAY.key


def test_python_takes_it() -> None:
    for client in ("openai", "langchain"):
        compile(CLIENTS[client](WAY).split("<<'END'\n")[1].removesuffix("END"), client, "exec")


def test_continue_gets_yaml() -> None:
    [model] = yaml.safe_load(CLIENTS["continue"](WAY))["models"]
    assert (model["apiBase"], model["apiKey"], model["model"]) == (WAY.url, WAY.key, WAY.model)


def test_address_and_model_are_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spangate.yaml").write_text(OPEN, encoding="utf-8")
    assert connect("curl", None, {}) == 0
    told = capsys.readouterr()
    assert told.out.startswith("curl http://127.0.0.1:9000/v1/chat/completions \\\n  -H 'Authorization: Bearer any' \\\n")
    assert '"model": "fast"' in told.out
    assert told.err == ""


def test_without_a_file_the_defaults_are_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert connect("env", None, {"SPANGATE_KEY": "sg-mine"}) == 0
    assert capsys.readouterr().out == "export OPENAI_BASE_URL=http://127.0.0.1:8484/v1\nexport OPENAI_API_KEY=sg-mine\n"


def test_where_there_are_teams_a_key_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gate.yaml").write_text(OPEN + "teams: {search: {}}\n", encoding="utf-8")
    assert connect("env", Path("gate.yaml"), {}) == 0
    told = capsys.readouterr()
    assert told.out.endswith("export OPENAI_API_KEY='sg-…'\n")
    assert told.err == "Put a key for sg-…, or set SPANGATE_KEY and ask again: `spangate keys new search` makes one.\n"


@pytest.mark.parametrize(("client", "near"), [("opnai", '; did you mean "openai"?'), ("claude-code", "")])
def test_an_unknown_client(client: str, near: str) -> None:
    with pytest.raises(Failure) as failure:
        connect(client, None, {})
    assert failure.value.code == 2
    assert failure.value.message.startswith(f'no client "{client}" is known{near} (known: env, curl, openai, ')
