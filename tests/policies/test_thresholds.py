"""policies/thresholds.py: told once a window, signed, and never in a call's way."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, Counter, Standing
from spangate.policies.thresholds import SIGNATURE, Crossings, Thresholds, Webhooks, signature
from spangate.policies.windows import window

from admitting import Gate, notes
from gateway import until

SECRET = "0123456789abcdef"
AT = Thresholds.model_validate({"at": ["50%", "80%", 1], "webhook": "http://hooks.example.com/x", "secret": SECRET})


def standing(resets_at: int = 1, limit: int = 100) -> Standing:
    return Standing(Counter("acme", "b", "search", window("day")), limit * NANO, 0, 0, resets_at=resets_at)


def test_each_threshold_is_told_once_a_window() -> None:
    crossings = Crossings()

    def reached(used: int, resets_at: int = 1) -> Decimal | None:
        return crossings.look(AT, standing(resets_at), used * NANO)

    assert [reached(each) for each in (10, 49, 50, 60, 79, 90, 95, 100, 120)] == [
        None,
        None,
        Decimal("0.5"),
        None,
        None,
        Decimal("0.8"),
        None,
        1,
        None,
    ]
    assert [reached(each, 2) for each in (90, 95)] == [Decimal("0.8"), None]


def test_what_refuses_has_reached_all_of_it() -> None:
    crossings = Crossings()
    assert crossings.look(AT, standing(), 97 * NANO, refused=True) == 1
    assert crossings.look(AT, standing(), 97 * NANO, refused=True) is None
    assert crossings.look(AT, standing(limit=0), 0, refused=False) is None


def test_counters_are_not_remembered_for_ever() -> None:
    crossings = Crossings(remembered=10)
    for number in range(30):
        each = Standing(Counter("acme", "b", str(number), window("day")), NANO, 0, 0, resets_at=1)
        assert crossings.look(AT, each, NANO) == 1
    assert len(crossings._told) == 10


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"webhook": "http://h.example.com"}, "needs a `secret`"),
        ({"webhook": "http://h.example.com", "secret": "short"}, "needs a `secret`"),
        ({"webhook": "ftp://h.example.com", "secret": SECRET}, "must be an address"),
        ({"webhook": "http://u:p@h.example.com", "secret": SECRET}, "must be an address"),
        ({"at": []}, "at least 1"),
        ({"at": ["x"]}, "a share such as"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Thresholds.model_validate(said)


class Hook:
    """A webhook: what it got, and the statuses that it answers with."""

    def __init__(self, *statuses: int | OSError) -> None:
        self.got: list[tuple[str, Mapping[str, str], bytes]] = []
        self._statuses = list(statuses)

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        self.got.append((url, headers, body))
        status = self._statuses.pop(0) if self._statuses else 200
        if isinstance(status, OSError):
            raise status
        return status


async def test_a_call_that_crosses_one_is_noted_and_one_signed_request_is_sent() -> None:
    hook = Hook()
    rule = Budget.model_validate({"name": "b", "limit": 100, "window": "day", "thresholds": AT.model_dump()})
    gate = Gate(rule, script=[{"usage": {"input": 0, "output": 30}}], webhooks=Webhooks(hook))
    told = [[note["threshold"] for note in notes(await gate.ask(max_tokens=30), "budget.threshold")] for _ in range(3)]
    assert told == [[], [0.5], [0.8]]
    await until(lambda: len(hook.got) == 2)
    url, headers, body = hook.got[0]
    assert url == "http://hooks.example.com/x"
    event = json.loads(body)
    assert event["event"] == "budget.threshold"
    assert event["organisation"] == "acme"
    assert (event["rule"], event["scope"], event["used"], event["threshold"], event["limit"]) == ("b", "team:search", 60, 0.5, 100)
    seconds = headers[SIGNATURE].partition(",")[0].removeprefix("t=")
    wanted = hmac.new(SECRET.encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers[SIGNATURE] == f"t={seconds},v1={wanted}" == signature(SECRET, int(seconds), body)


async def test_what_is_not_taken_is_tried_again_and_then_dropped() -> None:
    hook = Hook(500, OSError("gone"), 204, 500, 500, 500)
    webhooks = Webhooks(hook, pause=0.001)
    webhooks.tell(AT, {"n": 1})
    webhooks.tell(AT, {"n": 2})
    await until(lambda: len(hook.got) == 6)
    await webhooks.aclose()
    assert webhooks.dropped == 1


async def test_few_wait_and_nobody_waits_for_them() -> None:
    never = asyncio.Event()

    async def hangs(*_: Any) -> int:
        await never.wait()
        return 200

    webhooks = Webhooks(hangs, waiting=3)
    for number in range(5):
        webhooks.tell(AT, {"n": number})
    assert webhooks.dropped == 2
    await webhooks.aclose(0.01)
    assert webhooks.dropped == 5


async def test_nobody_is_told_who_does_not_want_to_be() -> None:
    hook = Hook()
    webhooks = Webhooks(hook)
    webhooks.tell(Thresholds(), {"n": 1})
    await webhooks.aclose()
    assert hook.got == []
    assert await webhooks.test(AT, {"n": 1}) == "200"
    assert await Webhooks(Hook(OSError("gone"))).test(AT, {}) == "gone"
