"""`spangate stop` and `resume`: what can be stopped, what is said, what is proven. At work: tests/journeys/test_stop.py."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from spangate.proxy import keys_file, stops_file
from spangate.proxy.commands import stop
from spangate.proxy.commands.failure import Failure
from spangate.proxy.mistakes import ConfigMistakes

from case import case

YAML = """\
providers: {openai: {kind: openai, api_key: "${OPENAI_API_KEY}"}, local: {kind: scripted}}
models:
  fast: {targets: [{provider: openai, model: gpt-5-mini}]}
  strong: {targets: [{provider: local, model: big}]}
teams:
  search: {keys: [{name: written, hash: "sha256:%s"}]}
  support: {}
""" % ("0" * 64)
EVERYTHING = YAML.replace("teams:", '  "qwen*": {targets: [{provider: local}]}\nteams:')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spangate.yaml").write_text(YAML, encoding="utf-8")
    return tmp_path


def on() -> list[str]:
    return sorted(switch for switch, turn in stops_file.load(Path("spangate.duckdb.stops")).items() if turn.stopped)


@pytest.mark.parametrize(
    "switch",
    [
        "team:support",
        "key:search/written",
        "key:search/stored",
        "provider:local",
        "model:fast",
        "model:gpt-5-mini",
        "model:gpt-*",
        "model:*",
    ],
)
def test_what_can_be_stopped(switch: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys_file.new(Path("spangate.keys.yaml"), "search", "stored", now=datetime.now(UTC))
    assert stop.stop(None, switch, {}) == 0
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0].partition(":" + switch.partition(":")[2])[0]) == ("", f"stopped {switch.partition(':')[0]}")
    assert "no gateway answers at spangate.duckdb.sock" in err.splitlines()[1]
    assert on() == [switch]


@pytest.mark.parametrize(
    ("switch", "told"),
    [
        ("search", '"search": say what it is: team:NAME, key:TEAM/NAME, model:NAME, provider:NAME'),
        ("teem:search", '"teem:search": there is no "teem" to stop; did you mean "team"?'),
        ("team:serch", 'team:serch: no team "serch"; did you mean "search"?'),
        ("team:x", 'team:x: no team "x"; there are: search, support'),
        ("key:serch/ci", 'key:serch/ci: no team "serch"; did you mean "search"?'),
        ("key:search/writen", 'key:search/writen: no key "writen"; did you mean "written"?'),
        ("key:support/ci", 'key:support/ci: no key "ci"; there are none'),
        ("provider:opnai", 'provider:opnai: no provider "opnai"; did you mean "openai"?'),
        ("model:fats", 'model:fats: no model "fats"; did you mean "fast"?'),
        ("model:qwen3", 'model:qwen3: no model "qwen3"; there are: big, fast, gpt-5-mini, strong'),
        ("model:claude-*", 'model:claude-*: no model "claude-*"; there are:'),
    ],
)
def test_what_there_is_not(switch: str, told: str) -> None:
    with pytest.raises(Failure) as failure:
        stop.stop(None, switch, {})
    assert (failure.value.code, failure.value.message[: len(told)]) == (2, told)
    assert not Path("spangate.duckdb.stops").exists()


@pytest.mark.parametrize("switch", ["model:qwen3:8b", "model:qwen*", "model:qwen3*"])
def test_a_model_that_a_pattern_leads_somewhere(switch: str, folder: Path) -> None:
    (folder / "spangate.yaml").write_text(EVERYTHING, encoding="utf-8")
    assert stop.stop(None, switch, {}) == 0
    assert on() == [switch]


def test_twice_keeps_the_first_time(capsys: pytest.CaptureFixture[str]) -> None:
    stop.stop(None, "team:search", {})
    before = Path("spangate.duckdb.stops").read_text()
    capsys.readouterr()
    assert stop.stop(None, "team:search", {}) == 0
    assert capsys.readouterr().err.startswith("team:search is stopped already, since 2")
    assert Path("spangate.duckdb.stops").read_text() == before


def test_resumed_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert stop.listed(None, {}) == 0
    assert capsys.readouterr().out == "nothing is stopped\n"
    with pytest.raises(Failure, match='"team:search" is not stopped: nothing is'):
        stop.resume(None, "team:search", {})
    stop.stop(None, "team:search", {})
    stop.stop(None, "provider:local", {})
    capsys.readouterr()
    assert stop.listed(None, {}) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["STOPPED", "provider:local", "team:search"]
    with pytest.raises(Failure, match=r'"team:serch" is not stopped; did you mean "team:search"\?'):
        stop.resume(None, "team:serch", {})
    with pytest.raises(Failure, match='"model:m" is not stopped; stopped are: provider:local, team:search') as failure:
        stop.resume(None, "model:m", {})
    assert failure.value.code == 2
    assert stop.resume(None, "team:search", {}) == 0
    assert capsys.readouterr().err.splitlines()[0] == "resumed team:search"
    assert on() == ["provider:local"]


def test_what_is_configured_no_more_can_be_resumed(folder: Path) -> None:
    stop.stop(None, "team:support", {})
    (folder / "spangate.yaml").write_text(YAML.replace("  support: {}\n", ""), encoding="utf-8")
    assert stop.resume(None, "team:support", {}) == 0


def test_the_file_lies_beside_the_database_also_where_no_usage_is_kept(folder: Path) -> None:
    (folder / "gate.yaml").write_text(f"{YAML}usage: {{enabled: false, path: data/u.duckdb}}\n", encoding="utf-8")
    stop.stop(Path("gate.yaml"), "team:search", {})
    assert Path("data/u.duckdb.stops").exists()


def test_a_pattern_is_shown_as_a_shell_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    stop.stop(None, "model:gpt-*", {})
    assert "`spangate resume 'model:gpt-*'` ends it" in capsys.readouterr().err


def test_without_teams_or_a_file_it_says_so(folder: Path) -> None:
    (folder / "spangate.yaml").write_text(YAML.partition("teams")[0], encoding="utf-8")
    with pytest.raises(Failure, match=r"key:a/b: there are no teams in spangate\.yaml; stop a model or a provider"):
        stop.stop(None, "key:a/b", {})
    (folder / "spangate.yaml").unlink()
    with pytest.raises(
        Failure, match=r"there is no spangate\.yaml here, and no gateway answers at spangate\.duckdb\.sock: -c names the file"
    ):
        stop.stop(None, "model:gpt-5", {})


def test_what_can_not_be_read_or_written(folder: Path) -> None:
    (folder / "spangate.duckdb.stops").write_text("stopped: [")
    with pytest.raises(ConfigMistakes, match=r"spangate\.duckdb\.stops:2:1"):
        stop.stop(None, "team:search", {})
    for name in ("spangate.duckdb.stops", "spangate.duckdb.stops.lock"):
        (folder / name).unlink()
    (folder / "spangate.duckdb.stops.lock").mkdir()
    with pytest.raises(Failure, match=r"can't be written \(Is a directory\): run this as the one who runs the gateway"):
        stop.stop(None, "team:search", {})


async def test_a_gateway_that_does_not_hold_to_it_is_a_failure(tmp_path: Path) -> None:
    """Its own view of the file is broken meanwhile."""
    async with case(tmp_path) as it:
        switches = it.running.app.switches
        await switches.aclose()  # it looks no more
        with pytest.raises(Failure, match=r"is written to spangate\.duckdb\.stops, and the gateway doesn't hold to it"):
            await asyncio.to_thread(partial(stop.stop, None, "team:search", {}, patience=0.2))


def test_a_gateway_that_hangs_is_told_of_soon_and_that_it_is_written() -> None:
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind("spangate.duckdb.sock")
        hanging.listen()
        with pytest.raises(
            Failure, match=r"team:search is written to spangate\.duckdb\.stops, but the gateway at spangate\.duckdb\.sock gave no answer"
        ):
            stop.stop(None, "team:search", {}, patience=0.05)
    assert on() == ["team:search"]
