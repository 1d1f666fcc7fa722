"""A gateway that keeps its usage in a folder, run as a program so that it can be killed. Says where it listens, then when it is ready."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import uvloop

from spangate.call.call import Call
from spangate.call.chain import Next
from spangate.call.events import Event
from spangate.exporters import observe
from spangate.exporters.usage.recorder import SpoolRecorder
from spangate.exporters.usage.settings import Usage
from spangate.proxy import config
from spangate.proxy.app import App, Setting

attempted = observe.Attempt.__call__


def tell_openings(recorder: SpoolRecorder) -> None:
    """What the gateway does itself once it knows a recorder that wants to be told."""
    if hasattr(recorder, "wired"):
        return

    async def told(self: observe.Attempt, call: Call, next: Next) -> AsyncIterator[Event]:
        if not call.seen.attempts:
            recorder.opened(call.seen)
        async with aclosing(attempted(self, call, next)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    observe.Attempt.__call__ = told  # type: ignore[method-assign]


async def main(folder: Path) -> None:
    recorder = SpoolRecorder(Usage(path="usage.duckdb"), folder=folder)
    tell_openings(recorder)
    await recorder.start()
    app = App(config.load(folder / "spangate.yaml", environ={}), Setting(recorder))
    address = await app.start("127.0.0.1", 0)
    print("listens", address.port, flush=True)
    await recorder.writer.caught_up()
    print("ready", recorder.state.interrupted, flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await app.drain(5)
    await recorder.aclose()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
