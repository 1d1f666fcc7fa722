"""proxy/keys_file.py: virtual keys on disk."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spangate.proxy.keys_file import KeysFileError, digest, fresh, listed, load, new, revoke, until
from spangate.proxy.mistakes import ConfigMistakes

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spangate.keys.yaml"


def names(path: Path) -> list[str]:
    return [f"{team}/{key.name}" for team, key in listed(path)]


def test_a_key_is_sg_and_256_random_bits_that_a_double_click_takes() -> None:
    keys = {fresh() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"sg-[0-9a-f]{64}", key) for key in keys)


def test_a_key_is_stored_as_litellm_stores_its_own() -> None:
    assert digest("sg-abc") == f"sha256:{hashlib.sha256(b'sg-abc').hexdigest()}"


def test_a_new_key_is_returned_once_and_only_its_hash_is_kept(path: Path) -> None:
    key, record = new(path, "search", "ci", expires="30d", now=NOW)
    text = path.read_text()
    assert key not in text
    assert key.removeprefix("sg-") not in text
    assert record.hash == digest(key)
    times = {"created": "2026-11-30T12:00:00+00:00", "expires": "2026-12-30T12:00:00+00:00"}
    assert yaml.safe_load(text) == {"teams": {"search": [{"name": "ci", "hash": digest(key)} | times]}}
    assert text.startswith("# Virtual keys of spangate.")
    assert listed(path) == [("search", record)]


def test_the_file_is_the_owners_alone_whatever_it_was_before(path: Path) -> None:
    path.write_text("teams: {}\n")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        new(path, "search", "ci", now=NOW)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load(path).warnings == []


def test_a_name_is_found_where_none_is_given(path: Path) -> None:
    assert [new(path, "search", now=NOW)[1].name for _ in range(3)] == ["key", "key-2", "key-3"]
    revoke(path, "search", "key-2")
    assert new(path, "search", now=NOW)[1].name == "key-2"


def test_keys_are_listed_by_team(path: Path) -> None:
    new(path, "search", "ci", now=NOW)
    new(path, "ops", "ci", now=NOW)
    assert names(path) == ["search/ci", "ops/ci"]
    assert [key.name for _, key in listed(path, "ops")] == ["ci"]
    assert listed(path.with_name("none.yaml")) == []


def test_a_revoked_key_is_gone_and_the_others_are_not(path: Path) -> None:
    for name in ("a", "b"):
        new(path, "search", name, now=NOW)
    assert revoke(path, "search", "a").name == "a"
    assert names(path) == ["search/b"]
    revoke(path, "search", "b")
    assert yaml.safe_load(path.read_text()) == {"teams": {}}


@pytest.mark.parametrize(
    ("team", "name", "expires", "told"),
    [
        ("search", "ci", None, 'team search has a key "ci" already'),
        ("serch", "x", None, 'no team "serch"; did you mean "search"?'),
        ("nobody", "x", None, 'no team "nobody"; there are: ops, search'),
        ("search", "a/b", None, "a name is made of letters"),
        ("search", "", None, "a name is made of letters"),
        ("search", "x", "soon", "expires: must be a time from now such as 30d"),
        ("search", "x", "0d", "is past"),
        ("search", "x", "2020-01-01", "expires: 2020-01-01 00:00 UTC is past"),
        ("search", "x", "99999999d", "expires: must be a time from now"),
    ],
)
def test_a_key_that_cannot_be_made(path: Path, team: str, name: str, expires: str | None, told: str) -> None:
    new(path, "search", "ci", now=NOW)
    before = path.read_bytes()
    with pytest.raises(KeysFileError, match=re.escape(told)):
        new(path, team, name, expires=expires, now=NOW, teams=["search", "ops"])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("team", "name", "told"),
    [("search", "c", 'team search has no key "c"'), ("serch", "ci", 'no team "serch"; did you mean "search"?')],
)
def test_a_key_that_is_not_there_is_not_revoked(path: Path, team: str, name: str, told: str) -> None:
    new(path, "search", "ci", now=NOW)
    with pytest.raises(KeysFileError, match=re.escape(told)):
        revoke(path, team, name)


@pytest.mark.parametrize(
    ("expires", "ends"),
    [
        (None, None),
        ("30d", datetime(2026, 12, 30, 12, tzinfo=UTC)),
        ("12h", datetime(2026, 12, 1, 0, tzinfo=UTC)),
        ("1.5 h", datetime(2026, 11, 30, 13, 30, tzinfo=UTC)),
        ("2027-01-31", datetime(2027, 1, 31, tzinfo=UTC)),
        ("2027-01-31T18:00:00+02:00", datetime(2027, 1, 31, 16, tzinfo=UTC)),
    ],
)
def test_times_of_expiry(expires: str | None, ends: datetime | None) -> None:
    assert until(expires, NOW) == ends


@given(st.text(max_size=20) | st.from_regex(r"[0-9]{1,25}(ms|s|m|h|d)", fullmatch=True))
def test_any_time_of_expiry_is_to_come_or_an_error(expires: str) -> None:
    try:
        ends = until(expires, NOW)
    except KeysFileError:
        return
    assert ends is not None
    assert ends > NOW


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("teams: [\n", ":2:1: is not YAML"),
        ("teams: {a: [{name: x}]}", ":1:13: teams.a[0].hash: is missing"),
        ("teams: {a: [{name: x, hash: sg-CANARY00000000}]}", ":1:29: teams.a[0].hash: is a key, not its hash"),
        ("team: {}", ':1:1: team: unknown key; did you mean "teams"?'),
        ("[]", "must be a mapping"),
        ("teams: {a: [{name: x, hash: h, secret: CANARY}]}", "teams.a[0].secret: unknown key"),
    ],
)
def test_a_file_that_is_none_of_ours(path: Path, text: str, told: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigMistakes, match=re.escape(told)) as raised:
        load(path)
    assert "CANARY" not in str(raised.value)


def test_a_file_that_is_not_utf_8(path: Path) -> None:
    path.write_bytes(b"teams:\n  \xff: []\n")
    with pytest.raises(ConfigMistakes, match=":2:3: is not UTF-8"):
        load(path)


def test_a_bad_file_is_not_overwritten(path: Path) -> None:
    path.write_text("teams: [")
    with pytest.raises(ConfigMistakes):
        new(path, "search", now=NOW)
    assert path.read_text() == "teams: ["


@pytest.mark.parametrize(("mode", "word"), [(0o640, "read"), (0o604, "read"), (0o620, "write")])
def test_a_file_that_others_may_touch_is_a_warning(path: Path, mode: int, word: str) -> None:
    path.write_text("teams: {}")
    path.chmod(mode)
    (warning,) = load(path).warnings
    assert warning.message == f"others may {word} this file (mode {mode:04o}): chmod 600 {path}"


def test_a_folder_in_its_place_is_told(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ConfigMistakes, match="can't be read: Is a directory"):
        load(path)


def test_a_link_is_written_through(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    path.symlink_to(real)
    new(path, "search", "ci", now=NOW)
    assert path.is_symlink()
    assert names(real) == ["search/ci"]


def test_nothing_is_left_beside_it(path: Path, tmp_path: Path) -> None:
    new(path, "search", "ci", now=NOW)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["spangate.keys.yaml", "spangate.keys.yaml.lock"]


def test_a_reader_sees_the_old_file_or_the_new_one(path: Path) -> None:
    new(path, "search", "first", now=NOW)
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(len(load(path).teams["search"]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for number in range(20):
            new(path, "search", f"k{number}", now=NOW)
    finally:
        done.set()
        thread.join()
    assert seen <= set(range(1, 22))


def test_commands_at_once_lose_no_key(path: Path) -> None:
    program = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path; from spangate.proxy.keys_file import new\n"
        "for n in range(5): new(Path(sys.argv[1]), 'search', f'{sys.argv[2]}-{n}', now=datetime.now(UTC))"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(path), f"p{number}"]) for number in range(4)]
    assert [process.wait(30) for process in running] == [0, 0, 0, 0]
    assert sorted(names(path)) == sorted(f"search/p{number}-{n}" for number in range(4) for n in range(5))


def test_a_key_ends_when_it_says(path: Path) -> None:
    _, record = new(path, "search", "ci", expires="1d", now=NOW)
    assert record.expires == NOW.replace(microsecond=0) + timedelta(days=1)
