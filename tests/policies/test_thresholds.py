"""policies/thresholds.py: told once a window, signed, and never in a call's way."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pydantic import ValidationError

from spangate.call.errors import Refused
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, Counter, Standing, StateUnavailable
from spangate.policies.ledger.valkey import ValkeyLedger
from spangate.policies.thresholds import ASKING, SIGNATURE, Crossings, Thresholds, Webhooks, signature
from spangate.policies.windows import SECOND, window

from admitting import Gate, call, notes
from gateway import until
from ledgers import Hands
from midday import MIDDAY
from valkey_server import Valkey, valkey

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


def test_of_a_rolling_window_each_is_told_again_when_its_length_has_passed() -> None:
    """Its end moves with every call, and is none to go by."""
    hands = Hands()
    crossings = Crossings(clock=hands.clock)
    counter, found = Counter("acme", "b", "search", window("rolling 60s")), []
    for _ in range(70):
        found.append(crossings.look(AT, Standing(counter, 100 * NANO, 0, 0, resets_at=hands.wall + 60 * SECOND), 60 * NANO))
        hands.pass_(1)
    assert [number for number, level in enumerate(found) if level is not None] == [0, 60]


def test_what_was_told_before_a_restart_is_not_told_again() -> None:
    crossings = Crossings()
    crossings.restore(standing().counter, 1, Decimal("0.8"))
    assert crossings.look(AT, standing(), 90 * NANO) is None
    assert crossings.look(AT, standing(), 100 * NANO) == 1
    assert crossings.look(AT, standing(resets_at=2), 60 * NANO) == Decimal("0.5")


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


@pytest.fixture
def server() -> Iterator[Valkey]:
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as started:
        yield started


async def test_of_several_gateways_one_tells(server: Valkey) -> None:
    """Each threshold once, also where several cross it, in whatever order they hear of it; and by a note of one call."""
    hook, noted = Hook(), []
    rule = Budget.model_validate({"name": "b", "limit": 100, "window": "day", "timezone": MIDDAY, "thresholds": AT.model_dump()})
    ledgers = [ValkeyLedger(server.url) for _ in range(3)]
    script = [{"usage": {"input": 0, "output": 10}}]
    gates = [Gate(rule, script=script, ledger=each, webhooks=Webhooks(hook)) for each in ledgers]
    for number in range(30):
        gate = gates[number % 3]
        asked = call(max_tokens=10)
        with suppress(Refused):
            await gate.hear(asked)
        noted += [note["threshold"] for note in notes(asked, "budget.threshold")]
        await gate.ledger.drain(5)
        await gate.books.crossings.known()
    for ledger in ledgers:
        await ledger.close()
    assert [json.loads(body)["threshold"] for _, _, body in hook.got] == noted == [0.5, 0.8, 1]


class Asked:
    """Who knows of all gateways what was told: what it says to each question."""

    def __init__(self, *answers: bool | StateUnavailable) -> None:
        self.answers = list(answers)
        self.questions: list[tuple[Counter, Decimal, int | None]] = []

    async def __call__(self, counter: Counter, level: Decimal, until: int | None) -> bool:
        self.questions.append((counter, level, until))
        answer = self.answers.pop(0)
        if isinstance(answer, StateUnavailable):
            raise answer
        return answer


async def test_where_nobody_can_be_asked_it_is_told() -> None:
    asked = Asked(False, StateUnavailable("away"), True)
    crossings, told = Crossings(asked), []
    counter = standing().counter
    for level in AT.at:
        crossings.look(AT, standing(7), int(100 * level) * NANO)
        crossings.tell(counter, level, {"threshold": level}, lambda level=level: told.append(level))  # type: ignore[misc]
    await crossings.known()
    assert told == [Decimal("0.8"), 1]
    assert crossings.notes(counter) == [{"threshold": level} for level in told]
    assert crossings.notes(counter) == ()
    assert asked.questions == [(counter, level, 7) for level in AT.at]


async def test_many_questions_wait_for_nobody() -> None:
    never = asyncio.Event()

    async def hangs(*_: Any) -> bool:
        return await never.wait()

    crossings, told = Crossings(hangs), []
    for number in range(ASKING + 5):
        crossings.tell(standing().counter, Decimal(1), {}, lambda number=number: told.append(number))  # type: ignore[misc]
    assert told == list(range(ASKING, ASKING + 5))
    never.set()
    await crossings.known()
    assert len(told) == ASKING + 5


async def test_what_no_call_came_for_stands_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    crossings = Crossings()
    crossings.tell(standing().counter, Decimal(1), {"name": "b", "scope": "team:search", "threshold": 1.0}, lambda: None)
    await crossings.aclose()
    assert [record.getMessage() for record in caplog.records] == ["the budget b of team:search reached 1.0 of its limit"]


def test_what_is_too_much_to_be_kept_for_calls_stands_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    crossings = Crossings(remembered=2)
    counters = [Counter("acme", "b", f"team-{number}", window("day")) for number in range(3)]
    for counter in counters:
        crossings.tell(counter, Decimal(1), {"name": "b", "scope": counter.scope, "threshold": 1.0}, lambda: None)
    assert [record.getMessage() for record in caplog.records] == ["the budget b of team-0 reached 1.0 of its limit"]
    assert [len(crossings.notes(counter)) for counter in counters] == [0, 1, 1]


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
