"""What outlives a reload: the ledger that `state` asks for, and all that calls share beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..call.clock import Clock
from ..call.errors import ProviderFault
from ..exporters.usage.recorder import SpoolRecorder
from ..policies.bounds import SHADOW, counter_name
from ..policies.charge import Books, books_of
from ..policies.ledger.ledger import Counter, Ledger, Spent, nano_up
from ..policies.ledger.memory import MemoryLedger
from ..policies.thresholds import REMEMBERED, Send, Webhooks
from ..policies.windows import Rolling, window
from .config import Config
from .origin import Origin
from .settings import State
from .upstream import Sender

if TYPE_CHECKING:
    from ..policies.ledger.valkey import ValkeyLedger

PAGE = 5000  # rows
STEP = 50  # of them that are counted before the loop gets a turn
_KNOWN = """SELECT organisation, name, scope, unit, "window", mode, epoch(resets_at), used::VARCHAR FROM budgets
    WHERE resets_at IS NULL OR resets_at > now() AT TIME ZONE 'UTC' ORDER BY ALL LIMIT $1 OFFSET $2"""

_TOLD = """SELECT c.organisation, d.figures->>'name', d.figures->>'scope', d.figures->>'unit', d.figures->>'window', d.mode,
        epoch((d.figures->>'resets_at')::TIMESTAMP) AS until, max((d.figures->>'threshold')::DOUBLE) AS level, epoch(max(c.ended_at))
    FROM decisions d JOIN calls c ON c.id = d.call_id WHERE d.policy = 'budget' AND d.kind = 'threshold'
    AND (until IS NULL OR until > epoch(now())) GROUP BY ALL ORDER BY level LIMIT $1"""

CONNECT, ANSWER = 5.0, 10.0  # seconds that a webhook may take to be reached, and to answer
PATIENCE = 5.0  # seconds in which what is settled must be written before the process ends


def books_for(config: Config, client: Sender, clock: Clock) -> Books:
    """
    Raises:
        ValueError: `state.url` is no address; the message doesn't repeat it.
    """
    ledger = ledger_of(config.settings.state, clock)
    return books_of(ledger, clock=clock, local=MemoryLedger(clock=clock), webhooks=Webhooks(posting(client), clock=clock))


def ledger_of(state: State, clock: Clock) -> Ledger:
    """
    Raises:
        ValueError: the address is none.
    """
    if state.backend == "memory" or state.url is None:
        return MemoryLedger(clock=clock)
    from ..policies.ledger.valkey import ValkeyLedger  # whose client is loaded by those alone who have a server

    return ValkeyLedger(state.url.get_secret_value(), cluster=state.cluster, lease=state.lease, clock=clock)


def shared(ledger: Ledger) -> ValkeyLedger | None:
    """The ledger, if it is one that several gateways share."""
    if isinstance(ledger, MemoryLedger):
        return None
    from ..policies.ledger.valkey import ValkeyLedger

    return ledger if isinstance(ledger, ValkeyLedger) else None


def foreign(ledger: Ledger) -> Mapping[str, str]:
    """Keys on the server in which somebody else put something, and its type."""
    server = shared(ledger)
    return {} if server is None else server.foreign


def lost(ledger: Ledger) -> int:
    """How many calls the shared counters were never told the end of, or too late."""
    server = shared(ledger)
    return 0 if server is None else server.lost


async def restore(books: Books, usage: SpoolRecorder | None) -> int:
    """Count what was used before this process began, and what was held then and never settled: how many sums there were. What was told of
    is known again too. A ledger on a server knows by itself.

    Raises:
        OurFault: the database can't be read now.
    """
    ledger = books.ledger
    if usage is None or not isinstance(ledger, MemoryLedger):
        return 0
    for row in (await usage.sql.query(_TOLD, [REMEMBERED])).rows:
        _told(books, row)
    count = 0
    while True:
        found = (await usage.sql.query(_KNOWN, [PAGE, count])).rows
        for start in range(0, len(found), STEP):
            rows = found[start : start + STEP]
            ledger.restore([spent for row in rows if (spent := _spent(row, books.clock.wall())) is not None])
            await asyncio.sleep(0)  # others may be served meanwhile
        count += len(found)
        if len(found) < PAGE:
            return count


def _spent(row: Sequence[Any], now: int) -> Spent | None:
    """A row of `budgets` as the ledger counts it; None: it is in no window that there is."""
    *named, until, used = row
    try:
        counter = _counter(named)
        amount = nano_up(Decimal(used))
    except (ValueError, ArithmeticError):
        return None
    when = counter.window
    at = now if until is None else round(until * 1e6) * 1000 - 1
    if until is not None and isinstance(when, Rolling):
        at -= when.length + when.slot // 2
    return Spent(counter, at, amount)


def _told(books: Books, row: Sequence[Any]) -> None:
    """A threshold of which somebody was told."""
    organisation, name, scope, unit, text, mode, until, level, at = row
    home = scope if scope.startswith("provider:") else organisation
    try:
        counter = _counter((home, name, scope, unit, text, mode))
    except ValueError:
        return
    ends = None if until is None else round(until * 1e6) * 1000
    if isinstance(counter.window, Rolling):
        ends = round(at * 1e6) * 1000 + counter.window.length
    books.crossings.restore(counter, ends, Decimal(str(level)))


def _counter(named: Sequence[str]) -> Counter:
    """By its home, name, scope, unit, window and mode, as rows have them.

    Raises:
        ValueError: there is no such window.
    """
    home, name, scope, unit, text, mode = named
    kind, _, whose = scope.partition(":")
    if kind == "tag":
        tag, _, whose = whose.partition(":")
        kind = f"tag:{tag}"
    return Counter(home, counter_name(name, unit, kind, shadow=mode == SHADOW), whose, window(text))


async def close(books: Books) -> int:
    """Write what is settled, send what waits. How many calls are settled nowhere."""
    left = await books.ledger.drain(PATIENCE)
    await books.crossings.aclose()
    if books.webhooks is not None:
        await books.webhooks.aclose()
    await books.ledger.close()
    books.tokens.close()
    return left


def posting(client: Sender) -> Send:
    """Posts by the client that providers are asked with."""

    async def post(url: str, headers: Mapping[str, str], body: bytes) -> int:
        parts = urlsplit(url)
        origin = Origin.parse(f"{parts.scheme}://{parts.netloc}")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fields = tuple((name.encode(), value.encode()) for name, value in headers.items())
        try:
            async with asyncio.timeout(ANSWER):
                answer = await client.send(b"POST", origin, path, fields, (body,), connect=CONNECT)
        except ProviderFault as fault:
            raise OSError(fault.code) from None
        answer.close()
        return answer.status

    return post
