"""`spangate keys`: made, listed, revoked; shown once."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import pytest

from spangate.proxy import config, keys_file
from spangate.proxy.commands import keys
from spangate.proxy.commands.failure import Failure

from program import spangate

YAML = """\
server: {port: 9000}
providers: {openai: {kind: openai, api_key: "${OPENAI_API_KEY}"}}
models: {"*": {targets: [{provider: openai}]}}
teams:
  search: {keys: [{name: written, hash: "sha256:%s"}]}
  support: {}
""" % ("0" * 64)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spangate.yaml").write_text(YAML, encoding="utf-8")
    return tmp_path


def test_a_key_is_made_shown_once_and_works(folder: Path) -> None:
    ran = spangate("keys", "new", "search", "--name", "ci", "--expires", "30d", folder=folder)
    assert ran.code == 0
    shown = re.fullmatch(r"export OPENAI_BASE_URL=http://127\.0\.0\.1:9000/v1\nexport OPENAI_API_KEY=(sg-[0-9a-f]{64})\n", ran.out)
    assert shown
    assert re.match(r"key search/ci, expires \d{4}-\d\d-\d\d \d\d:\d\dZ\. Shown this once: ", ran.err)
    assert shown[1] not in ran.err + (folder / "spangate.keys.yaml").read_text("utf-8")
    assert stat.S_IMODE((folder / "spangate.keys.yaml").stat().st_mode) == 0o600
    held = config.load("spangate.yaml", environ={"OPENAI_API_KEY": "sk-one"}).keys
    assert keys_file.digest(shown[1]) in {each.key.hash for each in held}


def test_the_lines_can_be_evaluated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys.new(None, "support", None, None, {})
    said = subprocess.check_output(["sh", "-c", capsys.readouterr().out + 'printf "%s %s" "$OPENAI_BASE_URL" "$OPENAI_API_KEY"'], text=True)
    assert re.fullmatch(r"http://127\.0\.0\.1:9000/v1 sg-[0-9a-f]{64}", said)


def test_they_are_listed_wherever_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    keys.new(None, "search", "ci", "2999-01-31", {})
    keys.new(None, "support", None, None, {})
    capsys.readouterr()
    assert keys.listed(None, None, {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["KEY", "search/written", "search/ci", "support/key"]
    assert lines[1].endswith("spangate.yaml")
    assert "2999-01-31 00:00Z" in lines[2]
    assert keys.listed(None, "support", {}) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_an_expired_one_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "spangate.yaml").write_text(YAML.replace('"}]', '", expires: 2020-01-31}]'), encoding="utf-8")
    keys.listed(None, None, {})
    assert "2020-01-31 00:00Z (expired)" in capsys.readouterr().out


def test_no_keys_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert keys.listed(None, "support", {}) == 0
    assert capsys.readouterr() == ("", "no keys: spangate keys new support\n")


def test_a_revoked_key_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    keys.new(None, "search", "ci", None, {})
    assert keys.revoke(None, "search/ci", {}) == 0
    assert capsys.readouterr().err.endswith("revoked search/ci; a running gateway refuses it within a second\n")
    assert keys_file.listed(Path("spangate.keys.yaml")) == []


@pytest.mark.parametrize(
    ("team", "name", "expires", "told"),
    [
        ("serch", None, None, 'no team "serch"; did you mean "search"?'),
        ("search", "a b", None, '"a b": a name is made of letters'),
        ("search", "written", None, 'team search has a key "written" in spangate.yaml already'),
        ("search", None, "soon", "expires: must be a time from now such as 30d"),
        ("search", None, "2020-01-31", "expires: 2020-01-31 00:00 UTC is past"),
    ],
)
def test_a_key_that_cannot_be(team: str, name: str | None, expires: str | None, told: str) -> None:
    with pytest.raises(Failure) as failure:
        keys.new(None, team, name, expires, {})
    assert (failure.value.code, failure.value.message[: len(told)]) == (2, told)
    assert not Path("spangate.keys.yaml").exists()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("ci", '"ci": a key is named TEAM/NAME'),
        ("search/", '"search/": a key is named TEAM/NAME'),
        ("search/written", "search/written stands in spangate.yaml itself: take it out there"),
        ("search/ci", 'team search has no key "ci"'),
        ("serch/ci", 'no team "serch"; did you mean "search"?'),
    ],
)
def test_a_key_that_cannot_be_revoked(key: str, told: str) -> None:
    with pytest.raises(Failure) as failure:
        keys.revoke(None, key, {})
    assert (failure.value.code, failure.value.message[: len(told)]) == (2, told)


def test_a_team_that_is_not_there() -> None:
    with pytest.raises(Failure, match=r'no team "suport"; did you mean "support"\?'):
        keys.listed(None, "suport", {})


def test_without_a_file_or_teams_it_says_what_to_do(folder: Path) -> None:
    (folder / "spangate.yaml").unlink()
    with pytest.raises(Failure, match="`spangate init` writes one, -c names another"):
        keys.new(None, "search", None, None, {})
    (folder / "gate.yaml").write_text(YAML.partition("teams")[0], encoding="utf-8")
    with pytest.raises(Failure, match=r"there are no teams in gate\.yaml: add one, as in `teams: \{search: \{\}\}`"):
        keys.new(Path("gate.yaml"), "search", None, None, {})
