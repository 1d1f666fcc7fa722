"""What is told of streams that are cut, numbered or ended in odd ways: the rows and spans of the fault list's SSE, TOOL and CAN."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from case import KEY, Line
from gateway import until
from otlp_sink import attributes
from told import Told, told
from upstream import LAST_CHUNK, C, D, F, Play, Request, U, chat_chunk, chunk, play, sse, sse_head

COUNTED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
HELLO = C("Hel") + C("lo") + F("stop") + U(7, 2) + D


async def all_alike(it: Told, calls: int) -> None:
    """Each of them was answered, and used what its provider said."""
    told = await it.calls()
    assert {(*call.tokens, call.row["outcome"]) for call in told} == {(7, 2, "provider", "completed")}
    assert len(told) == calls


@pytest.mark.fault("SSE-01")
async def test_an_event_cut_at_every_byte_is_counted_once(tmp_path: Path) -> None:
    places = iter(range(1, len(HELLO)))

    def script(request: Request) -> Play:
        place = next(places)
        return play(sse_head(), chunk(HELLO[:place]), (chunk(HELLO[place:]) + LAST_CHUNK, 0.02))

    async with told(tmp_path, script) as it:
        for start in range(1, len(HELLO), 64):
            answers = await asyncio.gather(*(it.it.ask(COUNTED) for _ in range(start, min(start + 64, len(HELLO)))))
            assert {answer.body for answer in answers} == {HELLO}
        await all_alike(it, len(HELLO) - 1)


@pytest.mark.fault("SSE-02")
async def test_a_cut_inside_a_character_changes_nothing_that_is_told(tmp_path: Path) -> None:
    said = "日本🙂é".encode()
    stream = C(said.decode()) + F("stop") + U(7, 2) + D
    first = stream.index(said) + 1
    scripts = [play(sse_head(), chunk(stream[:at]), (chunk(stream[at:]) + LAST_CHUNK, 0.01)) for at in range(first, first + len(said))]
    async with told(tmp_path, scripts) as it:
        for _ in scripts:
            assert (await it.it.ask(COUNTED)).body == stream
        await all_alike(it, len(scripts))
        sizes = {row["answer"] for row in await it.rows("SELECT count(*) AS answer FROM attempts GROUP BY call_id")}
        assert sizes == {1}


@pytest.mark.fault("SSE-19")
async def test_a_malformed_event_is_counted(tmp_path: Path) -> None:
    broken = b'data: {"choices":[{"del\n\n'
    async with told(tmp_path, play(sse(C("a"), broken, C("b"), broken, F("stop"), U(7, 2), D))) as it:
        assert (await it.it.ask(COUNTED)).body.count(b"data: ") == 7
        call = await it.call()
        assert call.tokens == (7, 2, "provider")
        [event] = call.span.events
        assert attributes(event)["spangate.policy.note"] == "stream.malformed"
        assert await it.rows("SELECT policy, kind, figures FROM decisions") == [
            {"policy": "stream", "kind": "malformed", "figures": '{"events":2}'}
        ]
        assert it.sink.logs == [], "nobody decided anything"
        page = (await it.it.ask(path="/metrics", method="GET")).body.decode()
        assert 'spangate_stream_malformed_total{spangate_deployment_name="up"} 2' in page


# ---- tool calls


def part(index: int | None, arguments: str, id: str | None = None, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"index": index, "function": function} | ({"id": id, "type": "function"} if id else {})


def streamed(*parts: Mapping[str, Any], finish: str = "tool_calls", meanwhile: Any = None) -> list[bytes]:
    """A chunk for each part; `meanwhile` is the finish_reason of every chunk but the last."""
    choices = [{"index": 0, "delta": {"tool_calls": [each]}, "finish_reason": meanwhile} for each in parts]
    return [*(chat_chunk([choice]) for choice in choices), F(finish), U(7, 2), D]


CUT = '{"path":"/a'
TOOLS = {
    "TOOL-01": (
        streamed(part(0, "", "A", "a"), part(1, "", "B", "b"), part(0, '{"t":"A"}'), part(1, '{"t":"B"}')),
        [("A", "a", '{"t":"A"}'), ("B", "b", '{"t":"B"}')],
        "tool_calls",
    ),
    "TOOL-02": (
        streamed(part(0, '{"q":1}', "A", "f"), part(0, '{"q":2}', "B", "f")),
        [("A", "f", '{"q":1}'), ("B", "f", '{"q":2}')],
        "tool_calls",
    ),
    "TOOL-04": (streamed(part(0, "{", "A", "f"), part(1, '"q":'), part(2, "1}")), [("A", "f", '{"q":1}')], "tool_calls"),
    "TOOL-06": (
        streamed(part(0, "{", "A", "f"), part(0, '"q":'), part(0, "1"), part(0, "}"), part(0, " "), finish="stop", meanwhile=""),
        [("A", "f", '{"q":1} ')],
        "stop",
    ),
    "TOOL-08": (streamed(part(0, CUT, "A", "f"), finish="length"), [("A", "f", CUT)], "length"),
}


@pytest.mark.fault("TOOL-01", "TOOL-02", "TOOL-04", "TOOL-06", "TOOL-08")
@pytest.mark.parametrize("fault", TOOLS)
async def test_tool_calls_in_odd_pieces(tmp_path: Path, fault: str) -> None:
    """A stream goes on as it came; who asked for JSON gets the calls put together; both are told of alike, without their arguments."""
    events, calls, finish = TOOLS[fault]
    async with told(tmp_path, play(sse(*events))) as it:
        assert (await it.it.ask(COUNTED)).body == b"".join(events)
        [choice] = (await it.it.ask()).json()["choices"]
        found = [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in choice["message"]["tool_calls"]]
        assert (found, choice["finish_reason"]) == (calls, finish)
        for call in await it.calls():
            [attempt] = call.attempts
            assert attributes(attempt)["gen_ai.response.finish_reasons"] == [finish]
            assert (call.tokens, call.row["outcome"]) == ((7, 2, "provider"), "completed")
        assert [name for _, name, arguments in calls if arguments in str(it.sink.taken)] == []


# ---- clients that leave


async def leaves(it: Told, deltas: int) -> None:
    it.it.rows += 1
    async with it.it.line() as line:
        await line.send(it.it.request({"stream": True}))
        for _ in range(deltas):
            await line.reader.readuntil(b"data: ")
        line.abort()


@pytest.mark.fault("CAN-01")
@pytest.mark.fault("CAN-02")
@pytest.mark.fault("USE-08")
async def test_two_hundred_that_leave_have_two_hundred_spans_and_rows(tmp_path: Path) -> None:
    slow = play(sse_head() + chunk(C("a")), *[(chunk(C("a")), 0.02)] * 500)
    async with told(tmp_path, slow) as it:
        await asyncio.gather(*(leaves(it, 10) for _ in range(200)))
        calls = await it.calls()
        assert {(call.row["outcome"], call.row["status"], call.row["usage_source"]) for call in calls} == {("aborted", 499, "estimated")}
        assert {attributes(attempt)["spangate.stream.aborted_by"] for call in calls for attempt in call.attempts} == {"client"}
        # A byte in each delta: a quarter of their bytes would be less than the tokens that came.
        assert min(call.row["output_tokens"] for call in calls) >= 10
        assert len(calls) == 200
        assert [line for line in it.it.log.lines if "never retrieved" in line] == []


@pytest.mark.fault("KEY-03")
async def test_a_stream_that_outlives_its_key_is_billed(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    slow = play(sse_head() + chunk(C("a")), go_on, chunk(F("stop") + U(7, 2) + D) + LAST_CHUNK)
    async with told(tmp_path, slow) as it:
        path = it.it.running.app.config.path
        assert path is not None
        async with it.it.line() as line:
            await line.send(it.it.request(COUNTED))
            await line.reader.readuntil(b"data: ")
            good = path.read_text("utf-8")
            told_of = json.loads(good)
            told_of["teams"]["search"]["keys"][0]["hash"] = f"sha256:{'0' * 64}"
            path.write_text(json.dumps(told_of), encoding="utf-8")
            await until(lambda: KEY not in str(told_of) and it.it.running.app.config.keys[0].key.hash.endswith("0" * 64), 3)
            assert (await it.it.ask()).status == 401
            go_on.set()
            await ended(line)
        it.it.rows += 1
        path.write_text(good, encoding="utf-8")
        await until(lambda: not it.it.running.app.config.keys[0].key.hash.endswith("0" * 64), 3)
        streamed, refused = await it.calls()
        assert (streamed.row["key"], streamed.tokens, streamed.row["outcome"]) == ("ci", (7, 2, "provider"), "completed")
        assert (refused.row["key"], refused.row["status"]) == ("", 401)


async def ended(line: Line) -> None:
    while not (await line.reader.readuntil(b"\r\n")).startswith(b"0"):
        pass
