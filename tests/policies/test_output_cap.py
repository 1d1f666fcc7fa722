"""policies/output_cap.py: how long an answer may be, and how that is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call, Head, Op
from spangate.call.events import Closed, Delta, Event, Opened
from spangate.policies.output_cap import HEADER, capped, over, telling


def call(op: Op = "chat", **fields: Any) -> Call:
    caps = [value for name, value in fields.items() if name != "messages" and value is not None]
    return Call(op=op, model="m", body=Body.of({"messages": [], **fields}), head=Head(output_cap=max(caps, default=None)))


@pytest.mark.parametrize(
    ("op", "given", "sent"),
    [
        ("chat", {}, {"max_completion_tokens": 100}),
        ("chat", {"max_tokens": None}, {"max_completion_tokens": 100, "max_tokens": None}),
        ("chat", {"max_tokens": 500}, {"max_tokens": 100}),
        ("chat", {"max_completion_tokens": 500}, {"max_completion_tokens": 100}),
        ("chat", {"max_tokens": 50, "max_completion_tokens": 500}, {"max_tokens": 50, "max_completion_tokens": 100}),
        ("completions", {}, {"max_tokens": 100}),
        ("chat", {"n_predict": 9000, "max_new_tokens": None}, {"max_completion_tokens": 100}),
        ("chat", {"max_tokens": 500, "max_output_tokens": 9000, "num_predict": -1}, {"max_tokens": 100}),
        ("completions", {"max_completion_tokens": 500}, {"max_completion_tokens": 500, "max_tokens": 100}),
    ],
)
def test_what_goes_out(op: Op, given: dict[str, Any], sent: dict[str, Any]) -> None:
    asked = call(op, **given)
    assert over(asked, 100)
    made = capped(asked, 100)
    assert {name: value for name, value in made.body.parsed().items() if name != "messages"} == sent
    assert (made.head.output_cap, made.head.capped, asked.head.capped) == (100, True, False)
    assert made.body.fields["messages"] is asked.body.fields["messages"]


@pytest.mark.parametrize("asked", [call(max_tokens=100), call(max_completion_tokens=1), call("embeddings")])
def test_what_fits_is_left_as_it_is(asked: Call) -> None:
    assert not over(asked, 100)
    assert capped(asked, 100) is asked


@pytest.mark.parametrize(("headers", "told"), [({}, "100"), ({HEADER: "50"}, "50"), ({"x": "y"}, "100")])
async def test_the_caller_is_told(headers: dict[str, str], told: str) -> None:
    async def answer(call: Call) -> AsyncIterator[Event]:
        yield Opened(headers=headers)
        yield Delta(b"data: {}\n\n")
        yield Closed()

    opened, *rest = [event async for event in telling(call(), answer, 100)]
    assert opened == Opened(headers={**headers, HEADER: told})
    assert rest == [Delta(b"data: {}\n\n"), Closed()]
