"""What the figures mean: medians over rounds, ratios, and whether the goals are met."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from cases import Sample
from memory import Held, Refusals

Figure = Callable[[Sample], float]

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
