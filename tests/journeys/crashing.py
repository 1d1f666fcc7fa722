"""A gateway that keeps its usage in a folder, run as a program so that it can be killed. Says where it listens, then when it is ready."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from spangate.exporters.usage.recorder import SpoolRecorder
from spangate.exporters.usage.settings import Usage
from spangate.proxy import config
from spangate.proxy.app import App, Setting


async def main(folder: Path) -> None:
    recorder = SpoolRecorder(Usage(path="usage.duckdb"), folder=folder)
    app = App(config.load(folder / "spangate.yaml", environ={}), Setting(recorder, usage=recorder))
    address = await app.start("127.0.0.1", 0)
    print("listens", address.port, flush=True)
    await recorder.writer.caught_up()
    print("ready", recorder.state.interrupted, flush=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await app.drain(5)


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
