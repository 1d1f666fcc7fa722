"""policies/turns.py: in order, with patience, without a trace when somebody leaves; and never more kept than there is room for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from spangate.call.clock import SYSTEM
from spangate.policies.gauges import LONGEST, STEP, Amount
from spangate.policies.turns import (
    LONGEST_LINE,
    LONGEST_NAME,
    MOST_CREDENTIALS,
    MOST_GAUGES,
    ON_ITS_WAY,
    Heard,
    Kept,
    Line,
    Lines,
    Turn,
    headers_of,
)

from ledgers import Hands

ONE = Amount(1)
PATIENCE = 5.0


def requests(remaining: int, reset: str = "30s", limit: int = 10) -> Mapping[str, str]:
    return {
        "X-RateLimit-Limit-Requests": str(limit),
        "x-ratelimit-remaining-requests": str(remaining),
        "x-ratelimit-reset-requests": reset,
    }


def tell(lines: Lines, fields: Mapping[str, str], *, status: int = 200, model: str = "m", turn: Turn | None = None) -> Line | None:
    line = lines.of(model)
    lines.heard(model, status, headers_of(fields), turn or (Turn(line.sent, 0.0) if line else None))
    return lines.of(model)


def told(fields: Mapping[str, str], *, status: int = 200, hands: Hands | None = None) -> tuple[Lines, Line]:
    lines = Lines(hands.clock if hands else SYSTEM)
    line = tell(lines, fields, status=status)
    assert line is not None
    return lines, line


class Caller:
    """Somebody who wants a turn."""

    def __init__(self, line: Line, patience: float = PATIENCE, amount: Amount = ONE) -> None:
        self.task: asyncio.Task[Turn | Kept] = asyncio.create_task(line.turn(amount, patience))

    async def turn(self) -> Turn:
        turn = await self.task
        assert isinstance(turn, Turn)
        return turn

    async def kept(self) -> float:
        """For how many seconds, if it was."""
        kept = await self.task
        assert isinstance(kept, Kept)
        return kept.seconds

    async def leaves(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def crowd(line: Line, count: int, patience: float = PATIENCE) -> list[Caller]:
    callers = [Caller(line, patience) for _ in range(count)]
    await asyncio.sleep(0)
    return callers


def taken(line: Line, count: int) -> int:
    """How many of so many calls get a turn at once."""
    return sum(line.take(ONE) is not None for _ in range(count))


def done(callers: list[Caller]) -> list[bool]:
    return [caller.task.done() for caller in callers]


async def test_who_fits_goes_at_once() -> None:
    _, line = told(requests(2))
    assert taken(line, 3) == 2
    assert line.sent == Amount(2)


async def test_first_come_first_served() -> None:
    lines, line = told(requests(0), hands=Hands())
    for caller in await crowd(line, 3):
        assert await caller.kept() == 30.0  # which is more than anybody waits
    tell(lines, requests(0, "4s"))
    callers = await crowd(line, 4)
    assert line.waiting == 4
    tell(lines, requests(2, "4s"))
    await asyncio.sleep(0)
    assert done(callers) == [True, True, False, False]
    assert not line.take(ONE)  # nobody overtakes
    for caller, remaining in zip(callers[:2], (9, 8), strict=True):
        tell(lines, requests(remaining, "4s"), turn=await caller.turn())
    assert [(await caller.turn()).sent.requests for caller in callers] == [1, 2, 3, 4]
    assert (line.waiting, line.sent) == (0, Amount(4))


async def test_a_window_that_ends_lets_the_line_go() -> None:
    hands = Hands()
    _, line = told(requests(0, "50ms", limit=2), hands=hands)
    callers = await crowd(line, 3)
    assert done(callers) == [False] * 3
    hands.pass_(0.05)  # it looks at the clock again when so much has passed by the loop's own
    assert [(await caller.turn()).sent for caller in callers[:2]] == [Amount(1), Amount(2)]
    assert done(callers) == [True, True, False]
    hands.pass_(0.05)
    assert (await callers[2].turn()).sent == Amount(3)


@pytest.mark.fault("RL-02")
async def test_who_leaves_gives_the_place_back() -> None:
    lines, line = told(requests(0, "4s"))
    callers = await crowd(line, 3)
    await callers[0].leaves()
    assert line.waiting == 2
    tell(lines, requests(1, "4s"))
    await callers[1].leaves()  # whose turn it is already
    assert (await callers[2].turn()).sent == Amount(1)
    assert (line.waiting, line.sent) == (0, Amount(1))


async def test_who_cannot_be_served_in_time_is_told_at_once() -> None:
    lines, line = told(requests(0, "4s", limit=1), hands=Hands())
    kept = await line.turn(ONE, 3.0)
    assert isinstance(kept, Kept)
    assert kept.seconds == 4.0
    callers = await crowd(line, 2)
    assert done(callers) == [False, True]  # the second one's window is the next
    tell(lines, requests(0, "30s", limit=1))
    assert await callers[0].kept() == 30.0


async def test_patience_ends() -> None:
    """Where a turn comes later than it was told."""
    _, line = told(requests(0, "30ms", limit=1), hands=Hands())  # a clock that never gets there
    callers = await crowd(line, 2, patience=0.08)
    assert done(callers) == [False] * 2
    assert [await caller.kept() for caller in callers] == [pytest.approx(0.03)] * 2
    assert (line.waiting, line.sent) == (0, Amount(0))


async def test_a_line_has_an_end() -> None:
    _, line = told(requests(0, "4s", limit=10_000))
    callers = await crowd(line, LONGEST_LINE + 1)
    assert done(callers) == [False] * LONGEST_LINE + [True]
    for caller in callers:
        await caller.leaves()
    assert (line.waiting, line.sent) == (0, Amount(0))


async def test_tokens_are_told_apart() -> None:
    fields = {"anthropic-ratelimit-input-tokens-remaining": "100", "anthropic-ratelimit-output-tokens-remaining": "50"}
    _, line = told(fields)
    assert line.by_tokens
    assert [bool(line.take(Amount(1, 60, 20))) for _ in range(2)] == [True, False]
    kept = line.kept(Amount(1, 60, 20))
    assert kept is not None
    assert kept.gauge.unit == "input_tokens"


# ---- refusals


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_pause_that_was_asked_for_is_kept(status: int) -> None:
    hands = Hands()
    lines, line = told({"Retry-After": "20"}, status=status, hands=hands)
    assert not line.take(ONE)
    lines.heard("m", 200, (), None)  # the answer to a call that went before
    tell(lines, {"retry-after": "5"}, status=status)  # a shorter one changes nothing
    hands.pass_(19)
    assert not line.take(ONE)
    hands.pass_(1)
    tried = line.take(ONE)
    assert tried
    assert not line.take(ONE)
    tell(lines, {}, status=400, turn=tried)  # which is an answer
    assert taken(line, 9) == 9


async def test_a_pause_that_was_not_enough() -> None:
    hands = Hands()
    lines, line = told({"retry-after": "2"}, status=429, hands=hands)
    hands.pass_(2)
    assert line.take(ONE)
    tell(lines, {"retry-after": "0.05"}, status=429)
    assert not line.take(ONE)
    hands.pass_(0.05)
    assert taken(line, 2) == 1
    hands.pass_(STEP)
    assert taken(line, 3) == 2


async def test_a_refusal_without_a_pause_is_no_buckets() -> None:
    hands = Hands()
    lines, line = told(requests(4, "36s"), hands=hands)
    tell(lines, requests(0, "60s"))
    for fills, fields in ((True, {"retry-after": "0.01"}), (False, {})):
        [gauge, *_] = line.gauges.values()
        tell(lines, fields, status=429)
        assert gauge.fills is fills


@pytest.mark.parametrize("pause", ["99999999", "1e9", "-5", "NaN", "Fri, 31 Dec 9999 23:59:59 GMT", "1735689600000000"])
async def test_no_pause_is_kept_for_ever(pause: str) -> None:
    hands = Hands()
    lines = Lines(hands.clock)
    line = tell(lines, {"retry-after": pause, **requests(0, pause)}, status=429)
    hands.pass_(LONGEST)
    assert line is None or line.take(ONE)


async def test_what_is_told_no_more_is_forgotten() -> None:
    """A limit that was told once, and never again."""
    hands = Hands()
    lines, line = told(requests(0, "30s", limit=1), hands=hands)
    hands.pass_(30)
    assert taken(line, 2) == 1
    tell(lines, {})
    assert line.gauges == {}
    assert line.take(ONE)


# ---- what is kept


def test_who_tells_nothing_is_not_known() -> None:
    lines = Lines()
    for status, fields in ((200, {"content-type": "x"}), (429, {}), (200, {"retry-after": "9"}), (404, requests(0)), (500, requests(0))):
        assert tell(lines, fields, status=status) is None
    assert tell(lines, requests(0), model="m" * (LONGEST_NAME + 1)) is None
    assert lines.models == ()


def test_so_many_models_are_known_and_no_more() -> None:
    lines = Lines(most=3)
    for model in ("a", "b", "c", "a", "d"):
        tell(lines, requests(5), model=model)
    assert lines.models == ("c", "a", "d")


async def test_a_model_that_somebody_waits_for_is_not_forgotten() -> None:
    lines = Lines(most=2)
    line = tell(lines, requests(0, "4s"), model="a")
    assert line is not None
    [caller] = await crowd(line, 1)
    for model in ("b", "c", "d"):
        tell(lines, requests(5), model=model)
    assert lines.models == ("a", "d")
    await caller.leaves()


def test_a_provider_that_makes_up_limits_is_kept_short() -> None:
    lines, line = told({"ratelimit": "a;r=1"})
    for number in range(50):
        tell(lines, {"ratelimit": f"x{number};r=1"})
    assert len(line.gauges) == MOST_GAUGES


def test_a_credential_is_known_by_one_text() -> None:
    heard = Heard()
    first = heard.of("one")
    assert heard.of("one") is first
    for number in range(MOST_CREDENTIALS):
        heard.of(f"{number}")
    assert heard.of("one") is not first


async def test_who_went_at_once_may_be_answered_in_any_order() -> None:
    """What is told to one of them may be from before the others were counted."""
    lines, line = told(requests(4, "30s"))
    turns = [line.take(ONE) for _ in range(4)]
    for number, remaining in ((3, 3), (0, 2), (2, 1), (1, 0)):
        tell(lines, requests(remaining, "30s"), turn=turns[number])
        assert not line.take(ONE)


async def test_a_call_that_went_alone_is_believed() -> None:
    hands = Hands()
    lines, line = told(requests(1, "30s"), hands=hands)
    first = line.take(ONE)
    assert not line.take(ONE)
    hands.pass_(ON_ITS_WAY + 1)  # the first is counted, even if nobody hears of it
    tell(lines, requests(5, "28s"))
    assert first
    assert taken(line, 9) == 5
