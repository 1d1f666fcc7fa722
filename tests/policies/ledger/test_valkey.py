"""The shared ledger: what only a server brings about. Whatever both ledgers promise is in test_ledger.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spangate.call.clock import Clock
from spangate.policies.ledger.ledger import NANO, Answer, Claim, StateUnavailable, nano
from spangate.policies.ledger.valkey import ValkeyLedger
from spangate.policies.windows import SECOND, Calendar, InFlight, Span

from house.source import ROOT
from ledgers import MONTH, NAMES, Tale, claim, counter, figures, fresh, refusers, reserved, settled, until, used
from valkey_server import Valkey, valkey

LEASE = 0.6


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """For a test that stops it, or changes its settings."""
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as server:
        yield server


@asynccontextmanager
async def gateway(server: Valkey, **options: Any) -> AsyncIterator[ValkeyLedger]:
    ledger = ValkeyLedger(server.url, **options)
    try:
        yield ledger
    finally:
        await ledger.close()


# ---- lost answers


async def test_a_hold_whose_answer_was_lost_is_given_back(own_valkey: Valkey) -> None:
    """The server takes the reservation up after it heard of the release, or before: nothing stays held."""
    asked = claim("month", 10, 100)
    async with gateway(own_valkey, timeout=0.1) as ledger:
        await used(ledger, asked)
        own_valkey.pause()
        holds = [ledger.hold(fresh()) for _ in range(3)]
        for hold in holds:
            with pytest.raises(StateUnavailable):
                await hold.reserve([asked])
            hold.release()
        own_valkey.resume()
        await settled(ledger)
        assert await figures(ledger, asked) == (10, 0)


async def test_a_reservation_that_comes_after_its_release_is_none(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 100)
    async with gateway(own_valkey) as ledger:
        first, late = ledger.hold("x"), ledger.hold("x")
        assert (await first.reserve([asked])).admitted
        first.release()
        await settled(ledger)
        with pytest.raises(StateUnavailable):
            await late.reserve([asked])
        assert await figures(ledger, asked) == (0, 0)


async def test_what_was_used_without_an_answer_is_counted_once_it_can_be(own_valkey: Valkey) -> None:
    asked = [claim("month", 10, 100, MONTH), claim("rpm", 1, 100, "rolling 60s"), claim("calls", 1, 5, InFlight())]
    async with gateway(own_valkey, timeout=0.1) as ledger:
        own_valkey.stop()
        hold = ledger.hold(fresh())
        with pytest.raises(StateUnavailable):
            await hold.reserve(asked)
        hold.settle({"month": nano(7)})
        assert await ledger.drain(0.05) == 1
        own_valkey.start()
        await settled(ledger)
        assert [await figures(ledger, each) for each in asked] == [(7, 0), (1, 0), (0, 0)]


async def test_a_reservation_that_is_sent_twice_is_one(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 100)
    async with gateway(own_valkey) as ledger:
        for seq, held in [(1, 10), (1, 10), (2, 20), (2, 20)]:
            reply = await ledger.ask("acme", "reserve", (ledger.instance, 5000, "x", seq, 0), [asked])
            assert reply.held
            assert reply.standings[0].reserved == nano(held)
            assert await figures(ledger, asked) == (0, held)


async def test_an_end_that_is_written_twice_counts_once(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 100)
    async with gateway(own_valkey) as ledger:
        hold = await reserved(ledger, asked)
        written: list[Any] = []
        send, ledger.settling._server.run_all = ledger.settling._server.run_all, lambda steps: twice(send, steps, written)  # type: ignore[method-assign]
        hold.settle({"month": nano(7)})
        await settled(ledger)
        assert len(written) == 1
        assert await figures(ledger, asked) == (7, 0)


async def twice(send: Any, steps: Any, written: list[Any]) -> Any:
    """Send it, lose the answer, send it again."""
    written.append(steps)
    await send(steps)
    return await send(steps)


async def test_a_cancellation_is_never_lost(own_valkey: Valkey) -> None:
    """Whoever leaves while the ledger is asked has left, at whichever step of the asking."""
    asked = claim("month", 1, 10**6)
    async with gateway(own_valkey) as ledger:
        await used(ledger, asked)
        ended = []
        for ticks in range(40):
            hold = ledger.hold(fresh())
            task = asyncio.ensure_future(hold.reserve([asked]))
            for _ in range(ticks % 20):
                await asyncio.sleep(0)
            left = task.cancel()
            [result] = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(result, asyncio.CancelledError if left else Answer)
            ended.append(left)
            hold.release()
        assert any(ended)
        await settled(ledger)
        assert await figures(ledger, asked) == (1, 0)


async def test_more_whose_answer_was_lost_is_settled_with_the_rest(own_valkey: Valkey) -> None:
    first, second = claim("month", 10, 100), claim("day", 10, 100)
    async with gateway(own_valkey, timeout=0.1) as ledger:
        hold = await reserved(ledger, first)
        own_valkey.pause()
        with pytest.raises(StateUnavailable):
            await hold.extend([first, second])
        own_valkey.resume()

        async def came_late() -> bool:
            try:
                return await figures(ledger, second) == (0, 10)
            except StateUnavailable:
                return False

        await until(came_late)
        hold.settle({"month": nano(7), "day": nano(3)})
        await settled(ledger)
        assert [await figures(ledger, each) for each in (first, second)] == [(7, 0), (3, 0)]


async def test_calls_that_are_cancelled_while_they_ask_confuse_no_other(own_valkey: Valkey) -> None:
    claims = [claim(f"n{number}", number, 10**6) for number in range(8)]
    async with gateway(own_valkey) as ledger:

        async def call(number: int) -> Answer:
            hold = ledger.hold(fresh())
            try:
                return await hold.reserve([claims[number]])
            finally:
                hold.release()

        for round_ in range(10):
            tasks = [asyncio.create_task(call(number % 8)) for number in range(64)]
            for _ in range(round_ % 4):
                await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            for number, answer in enumerate(answers):
                if isinstance(answer, Answer):
                    assert answer.standings[0].counter == claims[number % 8].counter
                else:
                    assert isinstance(answer, asyncio.CancelledError)
                    assert number % 3 == 0
        await settled(ledger)
        assert [await figures(ledger, each) for each in claims] == [(0, 0)] * 8


# ---- counters of another type


def spoil(server: Valkey, name: str) -> str:
    """Somebody writes a text in a counter's place: its key."""
    [key] = server.everything(f"*:c:{name}|*")
    server.say("SET", key, "theirs")
    return key


async def test_a_counter_of_another_type_is_told_of_and_heals(own_valkey: Valkey) -> None:
    asked, other = claim("spoilt", 1, 100, "rolling 60s"), claim("sound", 1, 100)
    async with gateway(own_valkey) as ledger:
        ledger.start()
        await used(ledger, asked)
        key = spoil(own_valkey, "spoilt")
        with pytest.raises(StateUnavailable):
            await ledger.hold(fresh()).reserve([asked, other])
        assert (ledger.problem, dict(ledger.foreign)) == ("", {key: "string"})
        await used(ledger, other)
        assert await figures(ledger, other) == (1, 0), "nothing of the failed one is held, and others go on"
        own_valkey.say("DEL", key)

        async def healed() -> bool:
            return not ledger.foreign

        await until(healed)
        await used(ledger, asked)
        assert await figures(ledger, asked) == (1, 0)


async def test_an_end_that_meets_a_counter_of_another_type_is_done_whole_later(own_valkey: Valkey) -> None:
    asked = [claim("sound", 10, 100), claim("calls", 1, 5, InFlight()), claim("spoilt", 10, 100)]
    async with gateway(own_valkey) as ledger:
        hold = await reserved(ledger, *asked)
        key = spoil(own_valkey, "spoilt")
        hold.settle({"sound": nano(7), "spoilt": nano(7)})
        assert await ledger.drain(0.3) == 1
        assert [await figures(ledger, each) for each in asked[:2]] == [(0, 10), (0, 1)], "not by halves"
        own_valkey.say("DEL", key)
        await settled(ledger)
        assert [await figures(ledger, each) for each in asked] == [(7, 0), (0, 0), (7, 0)]


async def test_a_silent_gateways_hold_on_a_counter_of_another_type_is_in_nobodys_way(own_valkey: Valkey) -> None:
    sound, spoilt = claim("sound", 10, 100), claim("spoilt", 10, 100)
    async with gateway(own_valkey) as other:
        async with gateway(own_valkey, lease=LEASE) as gone:
            await reserved(gone, sound, spoilt)
            key = spoil(own_valkey, "spoilt")
        async with gateway(own_valkey, lease=LEASE) as gone_later:
            await reserved(gone_later, sound)

        async def lapsed(expected: tuple[int, int]) -> bool:
            return await figures(other, sound) == expected

        await until(lambda: lapsed((10, 10)))
        assert own_valkey.say("DEL", key) == 1
        await until(lambda: lapsed((20, 0)))
        assert await figures(other, spoilt) == (10, 0)


# ---- a gateway that falls silent


async def test_holds_of_a_gateway_that_falls_silent_are_settled_at_what_was_held(own_valkey: Valkey) -> None:
    asked = [claim("month", 10, 100, MONTH), claim("rpm", 1, 100, "rolling 60s"), claim("calls", 1, 5, InFlight())]
    async with gateway(own_valkey) as other:
        async with gateway(own_valkey, lease=LEASE) as gone:
            await reserved(gone, *asked)
            await reserved(gone, claim("month", 20, 100, MONTH))
        assert [await figures(other, each) for each in asked] == [(0, 30), (0, 1), (0, 1)]

        async def lapsed() -> bool:
            return [await figures(other, each) for each in asked] == [(30, 0), (1, 0), (0, 0)]

        await until(lapsed, LEASE + 1)
        assert not [key for key in own_valkey.everything() if "holds" in key]
        assert own_valkey.say("ZRANGE", "spangate:{acme}:leases", 0, -1) == []


GATEWAY = """
import asyncio, sys
sys.path.insert(0, sys.argv[2])
from ledgers import claim, reserved
from spangate.policies.ledger.valkey import ValkeyLedger
from spangate.policies.windows import InFlight

async def main():
    ledger = ValkeyLedger(sys.argv[1], lease=0.6)
    for _ in range(3):
        await reserved(ledger, claim("month", 10, 100, sys.argv[3]), claim("calls", 1, 5, InFlight()))
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def killable(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", GATEWAY, url, str(ROOT / "tests"), MONTH], stdout=subprocess.PIPE, text=True)


async def test_a_gateway_that_is_killed(own_valkey: Valkey) -> None:
    month, calls = claim("month", 10, 100, MONTH), claim("calls", 1, 5, InFlight())
    process = killable(own_valkey.url)
    try:
        assert process.stdout is not None
        with process.stdout:
            assert await asyncio.to_thread(process.stdout.readline) == "held\n"
        async with gateway(own_valkey) as other:
            ends = time.monotonic() + 2 * LEASE
            while time.monotonic() < ends:  # it says that it is there
                assert [await figures(other, each) for each in (month, calls)] == [(0, 30), (0, 3)]
                await asyncio.sleep(0.05)
            process.kill()

            async def lapsed() -> bool:
                return [await figures(other, each) for each in (month, calls)] == [(30, 0), (0, 0)]

            await until(lapsed, LEASE + 1)
    finally:
        process.kill()
        process.wait(10)


deeds = st.tuples(
    st.integers(0, 1),  # by which gateway
    st.sampled_from(["reserve", "reserve", "extend", "settle", "release"]),
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60), min_size=1),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(deeds, max_size=25), st.fixed_dictionaries({name: st.integers(0, 200) for name in NAMES}))
async def test_whatever_a_gateway_did_before_it_was_gone(shared_valkey: Valkey, story: list[Any], limits: dict[str, int]) -> None:
    """Two gateways and a model of them; then one is gone, its holds are settled at what was held, and the other goes on."""
    tale = Tale(limits)
    async with gateway(shared_valkey) as other, gateway(shared_valkey) as gone:
        for by, step, number, wanted in story:
            await tale.goes_on((other, gone)[by], step, (by, number), wanted)
        shared_valkey.say("ZADD", "spangate:{acme}:leases", 1, gone.instance)
        for known in [known for known in tale.model.holds if known[0] == 1]:
            tale.model.ends(known, {})
        await tale.agrees(other)
        for (by, _), hold in tale.live.items():
            if by == 0:
                hold.release()
        await settled(other)
        assert [reserved for _, reserved in await tale.figures(other)] == [0] * len(NAMES)


async def test_a_gateway_with_many_holds_is_cleaned_up_after_bit_by_bit(own_valkey: Valkey) -> None:
    asked = claim("month", 1, 10_000)
    async with gateway(own_valkey) as other:
        async with gateway(own_valkey, lease=LEASE) as gone:
            await asyncio.gather(*(reserved(gone, asked) for _ in range(1000)))

        async def lapsed() -> bool:
            return (await figures(other, asked))[1] == 0

        await until(lapsed)
        assert await figures(other, asked) == (1000, 0)


async def test_a_heartbeat_keeps_what_is_held(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 100)
    async with gateway(own_valkey) as other, gateway(own_valkey, lease=LEASE) as ledger:
        hold = await reserved(ledger, asked)
        ends = time.monotonic() + 3 * LEASE
        while time.monotonic() < ends:
            assert await figures(other, asked) == (0, 10)
            await asyncio.sleep(0.02)
        hold.settle({})
        await settled(ledger)
        assert await figures(other, asked) == (10, 0)


@pytest.mark.parametrize("how", ["settle", "release", "extend"])
async def test_a_gateway_that_comes_back_puts_it_right(own_valkey: Valkey, how: str) -> None:
    asked = claim("month", 10, 100)
    flying = claim("calls", 1, 5, InFlight())
    async with gateway(own_valkey) as other, gateway(own_valkey, lease=LEASE) as ledger:
        hold = await reserved(ledger, asked, flying)
        own_valkey.say("ZADD", "spangate:{acme}:leases", 1, ledger.instance)  # as though it had been silent
        assert await figures(other, asked) == (10, 0)
        assert await figures(other, flying) == (0, 0)
        if how == "extend":
            assert (await hold.extend([asked])).admitted
            assert await figures(other, asked) == (0, 20)
            assert await figures(other, flying) == (0, 1)
        hold.release() if how == "release" else hold.settle({"month": nano(17)})
        await settled(ledger)
        assert await figures(other, asked) == (0 if how == "release" else 17, 0)
        assert await figures(other, flying) == (0, 0)


# ---- a server that forgets


@pytest.mark.parametrize("again", [False, True], ids=["once", "sent twice"])
async def test_what_is_settled_after_the_server_forgot_is_counted_once(own_valkey: Valkey, again: bool) -> None:
    asked = [claim("month", 10, 100, MONTH), claim("rpm", 1, 100, "rolling 60s"), claim("calls", 1, 5, InFlight())]
    async with gateway(own_valkey) as ledger:
        hold = await reserved(ledger, *asked)
        own_valkey.stop()
        own_valkey.start()
        if again:
            send, server = ledger.settling._server.run_all, ledger.settling._server
            server.run_all = lambda steps: twice(send, steps, [])  # type: ignore[method-assign]
        hold.settle({"month": nano(7)})
        await settled(ledger)
        assert [await figures(ledger, each) for each in asked] == [(7, 0), (1, 0), (0, 0)]


async def test_a_server_that_forgot_the_script_is_told_it(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 100)
    async with gateway(own_valkey) as ledger:
        for _ in range(2):
            hold = await reserved(ledger, asked)
            own_valkey.say("SCRIPT", "FLUSH")
            hold.settle({})
            await settled(ledger)
            own_valkey.say("SCRIPT", "FLUSH")
        assert await figures(ledger, asked) == (20, 0)


async def test_more_for_a_hold_that_the_server_forgot(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 100)
    async with gateway(own_valkey) as ledger:
        hold = await reserved(ledger, asked)
        own_valkey.say("FLUSHALL")
        assert (await hold.extend([asked])).admitted
        hold.settle({"month": nano(15)})
        await settled(ledger)
        assert await figures(ledger, asked) == (15, 0)


# ---- a server that can't


@pytest.mark.fault("RL-01")
@pytest.mark.parametrize("how", ["stopped", "silent", "a replica"])
async def test_a_server_that_is_away_is_said_so_and_heals_by_itself(own_valkey: Valkey, how: str) -> None:
    asked = claim("month", 10, 1000)
    async with gateway(own_valkey, timeout=0.1) as ledger:
        await used(ledger, asked)
        assert ledger.problem == ""
        breaks = {
            "stopped": own_valkey.stop,
            "silent": own_valkey.pause,
            "a replica": lambda: own_valkey.say("REPLICAOF", "127.0.0.1", "1"),
        }
        mends = {"stopped": own_valkey.start, "silent": own_valkey.resume, "a replica": lambda: own_valkey.say("REPLICAOF", "NO", "ONE")}
        breaks[how]()
        for number in range(6):
            hold, began = ledger.hold(fresh()), time.monotonic()
            with pytest.raises(StateUnavailable):
                await hold.reserve([asked])
            took = time.monotonic() - began
            assert took < (0.05 if number >= 4 else 1), "soon nobody waits for it"
            hold.release()
        assert ledger.problem
        mends[how]()

        async def well() -> bool:  # without anybody asking
            return ledger.problem == ""

        await until(well, 5)
        await settled(ledger)
        assert await figures(ledger, asked) == ((0 if how == "stopped" else 10), 0)
        assert (await ledger.hold(fresh()).reserve([asked])).admitted


@dataclass
class Unwilling:
    """A server that refuses, and the words that make it."""

    settings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    password: str | None = None
    url_password: str = ""


UNWILLING = {
    "no password": Unwilling(settings=("--requirepass", "swordfish")),
    "a wrong password": Unwilling(settings=("--requirepass", "swordfish"), url_password="hunter2"),
    "a replica": Unwilling(words=("REPLICAOF", "127.0.0.1", "1")),
    "full": Unwilling(words=("CONFIG", "SET", "maxmemory", "1")),
    "no rights": Unwilling(words=("ACL", "SETUSER", "default", "-evalsha", "-eval")),
    "not enough replicas": Unwilling(words=("CONFIG", "SET", "min-replicas-to-write", "1")),
}


@pytest.mark.parametrize("how", UNWILLING)
async def test_whatever_a_server_refuses_is_one_error(how: str, caplog: pytest.LogCaptureFixture) -> None:
    case = UNWILLING[how]
    asked = claim("month", 10, 100)
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder), *case.settings) as server:
        if case.words:
            server.say(*case.words)
        url = server.url.replace("unix://", f"unix://:{case.url_password}@") if case.url_password else server.url
        ledger = ValkeyLedger(url)
        try:
            for _ in range(4):
                hold = ledger.hold(fresh())
                with pytest.raises(StateUnavailable) as fault:
                    await hold.reserve([asked])
                said = f"{fault.value.message} {fault.value.detail} {ledger.problem} {ledger._server!r} {caplog.text}"
                assert "hunter2" not in said
                assert "swordfish" not in said
                assert fault.value.__cause__ is None
            assert ledger.problem
            with pytest.raises(StateUnavailable):
                await ledger.read([asked])
        finally:
            await ledger.close()


async def test_a_full_server_still_lets_go(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 100)
    async with gateway(own_valkey) as ledger:
        hold = await reserved(ledger, asked)
        own_valkey.say("CONFIG", "SET", "maxmemory", "1")
        hold.settle({"month": nano(7)})
        await settled(ledger)
        own_valkey.say("CONFIG", "SET", "maxmemory", "0")
        assert await figures(ledger, asked) == (7, 0)


async def test_what_is_left_when_a_gateway_ends_is_told(own_valkey: Valkey) -> None:
    async with gateway(own_valkey, timeout=0.1) as ledger:
        hold = await reserved(ledger, claim("month", 10, 100))
        own_valkey.stop()
        hold.settle({})
        assert await ledger.drain(0.3) == 1


@pytest.mark.parametrize("url", ["http://:hunter2@host", "redis://:hunter2@host:port/0", "localhost"])
def test_an_address_that_is_none_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"state\.url must be") as fault:
        ValkeyLedger(url)
    assert "hunter2" not in str(fault.value)
    assert fault.value.__cause__ is None
    assert fault.value.__suppress_context__


# ---- clocks


async def test_a_gateway_whose_clock_is_wrong_asks_once_more(own_valkey: Valkey) -> None:
    asked = claim("minute", 10, 100, "minute")
    wrong = Clock(lambda: time.time_ns() - 3_700 * SECOND)
    async with gateway(own_valkey) as right, gateway(own_valkey, clock=wrong) as ledger:
        (await reserved(ledger, asked)).settle({})
        await settled(ledger)
        (await reserved(right, asked)).settle({})
        await settled(right)
        assert sum(int(own_valkey.say("HGET", key, "u") or 0) for key in own_valkey.everything("*:c:*")) == 20 * NANO
        assert abs(ledger.now() - time.time_ns()) < SECOND


class Half(Calendar):
    """A calendar of half seconds: one to see turn."""

    def span(self, at: int) -> Span:
        start = at // SECOND * SECOND
        return Span(start, start + SECOND)


async def test_a_call_belongs_to_the_window_in_which_it_was_admitted(own_valkey: Valkey) -> None:
    """Seconds, so that they can be seen to end."""
    each_second = Half("minute")
    asked = claim("seconds", 60, 100, each_second)
    async with gateway(own_valkey) as ledger:
        before = await reserved(ledger, asked)
        turned = before.held[0].at // SECOND
        after: list[Any] = []

        async def admitted() -> bool:
            hold = ledger.hold(fresh())
            if (await hold.reserve([asked])).admitted:
                after.append(hold)
            return bool(after)

        await until(admitted)
        [hold] = after
        assert hold.held[0].at // SECOND > turned
        assert not (await before.extend([asked])).admitted, "what is more belongs to its window too"
        assert (await before.extend([claim("seconds", 30, 100, each_second)])).admitted
        before.settle({"seconds": nano(50)})
        await settled(ledger)
        used_by_second = {int(key.rpartition("|")[2]): own_valkey.say("HGET", key, "u") for key in own_valkey.everything("*seconds*")}
        assert used_by_second[turned] == str(nano(50))
        assert used_by_second[hold.held[0].at // SECOND] == "0"
        hold.release()
        await settled(ledger)
        assert {own_valkey.say("HGET", key, "r") for key in own_valkey.everything("*seconds*")} == {"0"}


@pytest.mark.fault("RL-08")
async def test_a_server_whose_clock_goes_back_locks_nobody_out(own_valkey: Valkey) -> None:
    """As after a change of masters: the counter has seen a later time than it is."""
    asked = claim("rpm", 60, 100, "rolling 1s")
    async with gateway(own_valkey) as ledger:
        await used(ledger, asked)
        [key] = own_valkey.everything("*:c:rpm*")
        ahead = 3_600 * 10**6
        slots = own_valkey.say("HGETALL", key)
        width = counter("rpm", when="rolling 1s").window.slot // 1000  # type: ignore[union-attr]
        moved = {name: int(slots[name]) + ahead // width for name in "on"} | {"t": int(slots["t"]) + ahead}
        moved |= {f"s{int(name[1:]) + ahead // width}": value for name, value in slots.items() if name[0] == "s"}
        own_valkey.say("DEL", key)
        own_valkey.say("HSET", key, "u", slots["u"], "r", "0", "k", "0", *(each for pair in moved.items() for each in pair))
        hold = ledger.hold(fresh())
        [refused] = (await hold.reserve([asked])).refused
        assert refused.fits_after is not None
        assert refused.fits_after < 1.1
        await asyncio.sleep(refused.fits_after + 0.005)  # loops wake up to a millisecond early
        assert (await hold.reserve([asked])).admitted
        hold.release()
        await settled(ledger)


# ---- what stays on the server


async def test_every_key_has_one_slot_and_an_end(own_valkey: Valkey) -> None:
    asked = [claim("month", 10, 100, MONTH), claim("rpm", 1, 100, "rolling 60s"), claim("calls", 1, 5, InFlight()), claim("all", 1, 9)]
    async with gateway(own_valkey) as ledger:
        hold = await reserved(ledger, *asked)
        keys = own_valkey.everything()
        assert len(keys) == len(asked) + 2
        assert all(key.startswith("spangate:{acme}:") for key in keys)
        assert all(own_valkey.say("TTL", key) > 0 for key in keys)
        hold.settle({})
        await settled(ledger)
        assert all(own_valkey.say("TTL", key) > 0 for key in own_valkey.everything())
        assert not own_valkey.everything("*:c:calls*"), "nothing is in flight"
        assert not own_valkey.everything("*holds*")


async def test_a_providers_counters_are_a_home_of_their_own(own_valkey: Valkey) -> None:
    async with gateway(own_valkey) as ledger:
        await used(ledger, claim("rpm", 1, 600, "rolling 60s", home="provider:openai"))
        assert own_valkey.everything("spangate:{provider:openai}:c:*")


async def test_a_name_cannot_leave_its_slot(own_valkey: Valkey) -> None:
    async with gateway(own_valkey) as ledger:
        asked = claim("a|b{c}*", 1, 9, home="x}:{y", scope="user:{z}|*")
        await used(ledger, asked)
        assert await figures(ledger, asked) == (1, 0)
        [found] = await ledger.every("x}:{y")
        assert found.counter == asked.counter
        assert all(key.count("{") == key.count("}") == 1 for key in own_valkey.everything())


async def test_amounts_are_exact_where_floats_are_not(own_valkey: Valkey) -> None:
    limit = 2**53
    async with gateway(own_valkey) as ledger:
        for amount in [nano("4503599627370495.000000001"), nano("4503599627370494.999999998"), 1, NANO - 1]:
            hold = ledger.hold(fresh())
            answer = await hold.reserve([Claim(counter("big"), amount, nano(limit) - NANO)])
            assert answer.admitted
            hold.settle({})
            await settled(ledger)
        full = nano("9007199254740990.999999999")
        [found] = await ledger.read([Claim(counter("big"), 1, full)])
        assert (found.used, found.over) == (full, True)
        assert refusers(await ledger.hold(fresh()).reserve([Claim(counter("big"), 1, full)])) == ["big"]


async def test_two_gateways_share_what_there_is(own_valkey: Valkey) -> None:
    asked = claim("month", 10, 500, MONTH)
    async with gateway(own_valkey) as one, gateway(own_valkey) as two:

        async def calls(ledger: ValkeyLedger) -> int:
            holds = [ledger.hold(fresh()) for _ in range(60)]
            answers = await asyncio.gather(*(hold.reserve([asked]) for hold in holds))
            for hold in holds:
                hold.settle({})
            return sum(answer.admitted for answer in answers)

        assert sum(await asyncio.gather(calls(one), calls(two))) == 50
        await settled(one)
        await settled(two)
        assert await figures(one, asked) == await figures(two, asked) == (500, 0)
