"""How long one step holds the event loop: spangate in this process, on asyncio's own loop, with every callback timed from outside.

    python bench/steps.py                      each case with the longest step, in milliseconds of CPU
    python bench/steps.py --watch FILE serve … spangate's own command line, watched; writes what it saw to FILE at the end

Steps are timed by the thread's CPU clock, so that other load on the machine doesn't look like a long step. The product runs on
uvloop, whose callbacks can't be watched; what our code does in a step is the same on both.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python -P leaves the script's own folder out

from cases import CASES, Case, measure
from page import table
from processes import Unusable
from proxies import start_mock, start_spangate

from bench import Bench

LONG = 0.001  # seconds: what no step should take for a body of up to 1 MiB
START = "_serve"  # the program's own task: it starts the gateway, collects garbage and waits; nobody is served meanwhile
LARGE = Case("prompt4", "1 MiB prompts, 4 connections", 4, prompt_size=1 << 20)
WATCHED = (*(case for case in CASES if case.name in {"whole16", "burst16", "paced64"}), LARGE)


class Watch:
    """How many steps there were, how many were long, and the longest of each name."""

    def __init__(self) -> None:
        self.steps = self.long = 0
        self.longest: dict[str, float] = {}

    def timed(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        def step(handle: Any) -> None:
            name, began = step_name(handle), time.thread_time()
            run(handle)
            self.saw(name, time.thread_time() - began)

        return step

    def saw(self, name: str, took: float) -> None:
        if name == START:
            return
        self.steps += 1
        self.long += took > LONG
        self.longest[name] = max(took, self.longest.get(name, 0.0))

    def as_json(self) -> dict[str, object]:
        return {"steps": self.steps, "long": self.long, "longest": self.longest}


def step_name(handle: Any) -> str:
    """Of a task's step its coroutine, of any other callback the function."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    called = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return getattr(called, "__qualname__", type(called).__name__)


def watch(file: Path, arguments: Sequence[str]) -> None:
    """Be spangate, and write its steps down at the end."""
    import uvloop

    from spangate.proxy.cli import main as spangate

    seen, handles = Watch(), asyncio.events.Handle
    setattr(handles, "_run", seen.timed(handles._run))  # noqa: B010 - replaced from outside, which a checker can't approve of
    setattr(uvloop, "new_event_loop", asyncio.new_event_loop)  # noqa: B010
    try:
        spangate(list(arguments))
    finally:
        file.write_text(json.dumps(seen.as_json()), "utf-8")


def watched(bench: Bench, case: Case, seconds: float) -> dict[str, Any]:
    """One case on a gateway of its own, from the first call to the last."""
    file = bench.folder / f"{case.name}.steps"
    mock, port = start_mock(bench.mock_program, bench.folder, bench.other_cpu)
    try:
        program = [sys.executable, "-P", __file__, "--watch", str(file)]
        proxy = start_spangate(bench.folder, port, bench.proxy_cpu, program=program)
        try:
            measure(bench.driver, bench.folder, proxy, case, seconds, cpu=bench.other_cpu)
        finally:
            assert proxy.process is not None
            proxy.process.end()
    finally:
        mock.end()
    if not file.exists():
        raise Unusable(f"{case.name}: the gateway didn't end; its last words:\n{proxy.process.last_words()}")
    told: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return told


def milliseconds(named: tuple[str, float]) -> str:
    return f"{named[0]} {named[1] * 1000:.2f} ms"


def main() -> int:
    rows = []
    with tempfile.TemporaryDirectory(prefix="spangate-steps-") as folder:
        try:
            bench = Bench(Path(folder))
            for case in WATCHED:
                told = watched(bench, case, 2.0)
                first, *others = sorted(told["longest"].items(), key=lambda named: -named[1])[:3]
                rows.append([case.words, str(told["steps"]), str(told["long"]), milliseconds(first)])
                rows += [["", "", "", milliseconds(other)] for other in others]
        except Unusable as why:
            print(f"steps: {why}", file=sys.stderr)
            return 2
    print("\n".join(table(["", "steps", "above 1 ms", "longest"], rows)))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        watch(Path(sys.argv[2]), sys.argv[3:])
    else:
        sys.exit(main())
