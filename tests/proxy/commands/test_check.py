"""`spangate check`: for people, for programs, and in which order policies hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spangate.proxy.commands.check import check
from spangate.proxy.commands.choices import Format

from program import spangate

GOOD = """\
providers: {script: {kind: scripted}}
models:
  fast: {targets: [{provider: script}], time_limit: {first: 5s}}
  strong: {targets: [{provider: script}]}
policies: {standard: [{access: {models: [fast]}}]}
defaults: {policies: [standard]}
teams: {search: {}, support: {models: [fast, strong], policies: [{access: {models: ["f*"]}}]}}
"""
BAD = GOOD.replace("teams: {search: {}", "teams: {search: {polices: []}") + "servr: {}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str) -> None:
    Path("spangate.yaml").write_text(text, encoding="utf-8")


def test_a_good_file_is_told_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD)
    assert check(None, Format.text, {}) == 0
    told = capsys.readouterr()
    assert told.out == "spangate.yaml: ok (2 teams, 2 models, 1 policy list, 0 keys)\n"
    assert told.err.splitlines() == [
        "spangate.yaml:7:9: warning: teams.search: has no key, so that nobody can call as it: spangate keys new search",
        "spangate.yaml:7:21: warning: teams.support: has no key, so that nobody can call as it: spangate keys new support",
        "spangate.yaml: warning: teams: serve won't start: no team has a key, so nobody could call: spangate keys new search",
    ]


def test_keys_that_have_expired_count_as_none(capsys: pytest.CaptureFixture[str]) -> None:
    old = f"{{name: ci0, hash: 'sha256:{'0' * 64}', expires: 2020-01-01}}"
    new = f"{{name: ci1, hash: 'sha256:{'1' * 64}', expires: 2999-01-01}}"
    text = GOOD.replace("{search: {}, support: {", f"{{search: {{keys: [{old}]}}, support: {{keys: [KEY], ")
    write(text.replace("[KEY]", f"[{new}]"))
    assert check(None, Format.text, {}) == 0
    told = capsys.readouterr()
    assert "1 key)" in told.out
    assert told.err == "spangate.yaml: warning: teams.search: its key ci0 has expired\n"
    write(text.replace("keys: [KEY], ", ""))
    assert check(None, Format.text, {}) == 0
    told = capsys.readouterr()
    assert "0 keys)" in told.out
    assert told.err.endswith("serve won't start: every key has expired, so nobody could call: spangate keys new search\n")


def test_every_mistake_is_told_at_once(folder: Path) -> None:
    write(BAD)
    ran = spangate("check", folder=folder)
    assert (ran.code, ran.out) == (2, "")
    assert [line.split(": ", 1)[0] for line in ran.err.splitlines()] == ["spangate.yaml:7:18", "spangate.yaml:8:1"]
    assert 'did you mean "policies"?' in ran.err
    assert 'did you mean "server"?' in ran.err


def told_to_programs(shape: Format, capsys: pytest.CaptureFixture[str]) -> str:
    write(BAD)
    assert check(None, shape, {}) == 2
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_programs_get_their_format_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert [mistake["line"] for mistake in json.loads(told_to_programs(Format.json, capsys))] == [7, 8]
    assert told_to_programs(Format.github, capsys).startswith("::error file=spangate.yaml,line=7,col=18::teams.search.polices")
    assert len(json.loads(told_to_programs(Format.sarif, capsys))["runs"][0]["results"]) == 2


def test_programs_get_a_list_when_nothing_is_wrong_too(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD.partition("teams")[0])
    assert check(None, Format.json, {}) == 0
    assert capsys.readouterr().out == "[]\n"
    assert check(None, Format.github, {}) == 0
    assert capsys.readouterr().out == ""


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(Path("other.yaml"), Format.text, {}) == 2
    assert capsys.readouterr().err == "other.yaml: there is no such file: `spangate init` writes one\n"


def test_the_order_of_policies(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD)
    assert check(None, Format.text, {}, verbose=True) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "team search, outermost first (stage, policy, settings):",
        "   10 access       models: *",
        "   10 access       models: fast",
        "team support, outermost first (stage, policy, settings):",
        "   10 access       models: fast, strong",
        "   10 access       models: fast",
        "   10 access       models: f*",
        "model fast, inside of these:",
        "   80 time_limit   connect: 5s  first: 5s  silence: 60s  total: 600s",
        "model strong, inside of these:",
        "   80 time_limit   connect: 5s  first: 120s  silence: 60s  total: 600s",
    ]


def test_what_a_policy_says_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rule = "access: {models: [fast], tools: {deny: [rm]}, max: {max_tokens: 20k}, mode: shadow, when: stream}"
    write(GOOD.partition("policies")[0] + f"defaults: {{policies: [{rule}]}}\n")
    assert check(None, Format.text, {}, verbose=True) == 0
    assert capsys.readouterr().out.splitlines()[3] == (
        "   10 access       models: fast  tools: {allow: *, deny: rm}  max: {max_tokens: 20k}  mode: shadow  when: stream"
    )


def test_the_order_of_policies_without_teams(capsys: pytest.CaptureFixture[str]) -> None:
    write(GOOD.partition("policies")[0])
    assert check(None, Format.text, {}, verbose=True) == 0
    assert capsys.readouterr().out.splitlines()[1:3] == [
        "any caller, outermost first (stage, policy, settings):",
        "   10 access       models: *",
    ]


def test_what_serve_would_refuse_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    write("server: {host: 0.0.0.0}\n" + GOOD.partition("policies")[0])
    assert check(None, Format.text, {}) == 0
    assert capsys.readouterr().err.startswith("spangate.yaml: warning: server.host: 0.0.0.0 is reachable from other machines")


def test_the_file_may_be_an_argument_as_of_init(folder: Path) -> None:
    (folder / "bad.yaml").write_text(BAD, encoding="utf-8")
    ran = spangate("check", "bad.yaml", folder=folder, SPANGATE_CONFIG="other.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == spangate("check", "-c", "bad.yaml", folder=folder).err
    assert ran.err.startswith("bad.yaml:7:18: ")
