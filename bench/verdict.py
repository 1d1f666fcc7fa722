"""What the figures mean: medians over rounds, ratios, and whether the goals are met."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from cases import Sample
from memory import Held, Refusals
from pace import PACE
from trips import Trips

Figure = Callable[[Sample], float]

ADMISSION = 60.0  # microseconds of CPU that a call may take more, with three budgets and two limits, at the pace of PACE
BASE_RSS = 90.0
EVERYTHING_RSS = 150.0
PER_BYTE_HELD = 2.2


@dataclass(frozen=True)
class Line:
    """One figure beside its goal. Without a goal it is told and not judged."""

    words: str
    measured: float
    unit: str
    goal: float | None = None

    @property
    def passed(self) -> bool:
        return self.goal is None or self.measured <= self.goal  # not a number is no pass

    @property
    def verdict(self) -> str:
        return "" if self.goal is None else "PASS" if self.passed else "FAIL"


class Run:
    """The samples of one run, asked for their medians."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.samples = tuple(samples)
        self.proxies = tuple(dict.fromkeys(sample.proxy for sample in self.samples))
        self.cases = tuple(dict.fromkeys(sample.case for sample in self.samples))

    def of(self, proxy: str, case: str) -> list[Sample]:
        return [sample for sample in self.samples if (sample.proxy, sample.case) == (proxy, case)]

    def median(self, proxy: str, case: str, figure: Figure) -> float:
        values = [figure(sample) for sample in self.of(proxy, case)]
        return median(values) if values else math.nan

    def ratio(self, case: str, figure: Figure, base: str, proxy: str = "spangate") -> float:
        """The proxy's median by the other's."""
        divisor = self.median(base, case, figure)
        return self.median(proxy, case, figure) / divisor if divisor else math.nan

    def added(self, proxy: str, case: str, figure: Figure) -> float:
        """What a proxy adds to a direct connection."""
        return self.median(proxy, case, figure) - self.median("direct", case, figure)


@dataclass(frozen=True)
class Admission:
    """The gateway without budgets and limits (spangate), with them (budgets), and with them on a Valkey (shared); and how often calls go
    there, also where the provider has limits of its own."""

    run: Run
    trips: Trips
    of_provider: Trips

    @property
    def microseconds(self) -> float:
        """CPU that budgets and limits in memory add to a call. Differences within a round are free of what changes from one to the next."""
        with_rules, without = (self.run.of(proxy, "steady16") for proxy in ("budgets", "spangate"))
        return 1000 * median(ruled.cpu_per_1000 - bare.cpu_per_1000 for ruled, bare in zip(with_rules, without, strict=True))

    @property
    def pace(self) -> float:
        """Microseconds that Python took for what takes it 54 where the goal was written."""
        return 1e6 * median(sample.pace for sample in self.run.samples if sample.case == "steady16")


def lines(run: Run) -> list[Line]:
    """The goals that the cases of this run can show."""
    if "spangate" not in run.proxies:
        return []
    found = against_nginx(run, "spangate", SPINE) if "nginx" in run.proxies else against_direct(run)
    if "one" in run.cases:
        found.append(Line("added median latency, 1 connection", run.added("spangate", "one", lambda sample: sample.p50), "ms", 0.5))
    found.append(Line("memory after all cases, at its highest", peak(run, "spangate"), "MiB", BASE_RSS))
    if "everything" in run.proxies:
        found += everything(run)
    found.append(Line("answers that failed", sum(sample.failed for sample in run.samples), "", 0))
    return found


def cpu_of(case: str) -> Figure:
    """Streams are counted by events, whole answers by answers."""
    return (lambda sample: sample.cpu_per_1000_events) if case.startswith("paced") else (lambda sample: sample.cpu_per_1000)


def peak(run: Run, proxy: str) -> float:
    return max(sample.rss for sample in run.samples if sample.proxy == proxy)


CPU = {
    "whole16": "CPU per short answer, 16 connections",
    "paced64": "CPU per paced chunk, 64 streams",
    "prompt16": "CPU per 100 KB prompt, 16 connections",
}
SPINE = {"whole16": 12.0, "paced64": 4.0, "prompt16": 5.0}
EVERYTHING = {"whole16": 20.0, "paced64": 5.0, "prompt16": 7.0}
ADDED = 60.0  # per cent


def against_nginx(run: Run, proxy: str, goals: Mapping[str, float], words: str = "") -> list[Line]:
    return [
        Line(f"{words}{CPU[case]}", run.ratio(case, cpu_of(case), "nginx", proxy), "× nginx", goal)
        for case, goal in goals.items()
        if case in run.cases
    ]


def everything(run: Run) -> list[Line]:
    """Two exported spans a call, metrics, a row, a key."""
    found = against_nginx(run, "everything", EVERYTHING, "everything on: ") if "nginx" in run.proxies else []
    found += [
        Line(f"telemetry and usage add to the CPU of a short answer, {how}", added(run, case), "%", goal)
        for case, how, goal in (("steady16", "both as busy", ADDED), ("whole16", "each as busy as it can", None))
        if case in run.cases
    ]
    lost = max(sample.lost for sample in run.samples if sample.proxy == "everything")
    found.append(Line("everything on: spans, points and rows lost", lost, "", 0))
    found.append(Line("everything on: memory after all cases, at its highest", peak(run, "everything"), "MiB", EVERYTHING_RSS))
    return found


def added(run: Run, case: str) -> float:
    """In per cent of the spine's CPU. It is judged where both carry the same load: of two that go as fast as they can, the slower one
    finds its server and its driver asleep more often, and pays for waking them."""
    return run.ratio(case, cpu_of(case), "spangate", "everything") * 100 - 100


def against_direct(run: Run) -> list[Line]:
    """Without nginx there is no CPU to divide by: only the time from answer to answer, which has no goal."""
    return [
        Line(f"time from answer to answer, {case}", run.ratio(case, lambda sample: 1 / sample.per_second, "direct"), "× direct")
        for case in run.cases
        if not case.startswith("paced")
    ]


def memory_lines(held: Held, refusals: Refusals) -> list[Line]:
    limit = BASE_RSS + PER_BYTE_HELD * held.in_flight
    large, seen = f"{held.asked} bodies of {held.in_flight / held.asked:.0f} MiB at once", refusals
    return [
        Line(f"{large}: memory at its highest", held.peak, "MiB", limit),
        Line(f"{large}: not answered", held.asked - held.answered, "", 0),
        Line(f"max_bodies with room for {seen.fit} of {seen.asked}: not as promised", 0 if seen.right else 1, "", 0),
    ]


def admission_lines(seen: Admission) -> list[Line]:
    p50: Figure = lambda sample: sample.p50  # noqa: E731
    own, on_valkey = "three budgets and two limits", "on a Valkey"
    goal = ADMISSION * seen.pace / PACE / 1e6
    added = [seen.run.median(proxy, "one", p50) - seen.run.median("spangate", "one", p50) for proxy in ("budgets", "shared")]
    return [
        Line(f"{own} add to the CPU of a short answer", seen.microseconds, "µs", round(goal, 1)),
        Line("what takes Python 54 µs where that goal was 60 µs", seen.pace, "µs"),
        Line(f"{own} add to its median latency, 1 connection", added[0], "ms"),
        Line(f"{on_valkey}: {own} add to its median latency, 1 connection", added[1], "ms", 0.5),
        Line(f"{on_valkey}: round trips before the provider is asked, at the most", seen.trips.before, "", 1),
        Line(f"{on_valkey}: the same, with limits of the provider's own", seen.of_provider.before, "", 2),
        Line(f"{on_valkey}: answers that waited for it", seen.trips.waited + seen.of_provider.waited, "", 0),
        Line("with budgets and limits: answers that failed", sum(sample.failed for sample in seen.run.samples), "", 0),
    ]
