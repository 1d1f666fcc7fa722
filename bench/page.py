"""The words of a run: what the terminal shows, and docs/performance.md. Every figure in them comes from the run."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cases import CASES, Case, Sample
from memory import Held, Refusals
from verdict import Admission, Line, Run

INTRODUCTION = """\
# Performance

`bench/bench.py --write` wrote this page from one run; no figure in it is written by hand. It shows spangate beside nginx, which
passes everything on and does nothing else, and beside a direct connection.

Claims are the ratios only. The other figures belong to the machine and the minute in which they were measured: compare them within
this page and with nothing else.

## How it is measured

- A model server without a model (`bench/mock.c`) answers at once, or streams chunks at a set pace. A driver (`bench/load.c`) keeps a
  number of connections busy: each asks again when its answer has ended, or in one case so many times a second. What telemetry and
  usage add is judged there: of two gateways that go as fast as they can, the slower one finds driver and server asleep more often,
  and pays for waking them.
- spangate runs with one worker: a team, a virtual key, one model with one target, the line a call on. "spangate" is the gateway
  alone; "everything" tells all there is to tell: two exported spans a call, metrics, a row in DuckDB. What it tells in the background
  is waited for and counted. "budgets" is the gateway alone with three budgets and two limits in memory, "shared" with the same on a
  Valkey, which shares the second CPU; these are started afresh five times, since one process has some microseconds over another by where
  its memory happens to lie. nginx runs with one worker, connections to the server kept open, no buffering of answers, no log.
- {pinning}
- All are measured in turn, round after round, and a figure is the median of the rounds. The first pass over all cases warms up and
  is not counted.
- CPU is user and system time of the proxy's processes, from the clock that the kernel keeps for them: of all figures the one that
  other load on the machine moves least. Memory is the most that the proxy's processes held in the whole run.
- Added latency is the median of spangate less the median of a direct connection in the same rounds. The transit of a chunk is the
  time from its sending by the server to its reading by the driver.
- What budgets and limits take is told in microseconds, as its goal is, and that was written on one machine: here it is as much more or
  less as a fixed piece of Python takes more or less (`bench/pace.py`), measured beside each figure. Round trips to the Valkey are counted
  by what it is asked, call by call, until the provider is asked; from then on it stands still, so that an answer that wanted it would be
  late (`bench/trips.py`).
- Large bodies: all but the last piece of every body is sent before any is completed, and the server reads on only after a while, so
  that every body is in the gateway whole, on its way in and on its way out.

To do the same: `make bench`, in some five minutes. It needs a C compiler and, for the ratios, nginx (Debian, Ubuntu:
`apt-get install nginx-light`). `python bench/bench.py --help` tells the rest; `--write docs/performance.md` writes this page anew.
`python bench/steps.py` tells how long single steps hold the event loop.
"""

PINNED = "The proxy has the first CPU, server and driver share the second."
NOT_PINNED = "Nothing was pinned to a CPU: this system can't, or has but one."
NO_NGINX = "nginx was not found, so ratios are to a direct connection and the goals that name nginx are not judged."


@dataclass(frozen=True)
class Machine:
    """Where and with what a run was made."""

    date: str
    processor: str
    cpus: int
    system: str
    versions: dict[str, str]

    @staticmethod
    def this(nginx: str | None) -> Machine:
        versions = {"Python": platform.python_version(), "spangate": spangate_version()}
        if nginx:
            versions["nginx"] = nginx_version(nginx)
        system = f"{platform.system()} {platform.release().split('-')[0]}"
        return Machine(datetime.now(UTC).date().isoformat(), processor(), os.cpu_count() or 1, system, versions)

    def words(self) -> str:
        known = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.date}, {self.cpus} × {self.processor} (shared with other work), {self.system}; {known}."


@dataclass(frozen=True)
class Outcome:
    """A whole run: what was measured and how, and what follows."""

    machine: Machine
    rounds: int
    seconds: float
    pinned: bool
    run: Run
    lines: Sequence[Line]
    admission: Admission | None = None
    held: Held | None = None
    refusals: Refusals | None = None
    remarks: Sequence[str] = field(default=())

    @property
    def passed(self) -> bool:
        return all(line.passed for line in self.lines)

    def as_json(self) -> dict[str, object]:
        return {
            "machine": asdict(self.machine),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "pinned": self.pinned,
            "samples": [known(asdict(sample)) for sample in self.run.samples],
            "admission": budgets_as_json(self.admission) if self.admission else None,
            "held": asdict(self.held) if self.held else None,
            "refusals": asdict(self.refusals) if self.refusals else None,
            "lines": [known(asdict(line)) | {"verdict": line.verdict} for line in self.lines],
            "passed": self.passed,
        }


def budgets_as_json(seen: Admission) -> dict[str, object]:
    samples = [known(asdict(sample)) for sample in seen.run.samples]
    return {"samples": samples, "trips": asdict(seen.trips), "of_provider": asdict(seen.of_provider)}


def known(figures: dict[str, object]) -> dict[str, object]:
    """JSON has no word for what couldn't be measured but null."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}


def processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def spangate_version() -> str:
    try:
        return version("spangate")
    except PackageNotFoundError:
        return "not installed"


def nginx_version(program: str) -> str:
    ran = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    found = re.search(r"nginx/(\S+)", ran.stdout + ran.stderr)
    return found[1] if found else "of unknown version"


def page(outcome: Outcome) -> str:
    return "\n".join((INTRODUCTION.format(pinning=PINNED if outcome.pinned else NOT_PINNED), *results(outcome, "## "), ""))


def terminal(outcome: Outcome) -> str:
    return "\n".join(results(outcome, ""))


def results(outcome: Outcome, heading: str) -> list[str]:
    took = f"{outcome.machine.words()} {outcome.rounds} rounds of {outcome.seconds:g} s a case."
    parts = [f"{heading}The run", "", took, *outcome.remarks, ""]
    if outcome.lines:
        parts += [f"{heading}Goals", "", *goals(outcome.lines), ""]
    parts += [f"{heading}Figures", ""]
    for name in outcome.run.cases:
        parts += [*figures(outcome.run, next(case for case in CASES if case.name == name)), ""]
    if outcome.admission:
        parts += [*budgets(outcome.admission.run), ""]
    if outcome.held:
        parts += [*large_bodies(outcome.held, outcome.refusals), ""]
    return parts[:-1]


def goals(lines: Sequence[Line]) -> list[str]:
    rows = [[line.words, amount(line.measured, line.unit), limit(line), line.verdict] for line in lines]
    return table(["", "measured", "goal", ""], rows)


def amount(value: float, unit: str) -> str:
    written = f"{value:.0f}" if unit in {"", "MiB", "%"} else f"{value:.2f}"
    return f"{written} {unit}".strip()


def limit(line: Line) -> str:
    return "" if line.goal is None else f"≤ {line.goal:g} {line.unit}".strip()


def figures(run: Run, case: Case) -> list[str]:
    """One case, a row a proxy. Streams are counted by events, whole answers by answers."""
    streamed = case.chunks > 0
    unit = "events" if streamed else "answers"
    titles = [case.words, f"{unit}/s", f"CPU s/1000 {unit}", "÷ nginx"]
    titles += ["chunk transit p50 ms", "p99 ms"] if streamed else ["p50 ms", "added p50 ms", "p99 ms"]
    return table(titles, [row(run, case.name, proxy, streamed=streamed) for proxy in run.proxies])


def row(run: Run, case: str, proxy: str, *, streamed: bool) -> list[str]:
    def cost(sample: Sample) -> float:
        return sample.cpu_per_1000_events if streamed else sample.cpu_per_1000

    def rate(sample: Sample) -> float:
        return sample.events / sample.seconds if streamed else sample.per_second

    by_nginx = run.median(proxy, case, cost) / (run.median("nginx", case, cost) or math.nan)
    cells = [proxy, f"{run.median(proxy, case, rate):.0f}"]
    cells += ["", ""] if proxy == "direct" else [f"{run.median(proxy, case, cost):.4f}", f"{by_nginx:.1f}"]
    if streamed:
        times = [run.median(proxy, case, lambda sample: sample.transit_p50), run.median(proxy, case, lambda sample: sample.transit_p99)]
        return [*cells, *(f"{time:.2f}" for time in times)]
    p50, p99 = (run.median(proxy, case, figure) for figure in (lambda sample: sample.p50, lambda sample: sample.p99))
    added = "" if proxy == "direct" else f"{run.added(proxy, case, lambda sample: sample.p50):.2f}"
    return [*cells, f"{p50:.2f}", added, f"{p99:.2f}"]


def budgets(run: Run) -> list[str]:
    """What a call takes of each of the three: CPU where all carry the same load, time where nobody else calls."""
    rows = [
        [
            proxy,
            f"{run.median(proxy, 'steady16', lambda sample: sample.cpu_per_1000 * 1000):.0f}",
            f"{run.median(proxy, 'one', lambda sample: sample.p50):.2f}",
        ]
        for proxy in run.proxies
    ]
    return table(["three budgets and two limits, short answers", "CPU µs, 1500 a second", "p50 ms, 1 connection"], rows)


def large_bodies(held: Held, refusals: Refusals | None) -> list[str]:
    per_byte = (held.peak - held.at_rest) / held.in_flight
    bodies = f"{held.asked} of {held.in_flight / held.asked:.0f} MiB at once, {held.answered} answered in {held.seconds:.1f} s"
    rise = f"memory rose from {held.at_rest:.0f} to {held.peak:.0f} MiB, {per_byte:.2f} bytes for each byte in flight"
    said = [f"Large bodies: {bodies}; {rise}."]
    if refusals:
        said.append(
            f"With `max_bodies` for {refusals.fit} of {refusals.asked}: {refusals.refused} refused before their body was sent,"
            f" {refusals.answered} answered, room again afterwards: {'yes' if refusals.room_again else 'no'}."
        )
    return said


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table that reads well unrendered too."""
    widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if place == 0 else cell.rjust(width) for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join((first, *others)) + " |"

    ruler = ["-" * widths[0], *("-" * (max(width, 2) - 1) + ":" for width in widths[1:])]
    return [line(titles), "| " + " | ".join(ruler) + " |", *map(line, rows)]
