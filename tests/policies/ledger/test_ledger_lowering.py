"""Claims that may be lowered: as few steps are left out as make all of them fit, in one step of the ledger, in memory and on a server."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spangate.policies.ledger.ledger import MOST, NANO, Claim
from spangate.policies.windows import InFlight

from ledgers import Backend, OnServer, counter, figures, fresh, refusers, reserved, settled
from valkey_server import Valkey

a_case = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def lowered(name: str, amount: int, limit: int, step: int, **more: int) -> Claim:
    """In billionths."""
    return Claim(counter(name), amount, limit, more.get("grace", 0), "lower", step)


async def test_as_few_steps_as_make_it_fit_are_left_out(backend: Backend) -> None:
    name, other, flying = fresh(), fresh(), fresh()
    async with backend.ledger() as ledger:
        first = ledger.hold(fresh())
        assert (await first.reserve([lowered(name, 90 * NANO, 100 * NANO, NANO)], 80)).left_out == 0
        hold = ledger.hold(fresh())
        claims = [
            lowered(name, 50 * NANO, 100 * NANO, NANO),
            Claim(counter(other), 50 * NANO, 1000 * NANO, step=2 * NANO),
            Claim(counter(flying, when=InFlight()), NANO, NANO),
        ]
        answer = await hold.reserve(claims, 45)
        assert (answer.admitted, answer.left_out) == (True, 40)
        assert [each.reserved for each in answer.standings] == [100 * NANO, 0, NANO]
        assert sorted(each.amount for each in hold.held) == [0, 10 * NANO], "never below nothing"
        hold.settle({})
        first.settle({name: 90 * NANO})
        await settled(ledger)
        assert await figures(ledger, claims[0]) == (100, 0)


@pytest.mark.parametrize("spare", [0, 39])
async def test_where_too_few_can_be_spared_it_is_refused_as_it_was_asked(spare: int, backend: Backend) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        await reserved(ledger, Claim(counter(name), 90 * NANO, 100 * NANO))
        hold = ledger.hold(fresh())
        answer = await hold.reserve([lowered(name, 50 * NANO, 100 * NANO, NANO)], spare)
        assert refusers(answer) == [name]
        assert (answer.left_out, answer.refused[0].reserved) == (0, 90 * NANO)
        assert (await hold.reserve([lowered(name, 50 * NANO, 100 * NANO, NANO)], 40)).left_out == 40, (
            "a hold that was refused may ask again"
        )


async def test_a_limit_that_is_full_is_not_made_to_fit(backend: Backend) -> None:
    name, limit = fresh(), fresh()
    async with backend.ledger() as ledger:
        claims = [lowered(name, 50 * NANO, 100 * NANO, NANO), Claim(counter(limit), 50 * NANO, 20 * NANO, step=NANO)]
        answer = await ledger.hold(fresh()).reserve(claims, 45)
        assert refusers(answer) == [limit]
        tight = [lowered(name, 150 * NANO, 100 * NANO, NANO), Claim(counter(limit), 50 * NANO, 20 * NANO, step=NANO)]
        answer = await ledger.hold(fresh()).reserve(tight, 100)
        assert answer.admitted, "since the answer becomes shorter all the same"
        assert answer.left_out == 50


async def test_who_refuses_is_who_would_though_others_are_lowered(backend: Backend) -> None:
    """A budget that could be met with a shorter answer isn't what keeps a call out."""
    name, full = fresh(), fresh()
    async with backend.ledger() as ledger:
        await reserved(ledger, Claim(counter(name), 10 * NANO, 1000 * NANO), Claim(counter(full), NANO, NANO))
        hold = ledger.hold(fresh())
        answer = await hold.reserve([lowered(name, 995 * NANO, 1000 * NANO, NANO), Claim(counter(full), NANO, NANO)], 900)
        assert refusers(answer) == [full]
        assert answer.left_out == 0
        assert [each.reserved for each in answer.standings] == [10 * NANO, NANO]


async def test_a_limit_of_nothing_admits_nothing(backend: Backend) -> None:
    async with backend.ledger() as ledger:
        assert not (await ledger.hold(fresh()).reserve([lowered(fresh(), 10, 0, 1)], 10)).admitted


amounts = st.one_of(st.integers(0, 10**13), st.integers(0, MOST // 2))
cases = st.lists(
    st.tuples(amounts, st.integers(1, MOST // 2), st.integers(0, 10**16), st.sampled_from([0, 5, 10**10])), min_size=1, max_size=4
)


def by_hand(rows: Sequence[tuple[int, int, int, int]], spare: int) -> int | None:
    """The fewest steps; None: they can't be spared. Of (used, limit, step, grace), each asked with 16 steps more than may be spared."""
    left_out = 0
    for used, limit, step, grace in rows:
        excess = used + step * (spare + 16) - limit - grace
        if excess > 0:
            left_out = max(left_out, -(-excess // step) if step else spare + 1)
    return left_out if left_out <= spare else None


@a_case
@given(cases, st.one_of(st.integers(0, 1000), st.integers(0, 2**31)))
async def test_the_ledger_leaves_out_what_is_worked_out_by_hand(
    backend: Backend, rows: list[tuple[int, int, int, int]], spare: int
) -> None:
    run = fresh()
    rows = [(used, limit, min(step, (MOST // 2) // (spare + 16)), grace) for used, limit, step, grace in rows]
    async with backend.ledger() as ledger:
        before = ledger.hold(fresh())
        await before.reserve([Claim(counter(f"{number}-{run}"), row[0], MOST) for number, row in enumerate(rows)])
        claims = [
            lowered(f"{number}-{run}", step * (spare + 16), limit, step, grace=grace) for number, (_, limit, step, grace) in enumerate(rows)
        ]
        hold = ledger.hold(fresh())
        answer = await hold.reserve(claims, spare)
        wanted = by_hand(rows, spare)
        assert answer.admitted is (wanted is not None)
        if wanted is not None:
            assert answer.left_out == wanted
            assert [each.reserved for each in answer.standings] == [used + step * (spare + 16 - wanted) for used, _, step, _ in rows]
        hold.release()
        before.release()
        await settled(ledger)


async def test_a_reservation_that_is_sent_twice_says_twice_what_was_left_out(shared_valkey: Valkey) -> None:
    asked = lowered(fresh(), 150 * NANO, 100 * NANO, NANO)
    async with OnServer(shared_valkey).ledger() as ledger:
        id = fresh()
        for _ in range(2):
            reply = await ledger.ask("acme", "reserve", (ledger.instance, 5000, id, 1, 120), [asked])
            assert (reply.held, reply.left_out) == (True, 50)
            assert await figures(ledger, asked) == (0, 100)
