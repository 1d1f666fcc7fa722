"""What a ledger promises, wherever it is kept: every test here is passed by each of them."""

from __future__ import annotations

import asyncio
from datetime import datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spangate.policies.ledger.ledger import MOST, NANO, Claim, Counter, StateUnavailable, nano, nano_up, units
from spangate.policies.windows import SECOND, InFlight, window

from ledgers import MONTH, Backend, claim, counter, figures, fresh, names, refusers, reserved, settled, standing, used
from midday import MIDDAY

# ---- amounts


@given(st.decimals(0, 10**12, places=9))
def test_an_amount_is_what_it_was(value: Decimal) -> None:
    assert units(nano(value)) == value


@pytest.mark.parametrize("value", ["0.0000000001", "-1", "NaN", "Infinity", str(2**53 + 1), "1.00000000000000000000000001"])
def test_what_is_no_amount(value: str) -> None:
    with pytest.raises(ValueError, match="must"):
        nano(value)


def test_amounts_as_people_read_them() -> None:
    assert str(units(nano(5_000_000))) == "5000000"
    assert str(units(nano("0.000000001"))) == "1E-9"
    assert (nano("1.5"), nano(2), nano_up(Decimal("0.0000000001"))) == (1_500_000_000, 2 * NANO, 1)
    assert nano(2**53) == MOST


@pytest.mark.parametrize("scope", ["search/ci", "user:a|b{c}%", "", "é 漢"])
def test_a_counter_is_known_by_its_key(scope: str) -> None:
    named = Counter("acme", "standard.budget.usd.month.team", scope, window("month", "Europe/Rome"))
    assert Counter.of(named.key) == named
    assert not {"{", "}"} & set(named.key)


def test_the_error_leaks_nothing() -> None:
    error = StateUnavailable("redis://:secret@host")
    assert "secret" not in error.message
    assert (error.code, error.headers["retry-after"]) == ("state_unavailable", "1")


# ---- one reservation


async def test_what_is_held_is_settled_at_what_it_was(backend: Backend) -> None:
    month, rpm = claim(fresh(), 100, 1000, MONTH), claim(fresh(), 1, 600, "rolling 60s")
    async with backend.ledger() as ledger:
        hold = ledger.hold(fresh())
        answer = await hold.reserve([month, rpm])
        assert answer.admitted
        assert [(each.used, each.reserved) for each in answer.standings] == [(0, nano(100)), (0, nano(1))]
        assert answer.standings[0].remaining == nano(900)
        assert [(each.counter, each.amount) for each in hold.held] == [(month.counter, nano(100)), (rpm.counter, nano(1))]
        hold.settle({month.counter.name: nano("72.5")})
        await settled(ledger)
        assert (await standing(ledger, month)).used == nano("72.5")
        assert await figures(ledger, month) == (72, 0)
        assert await figures(ledger, rpm) == (1, 0)


async def test_all_or_none(backend: Backend) -> None:
    roomy, tight, full = claim(fresh(), 10, 1000), claim(fresh(), 10, 5), claim(fresh(), 10, 0, "rolling 60s")
    async with backend.ledger() as ledger:
        hold = ledger.hold(fresh())
        answer = await hold.reserve([roomy, tight, full])
        assert refusers(answer) == names(answer.standings)[1:]
        assert [(each.used, each.reserved) for each in answer.standings] == [(0, 0)] * 3
        assert not answer.admitted
        assert hold.held == ()
        assert [await figures(ledger, each) for each in (roomy, tight, full)] == [(0, 0)] * 3
        assert (await hold.reserve([roomy])).admitted, "it may ask again"
        hold.release()
        await settled(ledger)


@pytest.mark.parametrize(("limit", "amount", "fits"), [(100, 40, True), (100, 41, False), (0, 0, False), (60, 0, True), (0, 1, False)])
async def test_used_and_reserved_and_the_claim_are_within_the_limit(backend: Backend, limit: int, amount: int, fits: bool) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        await used(ledger, claim(name, 20, 1000))
        other = await reserved(ledger, claim(name, 40, 1000))
        hold = ledger.hold(fresh())
        assert (await hold.reserve([claim(name, amount, limit)])).admitted is fits
        assert await figures(ledger, claim(name, 0, limit)) == (20, 40 + (amount if fits else 0))
        other.release()
        hold.release()
        await settled(ledger)
        assert await figures(ledger, claim(name, 0, limit)) == (20, 0)


async def test_a_refusal_says_how_it_stands(backend: Backend) -> None:
    name, day = fresh(), f"day {MIDDAY}"
    async with backend.ledger() as ledger:
        await used(ledger, claim(name, 70, 100, day))
        other = await reserved(ledger, claim(name, 20, 100, day))
        [refused] = (await ledger.hold(fresh()).reserve([claim(name, 11, 100, day)])).refused
        assert (refused.limit, refused.used, refused.reserved) == (nano(100), nano(70), nano(20))
        assert refused.resets_at is not None
        assert datetime.fromtimestamp(refused.resets_at / SECOND, ZoneInfo(MIDDAY)).time() == time(0)
        assert refused.fits_after is not None
        assert 0 < refused.fits_after <= 86400
        other.release()
        await settled(ledger)


@pytest.mark.fault("BUD-03")
async def test_a_team_and_its_keys(backend: Backend) -> None:
    name = fresh()

    def both(key: str) -> list[Claim]:
        return [claim(f"team-{name}", 10, 100), claim(f"key-{name}", 10, 80, scope=key)]

    async with backend.ledger() as ledger:
        admitted = []
        for key in ["one"] * 10 + ["two"] * 4:
            hold = ledger.hold(fresh())
            answer = await hold.reserve(both(key))
            hold.settle({})
            await settled(ledger)
            admitted.append("".join(refusers(answer)).removesuffix(f"-{name}"))
        assert admitted == [""] * 8 + ["key"] * 2 + [""] * 2 + ["team"] * 2


@pytest.mark.fault("BUD-05")
async def test_a_limit_that_changes_is_obeyed_at_once(backend: Backend) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        await used(ledger, claim(name, 50, 50))
        for limit, fits in [(50, False), (51, True), (49, False), (100, True)]:
            hold = ledger.hold(fresh())
            assert (await hold.reserve([claim(name, 1, limit)])).admitted is fits
            hold.release()
            await settled(ledger)


@pytest.mark.fault("BUD-01")
async def test_of_parallel_calls_only_those_that_fit(backend: Backend) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        holds = [ledger.hold(fresh()) for _ in range(50)]
        answers = await asyncio.gather(*(hold.reserve([claim(name, 100, 1000), claim(f"b{name}", 100, 5000)]) for hold in holds))
        assert sum(answer.admitted for answer in answers) == 10
        for hold in holds:
            hold.settle({})
        await settled(ledger)
        assert await figures(ledger, claim(name, 0, 0)) == (1000, 0)
        assert await figures(ledger, claim(f"b{name}", 0, 0)) == (1000, 0)


# ---- once


@pytest.mark.fault("BUD-06")
@pytest.mark.parametrize("first", ["settle", "release"])
async def test_only_the_first_end_counts(backend: Backend, first: str) -> None:
    asked = claim(fresh(), 10, 100)
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, asked)
        ends: dict[str, Any] = {"settle": lambda: hold.settle({asked.counter.name: nano(7)}), "release": hold.release}
        for end in (first, "settle", "release", "settle"):
            ends[end]()
        await settled(ledger)
        hold.settle({asked.counter.name: nano(9)})
        await settled(ledger)
        assert await figures(ledger, asked) == (7 if first == "settle" else 0, 0)


async def test_a_hold_is_reserved_once(backend: Backend) -> None:
    asked = claim(fresh(), 10, 100)
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, asked)
        with pytest.raises(ValueError, match="already"):
            await hold.reserve([asked])
        hold.release()
        with pytest.raises(ValueError, match="already"):
            await hold.reserve([asked])
        with pytest.raises(ValueError, match="isn't held"):
            await hold.extend([asked])
        await settled(ledger)


@pytest.mark.parametrize(
    "others",
    [[claim("a", 1, 1, home="globex")], [claim("month", 1, 1, scope="ops")], [claim("month", 1, 1, "day")]],
    ids=["home", "scope", "window"],
)
async def test_a_hold_has_one_home_and_one_counter_of_a_name(backend: Backend, others: list[Claim]) -> None:
    asked = claim("month", 1, 1000)
    async with backend.ledger() as ledger:
        with pytest.raises(ValueError, match=r"one home|two counters"):
            await ledger.hold(fresh()).reserve([asked, *others])
        for full in ("refuse", "skip"):
            too_much = replace(asked, amount=2 * asked.limit, full=full)
            with pytest.raises(ValueError, match=r"one home|two counters"):
                await ledger.hold(fresh()).reserve([too_much, *others])
        hold = await reserved(ledger, asked)
        with pytest.raises(ValueError, match=r"one home|two counters"):
            await hold.extend(others)
        hold.release()
        await settled(ledger)


async def test_releasing_what_was_never_held(backend: Backend) -> None:
    async with backend.ledger() as ledger:
        hold = ledger.hold(fresh())
        hold.release()
        with pytest.raises(ValueError, match="already"):
            await hold.reserve([claim("month", 1, 1)])
        await settled(ledger)


# ---- more


async def test_a_hold_grows_slice_by_slice(backend: Backend) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, claim(name, 10, 25))
        assert (await hold.extend([claim(name, 10, 25)])).admitted
        answer = await hold.extend([claim(name, 10, 25)])
        assert refusers(answer) == [name]
        assert (answer.refused[0].used, answer.refused[0].reserved) == (0, nano(20))
        assert [each.amount for each in hold.held] == [nano(20)]
        hold.settle({})
        await settled(ledger)
        assert await figures(ledger, claim(name, 0, 25)) == (20, 0)


async def test_a_hold_takes_other_counters_on_too(backend: Backend) -> None:
    first, second, third = claim(fresh(), 10, 100), claim(fresh(), 10, 100), claim(fresh(), 10, 5)
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, first)
        assert (await hold.extend([second])).admitted
        assert refusers(await hold.extend([first, third])) == [third.counter.name]
        assert [(each.counter, each.amount) for each in hold.held] == [(first.counter, nano(10)), (second.counter, nano(10))]
        hold.settle({second.counter.name: nano(3)})
        await settled(ledger)
        assert [await figures(ledger, each) for each in (first, second, third)] == [(10, 0), (3, 0), (0, 0)]


async def test_more_may_be_used_than_was_held(backend: Backend) -> None:
    asked = claim(fresh(), 10, 20)
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, asked)
        hold.settle({asked.counter.name: nano(35)})
        await settled(ledger)
        assert await figures(ledger, asked) == (35, 0)
        assert refusers(await ledger.hold(fresh()).reserve([claim(asked.counter.name, 0, 20)])) == [asked.counter.name]


async def test_a_claim_may_hold_nothing_and_be_settled_at_something(backend: Backend) -> None:
    asked = claim(fresh(), 0, 20)
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, asked)
        hold.settle({asked.counter.name: nano(5)})
        await settled(ledger)
        assert await figures(ledger, asked) == (5, 0)


# ---- rules that don't refuse at the limit


async def test_grace_is_above_the_limit(backend: Backend) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        seen = []
        for _ in range(4):
            hold = ledger.hold(fresh())
            answer = await hold.reserve([claim(name, 50, 100, grace=10 + 40)])
            seen.append((answer.admitted, answer.standings[0].over))
            hold.settle({})
            await settled(ledger)
        assert seen == [(True, False), (True, False), (True, True), (False, True)]
        assert refusers(await ledger.hold(fresh()).reserve([claim(name, 0, 0, grace=1000)])) == [name], "0 admits nothing"


async def test_a_rule_that_only_warns_counts_on(backend: Backend) -> None:
    asked, other = claim(fresh(), 60, 100, full="count"), claim(fresh(), 60, 1000)
    async with backend.ledger() as ledger:
        for over in (False, True, True):
            hold = ledger.hold(fresh())
            answer = await hold.reserve([asked, other])
            assert answer.admitted
            assert answer.standings[0].over is over
            hold.settle({})
            await settled(ledger)
        assert await figures(ledger, asked) == (180, 0)


async def test_a_rule_in_shadow_counts_what_it_would_have_admitted(backend: Backend) -> None:
    asked, other = claim(fresh(), 60, 100, full="skip"), claim(fresh(), 60, 1000)
    async with backend.ledger() as ledger:
        for over in (False, True, True):
            hold = ledger.hold(fresh())
            answer = await hold.reserve([asked, other])
            assert answer.admitted
            assert answer.standings[0].over is over
            hold.settle({asked.counter.name: nano(55), other.counter.name: nano(55)})
            await settled(ledger)
        assert await figures(ledger, asked) == (55, 0)
        assert await figures(ledger, other) == (165, 0)


async def test_a_hold_whose_claims_were_all_skipped_is_a_hold(backend: Backend) -> None:
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, claim(fresh(), 60, 10, full="skip"))
        assert hold.held == ()
        assert (await hold.extend([claim(fresh(), 1, 1)])).admitted
        hold.settle({})
        await settled(ledger)


# ---- calls in flight


@pytest.mark.fault("RL-02")
async def test_nothing_stays_of_what_was_in_flight(backend: Backend) -> None:
    asked = claim(fresh(), 1, 2, InFlight())
    async with backend.ledger() as ledger:
        for end in ("settle", "release") * 5:
            hold = await reserved(ledger, asked)
            other = await reserved(ledger, asked)
            answer = await ledger.hold(fresh()).reserve([asked])
            assert refusers(answer) == [asked.counter.name]
            assert (answer.refused[0].fits_after, answer.refused[0].resets_at) == (None, None)
            assert hold.held == (), "a crash leaves nothing of it"
            hold.settle({asked.counter.name: nano(1)}) if end == "settle" else hold.release()
            other.settle({})
            await settled(ledger)
            assert await figures(ledger, asked) == (0, 0)


# ---- time


async def test_a_rolling_window_forgets_slot_by_slot(backend: Backend) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        await used(ledger, claim(name, 60, 100, "rolling 1s"))
        await backend.later(0.5)
        await used(ledger, claim(name, 40, 100, "rolling 1s"))
        hold = ledger.hold(fresh())
        [refused] = (await hold.reserve([claim(name, 50, 100, "rolling 1s")])).refused
        assert refused.fits_after is not None
        assert 0.2 < refused.fits_after <= 0.52
        await backend.later(refused.fits_after)
        assert (await hold.reserve([claim(name, 50, 100, "rolling 1s")])).admitted
        hold.settle({})
        await settled(ledger)
        assert (await figures(ledger, claim(name, 0, 100, "rolling 1s")))[1] == 0
        await backend.later(1.1)
        assert await figures(ledger, claim(name, 0, 100, "rolling 1s")) == (0, 0)


async def test_a_rolling_window_holds_for_its_whole_length(backend: Backend) -> None:
    """Wherever in a slot it was admitted, and at most two slots longer."""
    asked = [claim(fresh(), 1, 10, "rolling 1s") for _ in range(25)]
    async with backend.ledger() as ledger:
        admitted = []
        for each in asked:
            admitted.append((await reserved(ledger, each)).held[0].at)
            await backend.later(0.0011)
        free: dict[int, int] = {}
        while len(free) < len(asked):
            for number, each in enumerate(await ledger.read(asked)):
                if not each.reserved and number not in free:
                    free[number] = each.resets_at or 0  # nothing is counted: it resets now
            await backend.later(0.001)
        for number, at in enumerate(admitted):
            assert NANO <= free[number] - at < 1.2 * NANO
        await settled(ledger)


async def test_what_never_fits_never_will(backend: Backend) -> None:
    async with backend.ledger() as ledger:
        for limit in (0, 10):
            [refused] = (await ledger.hold(fresh()).reserve([claim(fresh(), 11, limit, "rolling 60s")])).refused
            assert refused.fits_after is None


async def test_a_call_is_settled_in_the_slot_in_which_it_was_admitted(backend: Backend) -> None:
    asked = claim(fresh(), 60, 100, "rolling 1s")
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, asked)
        await backend.later(0.7)
        hold.settle({asked.counter.name: nano(50)})
        await settled(ledger)
        assert await figures(ledger, asked) == (50, 0)
        await backend.later(0.4)
        assert await figures(ledger, asked) == (0, 0)


async def test_what_is_settled_after_its_window_is_past(backend: Backend) -> None:
    asked = claim(fresh(), 60, 100, "rolling 1s")
    async with backend.ledger() as ledger:
        hold = await reserved(ledger, asked)
        await backend.later(1.1)
        assert await figures(ledger, asked) == (0, 0), "though it is still held"
        assert (await hold.extend([asked])).admitted
        hold.settle({asked.counter.name: nano(90)})
        await settled(ledger)
        assert await figures(ledger, asked) == (0, 0)


# ---- reading


async def test_every_counter_of_a_home(backend: Backend) -> None:
    home = fresh()
    async with backend.ledger() as ledger:
        await used(ledger, claim("month", 10, 100, MONTH, home=home))
        hold = await reserved(
            ledger, claim("rpm", 1, 600, "rolling 60s", home=home, scope="ci"), claim("calls", 1, 5, InFlight(), home=home)
        )
        await used(ledger, claim("month", 10, 100, "month", home=fresh()))
        found = {each.counter.name: (each.counter, each.limit, each.used, each.reserved) for each in await ledger.every(home)}
        assert found == {
            "month": (counter("month", when=MONTH, home=home), nano(100), nano(10), 0),
            "rpm": (counter("rpm", "ci", "rolling 60s", home=home), nano(600), 0, nano(1)),
            "calls": (counter("calls", when=InFlight(), home=home), nano(5), 0, nano(1)),
        }
        assert len(await ledger.every(home, most=2)) == 2
        hold.release()
        await settled(ledger)


async def test_reading_reserves_nothing_and_says_whether_it_would_fit(backend: Backend) -> None:
    asked = claim(fresh(), 60, 100, "rolling 60s")
    async with backend.ledger() as ledger:
        assert (await standing(ledger, asked)).over is False
        await used(ledger, asked)
        found = await standing(ledger, asked)
        assert (found.over, found.used, found.reserved) == (True, nano(60), 0)
        assert found.fits_after is not None
        assert await ledger.read([]) == ()
