"""Usage in the test's own process: a recorder whose writer runs, and what its database says.

async with accounts(tmp_path) as usage:
    usage.record(finished_call)
    assert await usage.rows("SELECT id FROM calls") == [["req_1"]]
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from spangate.call.clock import SYSTEM, Clock
from spangate.call.events import Usage
from spangate.call.seen import Seen
from spangate.exporters.usage.recorder import SpoolRecorder
from spangate.exporters.usage.settings import Price
from spangate.exporters.usage.settings import Usage as UsageSettings

import finished

_random = Random(7)


class Accounts(SpoolRecorder):
    """A recorder that can be asked."""

    async def rows(self, sql: str, parameters: Sequence[Any] = (), *, team: str | None = None) -> list[list[Any]]:
        return (await self.sql.query(sql, parameters, team=team)).rows

    async def value(self, sql: str, *, team: str | None = None) -> Any:
        [[value]] = await self.rows(sql, team=team)
        return value

    def plainly(self, statement: str) -> list[tuple[Any, ...]]:
        """Any statement, by the writer's own connection; when the writer has nothing to do."""
        found: list[tuple[Any, ...]] = self.writer.store.connection.execute(statement).fetchall()
        return found


@asynccontextmanager
async def accounts(
    folder: Path, *, prices: Sequence[Price] = (), clock: Clock = SYSTEM, start: bool = True, **settings: Any
) -> AsyncIterator[Accounts]:
    """Usage in `folder`/usage.duckdb, for as long as the block lasts."""
    written = UsageSettings(path="usage.duckdb", **{"retention": "30000d"} | settings)  # the tests' calls are of 2023
    usage = Accounts(written, prices, folder=folder, clock=clock)
    if start:
        await usage.start()
    try:
        yield usage
    finally:
        await usage.aclose()


def ended(**fields: Any) -> Seen:
    """A call that went well, with an id of its own and one attempt that used 13 and 20 tokens."""
    usage = fields.pop("usage", Usage(13, 20))
    seen = finished.call(
        **{"id": f"req_{_random.getrandbits(128):032x}", "organisation": "default", "team": "search", "key": "ci"} | fields
    )
    finished.attempt(seen, usage=usage)
    seen.provider, seen.target_model, seen.usage = "up", "m-big", usage
    return seen
