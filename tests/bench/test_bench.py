"""The harness of `make bench`: that it measures what it says. Not how fast anything is."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace

import pytest

from house.source import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import memory
import processes
from cases import CASES, Case, Sample, measure
from page import Machine, Outcome, page, table, terminal
from proxies import LOST, Proxy
from steps import Watch, step_name
from verdict import Line, Run, lines, memory_lines

from bench import Bench, main, options

SAMPLE = Sample(
    proxy="direct", case="one", round=1, answered=1000, failed=0, seconds=1.0, p50=0.1, p95=0.2, p99=0.3, first_p50=0.1,
    events=0, transit_p50=0.0, transit_p99=0.0, cpu=0.0, rss=0.0,
)  # fmt: skip
MACHINE = Machine("2026-01-02", "A processor", 2, "Linux 6", {"Python": "3.11.7", "spangate": "0.1.0"})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def of(proxy: str, case: str, **figures: float) -> Sample:
    return replace(SAMPLE, proxy=proxy, case=case, **figures)  # type: ignore[arg-type]


def burn(seconds: float) -> str:
    return f"import time\nwhile time.process_time() < {seconds}: pass\ntime.sleep(60)"


# --- the two programs ---


@pytest.mark.compiler
def test_whole_answers_are_driven_and_counted(bench: Bench) -> None:
    (sample,) = bench.rounds(["direct"], [CASES[1]], 1, 0.3)
    assert (sample.proxy, sample.case, sample.round, sample.failed, sample.events) == ("direct", "whole16", 1, 0, 0)
    assert sample.answered > 16
    assert 0.3 <= sample.seconds < 5
    assert 0 < sample.p50 <= sample.p95 <= sample.p99


@pytest.mark.compiler
def test_every_event_of_a_stream_is_counted_and_timed(bench: Bench) -> None:
    case = Case("paced", "", 4, chunks=10, every=10)
    (sample,) = bench.rounds(["direct"], [case], 1, 0.3)
    assert sample.failed == 0
    assert sample.events == sample.answered * (10 + 4), "a role, ten chunks, a finish, the usage asked for, [DONE]"
    assert 90 <= sample.p50 < 1000, "nine pauses of ten milliseconds lie between ten chunks"
    assert 0 < sample.transit_p50 <= sample.transit_p99 < 1000


@pytest.mark.compiler
def test_embeddings_and_long_prompts_are_answered(bench: Bench) -> None:
    chosen = [case for case in CASES if case.name in {"embeddings16", "prompt16"}]
    samples = bench.rounds(["direct"], chosen, 1, 0.1)
    assert all(sample.answered > 0 and sample.failed == 0 for sample in samples)
    assert {len(case.body()) > 100_000 for case in chosen} == {True, False}


@pytest.mark.compiler
def test_what_goes_wrong_is_a_failure_and_no_answer(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    with bench.started(["direct"]) as (direct,):
        sample = measure(bench.driver, bench.folder, direct, replace(CASES[0], path="/nowhere"), 0.1)
    assert (sample.answered, sample.failed > 0, math.isnan(sample.cpu_per_1000), math.isnan(sample.p50)) == (0, True, True, True)
    told = capsys.readouterr().out
    assert "status 404" in told
    assert "No such path." in told


@pytest.mark.compiler
def test_nobody_is_left_running(bench: Bench) -> None:
    with bench.started(["direct"]) as (direct,):
        pass
    with pytest.raises(ConnectionRefusedError):
        memory.begin(direct, 1)


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(processes.Unusable, match="a C compiler is missing"):
        Bench(tmp_path)


# --- what a process is charged ---


def test_cpu_is_that_of_the_process_and_its_children(tmp_path: Path) -> None:
    script = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {burn(0.3)!r}])\n" + burn(0.3)
    busy = processes.Process([sys.executable, "-c", script], tmp_path, "busy")
    try:
        latest = time.monotonic() + 30
        while busy.cpu_seconds() < 0.6 and time.monotonic() < latest:
            time.sleep(0.05)
        time.sleep(0.1)
        assert 0.6 <= busy.cpu_seconds() < 1.2, "twice 0.3 s, and two starts of Python"
        assert len(processes.family(busy.pid)) == 2
        assert busy.peak_rss() > 4
    finally:
        busy.end()
    assert busy.cpu_seconds() == 0


def test_cpu_agrees_with_what_the_process_itself_says() -> None:
    assert processes.cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.05)


@pytest.mark.parametrize(("written", "seconds"), [("0:01.25", 1.25), ("01:02:03", 3723), ("2-00:00:10", 172810), (" 12:00 ", 720)])
def test_times_as_ps_writes_them(written: str, seconds: float) -> None:
    assert processes.seconds_of(written) == seconds


def test_pinning_is_undone() -> None:
    for cpu in processes.cpus()[:1]:
        before = os.sched_getaffinity(0)
        with processes.pinned(cpu):
            assert os.sched_getaffinity(0) == {cpu}
        assert os.sched_getaffinity(0) == before


def test_a_process_that_does_not_listen_is_told_with_its_last_words(tmp_path: Path) -> None:
    silent = processes.Process([sys.executable, "-c", "print('the port is taken')"], tmp_path, "silent")
    with pytest.raises(processes.Unusable, match="the port is taken"):
        silent.wait_until_it_listens(processes.free_port(), 5)
    silent.end()


# --- large bodies ---


@pytest.mark.compiler
def test_bodies_are_held_together(bench: Bench) -> None:
    size = 256 * 1024
    assert len(memory.large_body(size)) == size
    assert json.loads(memory.large_body(size))["model"]
    with bench.started(["direct"]) as (direct,):
        held = memory.hold(direct, count=3, size=size, pause=100)
    assert (held.answered, held.asked, held.in_flight) == (3, 3, 0.75)
    assert held.seconds >= 0.1, "the mock reads on after a pause"


@pytest.mark.compiler
def test_who_refuses_nothing_does_not_hold_max_bodies(bench: Bench) -> None:
    with bench.started(["direct"]) as (direct,):
        refusals = memory.overfill(direct, limit=20_000, count=3, size=10_000)
    assert refusals == memory.Refusals(asked=3, fit=2, refused=0, answered=3, room_again=True)
    assert not refusals.right


# --- what follows from the figures ---


def test_ratios_are_of_medians_over_rounds() -> None:
    run = Run([of("nginx", "whole16", cpu=cpu) for cpu in (1, 2, 30)] + [of("spangate", "whole16", cpu=cpu) for cpu in (10, 20, 90)])
    assert run.ratio("whole16", lambda sample: sample.cpu_per_1000, "nginx") == 10


def test_a_goal_is_met_or_missed() -> None:
    fast = {"one": {"p50": 0.55}, "whole16": {"cpu": 12.0}, "prompt16": {"cpu": 5.0}, "paced64": {"cpu": 4.0}}
    yardsticks = [of(proxy, case, events=1000, cpu=1.0) for proxy in ("direct", "nginx") for case in fast]
    met = Run([*yardsticks, *(of("spangate", case, **({"events": 1000, "rss": 90.0} | figures)) for case, figures in fast.items())])
    assert [line.verdict for line in lines(met)] == ["PASS"] * 6
    slow = Run([*yardsticks, *(of("spangate", case, events=1000, cpu=13.0, p50=0.7, rss=91.0, failed=1) for case in fast)])
    assert [line.verdict for line in lines(slow)] == ["FAIL"] * 6


def test_everything_on_is_judged_beside_nginx_and_beside_the_spine() -> None:
    cases = ("whole16", "steady16", "prompt16", "paced64")
    others = [of(proxy, case, events=1000, cpu=cpu) for proxy, cpu in (("nginx", 1.0), ("spangate", 3.0)) for case in cases]
    met = Run([*others, *(of("everything", case, events=1000, cpu=4.8, rss=150.0) for case in cases)])
    judged = {line.words: line for line in lines(met) if line.verdict and ("everything" in line.words or "add" in line.words)}
    assert [line.verdict for line in judged.values()] == ["PASS"] * 6
    assert judged["telemetry and usage add to the CPU of a short answer, both as busy"].measured == pytest.approx(60)
    slow = Run([*others, *(of("everything", case, events=1000, cpu=21.0, rss=151.0, lost=1.0) for case in cases)])
    assert [line.verdict for line in lines(slow) if line.words in judged] == ["FAIL"] * 6


def test_what_telemetry_adds_at_full_speed_is_told_and_not_judged() -> None:
    run = Run([of("spangate", "whole16", cpu=1.0), of("everything", "whole16", cpu=1.9)])
    [line] = [line for line in lines(run) if "add to" in line.words]
    assert (line.words.endswith("each as busy as it can"), line.measured, line.verdict) == (True, pytest.approx(90), "")


@pytest.mark.compiler
def test_at_a_rate_nobody_asks_more_often(bench: Bench) -> None:
    case = Case("some", "some", 4, rate=200)
    (sample,) = bench.rounds(["direct"], [case], 1, 0.5)
    assert sample.failed == 0
    assert 80 <= sample.answered <= 104, "each connection once in 20 ms, and once at the start"


@pytest.mark.compiler
def test_everything_tells_a_collector_and_loses_nothing(bench: Bench) -> None:
    (sample,) = bench.rounds(["everything"], [CASES[1]], 1, 0.3)
    assert (sample.failed, sample.lost) == (0, 0)
    with bench.started(["everything"]) as (proxy,):
        measure(bench.driver, bench.folder, proxy, CASES[1], 0.1)
        connection = HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        connection.request("GET", "/metrics")
        told = connection.getresponse().read().decode()
        connection.close()
    assert float(told.partition('spangate_usage_records_total{outcome="written"} ')[2].split()[0]) > 0
    assert LOST.findall('spangate_usage_records_total{outcome="dropped"} 3\nspangate_telemetry_dropped_total{signal="logs"} 4') == [
        "3",
        "4",
    ]


def test_what_was_not_measured_does_not_pass() -> None:
    assert not Line("", math.nan, "", 1).passed
    unanswered = Run([of(proxy, "one", answered=0, p50=math.nan) for proxy in ("direct", "nginx", "spangate")])
    (latency, *_) = lines(unanswered)
    assert (latency.words.split(",")[0], latency.verdict) == ("added median latency", "FAIL")
    assert '"p50": null' in json.dumps(outcome(*unanswered.samples).as_json(), allow_nan=False)


def test_without_nginx_its_goals_are_not_judged() -> None:
    run = Run([of("direct", "whole16"), of("spangate", "whole16", answered=250)])
    first = lines(run)[0]
    assert (first.measured, first.unit, first.goal, first.verdict) == (4, "× direct", None, "")


def test_large_bodies_are_judged() -> None:
    held = memory.Held(in_flight=600, at_rest=50, peak=1410, answered=20, asked=20, seconds=3)
    kept = memory.Refusals(asked=20, fit=3, refused=17, answered=3, room_again=True)
    assert [line.verdict for line in memory_lines(held, kept)] == ["PASS"] * 3
    over = memory_lines(replace(held, peak=1411, answered=19), replace(kept, refused=16))
    assert [line.verdict for line in over] == ["FAIL"] * 3


# --- steps of the loop ---


def test_a_step_is_charged_its_cpu_and_not_its_waiting() -> None:
    def burn_and_wait(_: object) -> None:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        time.sleep(0.2)

    seen, loop = Watch(), asyncio.new_event_loop()
    handle = loop.call_soon(burn_and_wait)
    seen.timed(burn_and_wait)(handle)
    loop.close()
    ((name, took),) = seen.longest.items()
    assert name.endswith("burn_and_wait")
    assert 0.02 <= took < 0.2
    assert (seen.steps, seen.long) == (1, 1)


async def test_a_step_of_a_task_has_its_coroutines_name() -> None:
    async def asleep() -> None:
        await asyncio.sleep(0)

    task = asyncio.ensure_future(asleep())
    handle = SimpleNamespace(_callback=Bound(task))
    assert step_name(handle).endswith("asleep")
    await task


class Bound:
    """What asyncio schedules for a task: a callable that knows it."""

    def __init__(self, task: asyncio.Future[None]) -> None:
        self.__self__ = task


# --- its words ---


def test_a_table_is_markdown_and_even() -> None:
    assert table(["what", "n"], [["a longer word", "1"], ["b", "200"]]) == [
        "| what          |   n |",
        "| ------------- | --: |",
        "| a longer word |   1 |",
        "| b             | 200 |",
    ]


def outcome(*samples: Sample) -> Outcome:
    run = Run(samples)
    return Outcome(MACHINE, 3, 1.5, pinned=True, run=run, lines=lines(run))


def test_the_page_says_when_where_and_what_came_out() -> None:
    whole = outcome(of("direct", "whole16"), of("nginx", "whole16", cpu=0.02), of("spangate", "whole16", cpu=0.3, p50=0.44))
    written = page(whole)
    assert written.startswith("# Performance\n")
    assert written.endswith("|\n")
    assert "2026-01-02, 2 × A processor (shared with other work)" in written
    assert "15.00 × nginx" in written
    assert "FAIL" in written
    (row,) = (line for line in written.splitlines() if line.startswith("| spangate"))
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["spangate", "1000", "0.3000", "15.0", "0.44", "0.34", "0.30"]
    assert not whole.passed


def test_terminal_and_page_show_the_same_figures() -> None:
    shown = outcome(of("direct", "paced64", events=104, transit_p50=0.05), of("nginx", "paced64", events=104, cpu=0.01))
    assert set(terminal(shown).replace("The run", "").split()) - {"Figures"} <= set(page(shown).split())


@pytest.mark.compiler
def test_a_run_of_direct_alone_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples, written = tmp_path / "run.json", tmp_path / "page.md"
    choice = ["--proxies", "direct", "--cases", "one", "--rounds", "1", "--secs", "0.3"]
    assert main([*choice, "--json", str(samples), "--write", str(written)]) == 0
    told = json.loads(samples.read_text("utf-8"))
    assert [(sample["proxy"], sample["case"], sample["failed"]) for sample in told["samples"]] == [("direct", "one", 0)]
    assert told["passed"]
    assert "| direct" in written.read_text("utf-8")
    assert "| direct" in capsys.readouterr().out


def test_nothing_to_measure_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options(["--cases", "none"])
    assert ended.value.code == 2
    assert "nothing to measure" in capsys.readouterr().err


@pytest.mark.compiler
def test_the_driver_says_how_it_is_called(bench: Bench) -> None:
    ran = subprocess.run([bench.driver], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.split()[0]) == (2, "load")


@pytest.mark.compiler
def test_a_proxy_that_is_gone_is_told(bench: Bench) -> None:
    gone = Proxy("gone", processes.free_port())
    with pytest.raises(processes.Unusable, match="gone, one: the driver gave up"):
        measure(bench.driver, bench.folder, gone, CASES[0], 0.1)
