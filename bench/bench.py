"""Measure spangate beside nginx and a direct connection, on this machine, in a few minutes. Standard library only.

The order of a run stands here: build, start, warm up, rounds, budgets and limits, large bodies, verdict. Exit 0: every goal met; 1: one
missed; 2: it couldn't be measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves the script's own folder out

import memory
from cases import CASES, USUAL, Case, Sample, measure
from counters import control, start_valkey
from pace import pace
from page import NO_NGINX, Machine, Outcome, page, terminal
from processes import MIB, Unusable, compiled, cpus
from proxies import Proxy, find_nginx, rules, start_mock, start_nginx, start_spangate
from trips import Moments, Trips, count, provider
from verdict import Admission, Run, admission_lines, lines, memory_lines

PROXIES = ("direct", "nginx", "spangate", "everything")
ADMITTING = ("spangate", "budgets", "shared")
ADMITTED = tuple(case for case in CASES if case.name in {"one", "steady16"})
LIVES, ROUNDS, SECONDS = 5, 5, 0.5
"""For budgets and limits. What they add is little, so the turns are short and many; and as little as that one process has over another by
where its memory happens to lie, so each gateway is started afresh some times."""
MAX_BODIES = 100 * MIB


class Bench:
    """A folder with the two programs in it, and where they run."""

    def __init__(self, folder: Path, *, pin: bool = True) -> None:
        self.folder = folder
        available = cpus() if pin else []
        self.proxy_cpu: int | None = available[0] if available else None
        self.other_cpu: int | None = available[1] if available else None
        self.mock_program, self.driver = compiled("mock", folder), compiled("load", folder)

    @contextmanager
    def started(self, names: Sequence[str]) -> Iterator[list[Proxy]]:
        """The named ways to a mock of their own, ended at the end."""
        with ExitStack() as ends:
            mock, port = start_mock(self.mock_program, self.folder, self.other_cpu)
            ends.callback(mock.end)
            proxies = []
            for name in names:
                proxies.append(self.start(name, port, ends))
                if process := proxies[-1].process:
                    ends.callback(process.end)
            yield proxies

    def start(self, name: str, mock: int, ends: ExitStack) -> Proxy:
        if name == "direct":
            return Proxy("direct", mock)
        if name == "nginx":
            program = find_nginx()
            assert program is not None, "asked for only when found"
            return start_nginx(program, self.folder, mock, self.proxy_cpu)
        if name == "spangate-small":
            return start_spangate(self.folder, mock, self.proxy_cpu, max_bodies=f"{MAX_BODIES // MIB}MiB", name=name)
        if name == "everything":
            collector, port = start_mock(self.mock_program, self.folder, self.other_cpu, name="collector")
            ends.callback(collector.end)
            return start_spangate(self.folder, mock, self.proxy_cpu, name=name, collector=port)
        if name == "budgets":
            return start_spangate(self.folder, mock, self.proxy_cpu, name=name, more=rules())
        if name == "shared":
            server, port = start_valkey(self.folder, self.other_cpu)
            ends.callback(server.end)
            return start_spangate(self.folder, mock, self.proxy_cpu, name=name, more=rules(valkey=port))
        return start_spangate(self.folder, mock, self.proxy_cpu)

    def rounds(self, names: Sequence[str], cases: Sequence[Case], count: int, seconds: float) -> list[Sample]:
        """All cases through all proxies, round after round. Who begins changes, so that nobody always follows the same one."""
        samples = []
        with self.started(names) as proxies:
            for case in cases:
                for proxy in proxies:
                    self.sample(proxy, case, min(seconds, 0.5), 0)
            for turn in range(1, count + 1):
                for case in cases:
                    shift = turn % len(proxies)
                    samples += [self.sample(proxy, case, seconds, turn) for proxy in proxies[shift:] + proxies[:shift]]
                tell(f"round {turn} of {count}")
        return sorted(samples, key=lambda sample: names.index(sample.proxy))

    def sample(self, proxy: Proxy, case: Case, seconds: float, turn: int) -> Sample:
        sample = measure(self.driver, self.folder, proxy, case, seconds, turn=turn, cpu=self.other_cpu)
        return replace(sample, pace=pace(self.proxy_cpu))

    def admission(self, lives: int = LIVES, count: int = ROUNDS, seconds: float = SECONDS) -> Admission:
        """The gateway without budgets and limits, with them, and with them on a Valkey, in turns, in so many lives of each."""
        samples = []
        for life in range(1, lives + 1):
            tell(f"budgets and limits, {life} of {lives}")
            samples += self.rounds(ADMITTING, ADMITTED, count, seconds)
        return Admission(Run(samples), self.trips(), self.trips(of_provider=True))

    def trips(self, *, of_provider: bool = False) -> Trips:
        with ExitStack() as ends:
            server, port = start_valkey(self.folder, self.other_cpu)
            ends.callback(server.end)
            told = ends.enter_context(control(port))
            moments = Moments(told)
            mock = ends.enter_context(provider(moments.asked))
            written = rules(of_provider=of_provider, valkey=port)
            proxy = start_spangate(self.folder, mock, self.proxy_cpu, name="trips", more=written)
            assert proxy.process is not None
            ends.callback(proxy.process.end)
            return count(proxy, told, moments)

    def large_bodies(self) -> tuple[memory.Held, memory.Refusals]:
        tell("large bodies")
        with self.started(["spangate"]) as (proxy,):
            self.sample(proxy, CASES[0], 0.3, 0)
            held = memory.hold(proxy)
        with self.started(["spangate-small"]) as (proxy,):
            return held, memory.overfill(proxy, MAX_BODIES)


def tell(progress: str) -> None:
    if sys.stderr.isatty():
        print(progress, file=sys.stderr)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--secs", type=float, default=1.5, help="seconds a case, proxy and round (1.5)")
    parser.add_argument("--cases", default=",".join(USUAL), help="of " + ", ".join(case.name for case in CASES))
    parser.add_argument("--proxies", default=",".join(PROXIES), help="of " + ", ".join(PROXIES))
    parser.add_argument("--no-large-bodies", action="store_true", help="leave the memory case out")
    parser.add_argument("--no-budgets", action="store_true", help="leave budgets and limits out")
    parser.add_argument("--no-pin", action="store_true", help="leave the choice of CPUs to the system")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there: docs/performance.md")
    chosen = parser.parse_args(arguments)
    chosen.cases = [case for case in CASES if case.name in chosen.cases.split(",")]
    chosen.proxies = [name for name in PROXIES if name in chosen.proxies.split(",")]
    if chosen.rounds < 1 or chosen.secs <= 0 or not chosen.cases or not chosen.proxies:
        parser.error("nothing to measure")
    return chosen


def run(chosen: argparse.Namespace, folder: Path) -> Outcome:
    names, remarks, nginx = chosen.proxies, [], find_nginx()
    if "nginx" in names and nginx is None:
        names, remarks = [name for name in names if name != "nginx"], [NO_NGINX]
        print(f"{NO_NGINX} To have it: apt-get install nginx-light", file=sys.stderr)
    bench = Bench(folder, pin=not chosen.no_pin)
    samples = Run(bench.rounds(names, chosen.cases, chosen.rounds, chosen.secs))
    judged, admission, held, refusals = lines(samples), None, None, None
    if "spangate" in names and not chosen.no_budgets:
        admission = bench.admission()
        judged += admission_lines(admission)
    if "spangate" in names and not chosen.no_large_bodies:
        held, refusals = bench.large_bodies()
        judged += memory_lines(held, refusals)
    pinned = bench.proxy_cpu is not None
    return Outcome(Machine.this(nginx), chosen.rounds, chosen.secs, pinned, samples, judged, admission, held, refusals, remarks)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    with tempfile.TemporaryDirectory(prefix="spangate-bench-") as folder:
        try:
            outcome = run(chosen, Path(folder))
        except Unusable as why:
            print(f"bench: {why}", file=sys.stderr)
            return 2
    print(terminal(outcome))
    if chosen.json:
        chosen.json.write_text(json.dumps(outcome.as_json(), indent=1, allow_nan=False) + "\n", "utf-8")
    if chosen.write:
        chosen.write.write_text(page(outcome), "utf-8")
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
