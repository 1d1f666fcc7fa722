"""A stretch of network between a client and its server, over TCP: slow, cut, or leading elsewhere from now on.

    async with Between(server.where) as between:
        … between.url …
        between.delay = 0.6         # seconds that bytes take, each way
        between.where = other       # new connections lead there; those that there are stay as they are

`where` is a server's: the path of its Unix socket.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self


class Between:
    def __init__(self, where: Path) -> None:
        self.where = where
        self.delay = 0.0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = [writer]
        try:
            behind, into = await asyncio.open_unix_connection(self.where)
            ends.append(into)
            both = [asyncio.create_task(self._carried(reader, into)), asyncio.create_task(self._carried(behind, writer))]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass  # nobody is there: the client is told by the end of its connection
        finally:
            for end in ends:
                end.transport.abort()

    async def _carried(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
