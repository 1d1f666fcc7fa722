"""proxy/stops_file.py: kill switches on disk."""

from __future__ import annotations

import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.proxy.mistakes import ConfigMistakes
from spangate.proxy.stops_file import (
    MOST,
    REMEMBERED,
    TooMany,
    Turn,
    keep,
    load,
    merged,
    newer,
    parse,
    remembered,
    stops_path,
    switch_of,
    turn,
)

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return stops_path(tmp_path / "spangate.duckdb")


@pytest.mark.parametrize("text", ["team:search", "key:search/ci", "model:qwen3:8b", "model:gpt-*", "model:org/m", "provider:local"])
def test_a_switch(text: str) -> None:
    assert switch_of(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("search", '"search": say what it is: team:NAME, key:TEAM/NAME, model:NAME, provider:NAME'),
        ("modle:m", '"modle:m": there is no "modle" to stop; did you mean "model"?; there are team:NAME'),
        ("team:", '"team:": must be team:NAME'),
        ("team:a b", '"team:a b": must be team:NAME'),
        ("key:ci", '"key:ci": must be key:TEAM/NAME'),
        ("model:ü", '"model:ü": must be model:NAME'),
        ("provider:a/b", '"provider:a/b": must be provider:NAME'),
        ("team:search\n", '"team:search\\n": must be team:NAME'),
    ],
)
def test_no_switch(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        switch_of(text)


def test_it_lies_beside_the_database_for_everybody_here_to_read(path: Path) -> None:
    assert path.name == "spangate.duckdb.stops"
    assert load(path) == {}
    turn(path, "team:search", stopped=True, now=NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text().startswith("# Kill switches of spangate.")


def test_stopped_and_resumed(path: Path) -> None:
    assert turn(path, "team:search", stopped=True, now=NOW) is None
    assert turn(path, "model:m", stopped=True, now=NOW) is None
    assert turn(path, "team:search", stopped=False, now=LATER) == Turn(True, NOW)
    assert load(path) == {"team:search": Turn(False, LATER), "model:m": Turn(True, NOW)}


def test_what_is_so_already_keeps_its_time(path: Path) -> None:
    turn(path, "team:search", stopped=True, now=NOW)
    before = path.read_bytes()
    assert turn(path, "team:search", stopped=True, now=LATER) == Turn(True, NOW)
    assert path.read_bytes() == before


def test_a_clock_that_is_behind_still_has_the_last_word(path: Path) -> None:
    turn(path, "team:search", stopped=True, now=LATER)
    turn(path, "team:search", stopped=False, now=NOW)
    assert load(path)["team:search"] == Turn(False, LATER + timedelta(microseconds=1))


def test_what_others_said_counts_where_it_is_newer(path: Path) -> None:
    turn(path, "team:a", stopped=True, now=LATER)
    turn(path, "team:b", stopped=True, now=NOW)
    others = {"team:a": Turn(False, NOW), "team:b": Turn(False, LATER), "model:m": Turn(True, NOW)}
    after = {"team:a": Turn(True, LATER), "team:b": Turn(False, LATER), "model:m": Turn(True, NOW)}
    assert keep(path, others, LATER) == after
    assert load(path) == after
    before = path.stat().st_ino
    keep(path, others, LATER)
    assert path.stat().st_ino == before, "nothing new, and nothing written"


def test_so_many_and_no_more(path: Path) -> None:
    keep(path, {f"team:t{number}": Turn(True, NOW) for number in range(MOST)}, NOW)
    with pytest.raises(TooMany, match="`spangate resume` some"):
        turn(path, "team:one-more", stopped=True, now=NOW)
    turn(path, "team:t0", stopped=False, now=NOW)
    turn(path, "team:one-more", stopped=True, now=NOW)


def test_what_was_resumed_is_forgotten_and_what_is_stopped_is_not() -> None:
    old = NOW - REMEMBERED
    turns = {"team:a": Turn(True, old), "team:b": Turn(False, old), "team:c": Turn(False, NOW)}
    assert remembered(turns, NOW) == {"team:a": Turn(True, old), "team:c": Turn(False, NOW)}
    many = {f"team:t{number}": Turn(number % 2 == 0, NOW) for number in range(4 * MOST)}
    kept = remembered(many, NOW)
    assert (sum(each.stopped for each in kept.values()), len(kept)) == (2 * MOST, 3 * MOST)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stopped: {team:search: }", "stopped.team:search: must be a date"),
        ("stopped: {search: 2026-11-30}", "say what it is"),
        ("stoped: {}", 'did you mean "stopped"'),
        ("stopped: [", "spangate.duckdb.stops:2:1: is not YAML"),
        ("[]", "must be a mapping"),
    ],
)
def test_a_file_that_is_none(path: Path, text: str, told: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigMistakes) as caught:
        load(path)
    assert told in str(caught.value)
    with pytest.raises(ConfigMistakes):
        turn(path, "team:search", stopped=True, now=NOW)
    assert path.read_text() == text


def test_a_file_that_can_not_be_read(path: Path) -> None:
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigMistakes, match="is not UTF-8"):
        load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigMistakes, match="can't be read"):
        load(path)


def test_a_large_file_is_not_read(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(ConfigMistakes, match="larger than 4 MiB"):
        load(path)


TURNS = st.dictionaries(
    st.sampled_from(["team:a", "model:m*", "key:a/b"]),
    st.builds(Turn, st.booleans(), st.integers(0, 5).map(lambda minutes: NOW + timedelta(minutes=minutes))),
)


@given(st.lists(TURNS, max_size=4).flatmap(lambda said: st.tuples(st.just(said), st.permutations([*said, *said[:1]]))))
def test_the_order_in_which_word_comes_does_not_matter(orders: tuple[list[dict[str, Turn]], list[dict[str, Turn]]]) -> None:
    said, shuffled = orders
    assert merged(*said) == merged(*shuffled)
    for turns in said:
        assert not any(newer(each, merged(*said)[switch]) for switch, each in turns.items())


def test_what_is_written_is_read(path: Path) -> None:
    turns = {"model:*": Turn(True, NOW), "model:a:b'{": Turn(True, LATER), "key:a/b": Turn(False, NOW)}
    keep(path, turns, LATER)
    assert parse(path.read_bytes(), "it") == turns
