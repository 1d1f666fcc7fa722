"""`spangate tail`: each call once, in the order in which they ended."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from spangate.exporters.console import text_after_status
from spangate.exporters.usage.settings import Usage
from spangate.proxy.commands.asking import Place
from spangate.proxy.commands.choices import Ended
from spangate.proxy.commands.failure import Failure
from spangate.proxy.commands.tail import Calls, Wanted, check_names

from case import OTHER, Case, case
from program import running, spangate
from serving import serving
from upstream import Misbehaving, chat_answer, play

USAGE: dict[str, Any] = {"usage": {"path": "usage.duckdb"}}


def calls(folder: Path, **wanted: Any) -> Calls:
    return Calls(Place(Usage(path="usage.duckdb"), (), folder), Wanted(**wanted))


def ids(it: Case) -> list[str]:
    return [seen.id for seen in it.running.kept.seen]


async def test_each_call_once_and_as_the_gateway_tells_it(tmp_path: Path) -> None:
    async with case(tmp_path, play(*[chat_answer("Hello")] * 5), **USAGE) as it:
        tail = calls(tmp_path, last=2)
        for _ in range(3):
            await it.ask()
        shown = await asyncio.to_thread(tail.last)
        assert [seen.id for seen in shown] == ids(it)[1:]
        assert await asyncio.to_thread(tail.new) == []
        await it.ask()
        await it.ask(b"{not json")
        shown = await asyncio.to_thread(tail.new)
        assert [(seen.id, seen.status) for seen in shown] == [(seen.id, seen.status) for seen in it.running.kept.seen[3:]]
        assert [text_after_status(seen) for seen in shown] == [text_after_status(seen) for seen in it.running.kept.seen[3:]]
        assert await asyncio.to_thread(tail.new) == []


async def test_none_of_those_that_have_ended(tmp_path: Path) -> None:
    async with case(tmp_path, play(*[chat_answer("Hello")] * 5), **USAGE) as it:
        tail = calls(tmp_path, last=0)
        await it.ask()
        assert await asyncio.to_thread(tail.last) == []
        await it.ask()
        assert [seen.id for seen in await asyncio.to_thread(tail.new)] == ids(it)[1:]


async def test_filters(tmp_path: Path) -> None:
    async with case(tmp_path, play(*[chat_answer("Hello")] * 5), **USAGE) as it:
        await it.ask()
        await it.ask(key=OTHER)
        await it.ask({"model": "nothing"})
        for wanted, count in [
            ({"team": "other"}, 1),
            ({"team": "search"}, 2),
            ({"model": "m"}, 2),
            ({"model": "no*"}, 1),
            ({"outcome": Ended.refused}, 1),
            ({"team": "other", "outcome": Ended.refused}, 0),
            ({"team": "' OR '1'='1"}, 0),
        ]:
            assert len(await asyncio.to_thread(calls(tmp_path, **wanted).last)) == count, wanted


async def test_a_name_that_nobody_knows_is_not_waited_for(tmp_path: Path) -> None:
    async with Misbehaving(play(chat_answer("Hello"))) as up:
        with serving(tmp_path, up.base_url, **USAGE):
            told = []
            for given in (["--team", "serach"], ["--model", "mm"], ["--outcome", "fialed"]):
                ran = await asyncio.to_thread(spangate, "tail", *given, folder=tmp_path)
                assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
                told.append(ran.err)
    assert told[0] == 'spangate: no team "serach"; did you mean "search"?\n'
    assert told[1].startswith('spangate: no model "mm"; ')
    assert 'did you mean "failed"?' in told[2]


async def test_names_of_rows_and_patterns_are_known_too(tmp_path: Path) -> None:
    async with case(tmp_path, play(*[chat_answer("Hello")] * 5), **USAGE) as it:
        await it.ask()
        place = Place(Usage(path="usage.duckdb"), (), tmp_path)
        for known in (Wanted(team="search"), Wanted(model="no*"), Wanted(model="any")):
            await asyncio.to_thread(check_names, known, None, place)
        with pytest.raises(Failure, match=r'no team "nobody"; there are: search'):
            await asyncio.to_thread(check_names, Wanted(team="nobody"), None, place)


def test_without_a_gateway_there_is_nothing_to_follow(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"no gateway answers at .*usage\.duckdb\.sock"):
        calls(tmp_path).last()


async def test_it_follows_until_it_is_interrupted_or_the_gateway_is_gone(tmp_path: Path) -> None:
    async with Misbehaving(play(*[chat_answer("Hello")] * 5)) as up:
        with serving(tmp_path, up.base_url, **USAGE) as program:
            assert (await program.ask()).status == 200
            with running("tail", folder=tmp_path) as first, running("tail", "-n", "0", folder=tmp_path) as second:
                await asyncio.to_thread(first.until, "200 chat m", stdout=True)
                assert (await program.ask()).status == 200
                await asyncio.to_thread(first.until, "200 chat m", stdout=True)
                first.send(signal.SIGINT)
                ran = await asyncio.to_thread(first.end)
                assert (ran.code, ran.err) == (130, "")
                program.process.send(signal.SIGTERM)
                await program.end()
                ran = await asyncio.to_thread(second.end)
                assert ran.code == 1
                assert len(ran.err.splitlines()) == 1
    ran = spangate("tail", folder=tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert "no gateway answers" in ran.err
