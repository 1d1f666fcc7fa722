"""SQL over usage by HTTP: all rows for whoever holds the admin token or may open the socket, a team's own rows for its keys.

A query may take seconds, so each asker has a few at a time; what is above waits outside, and no model call waits for any of them.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

import msgspec

from ..call.errors import CallerFault, Refused
from ..exporters.usage.recorder import SpoolRecorder
from ..exporters.usage.sql import Answer
from .callers import presented_key
from .exchange import Exchange
from .gateway import Gateway
from .intake import Full, Guest, House, read_all
from .jsonbody import read_body
from .settings import Server

PATHS = ("/admin/sql", "/usage/sql")
AT_ONCE = 4  # queries of one asker, those that wait for others included
LARGEST = 256 * 1024  # bytes of a request
_PIECE = 256 * 1024  # bytes that are written down, about, before the loop gets a turn


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request."""

    sql: str
    params: list[Any] | dict[str, Any] = []


class Desk:
    """Where people ask. `usage` None: there is nothing to ask of."""

    def __init__(self, usage: SpoolRecorder | None) -> None:
        self._usage = usage
        self._houses: dict[str | None, House] = {}

    async def admin(self, exchange: Exchange, gateway: Gateway) -> None:
        """All rows, for the admin token."""
        check_token(exchange, gateway)
        await self.local(exchange, gateway)

    async def team(self, exchange: Exchange, gateway: Gateway) -> None:
        """A team's rows, for its keys. A gateway without teams keeps its rows under no team's name."""
        caller = gateway.callers.who(exchange.headers, has_body=exchange.has_body)
        await self._answer(exchange, gateway, caller.team)

    async def local(self, exchange: Exchange, gateway: Gateway) -> None:
        """All rows, for whoever got here."""
        await self._answer(exchange, gateway, None)

    async def _answer(self, exchange: Exchange, gateway: Gateway, team: str | None) -> None:
        usage = self._usage
        if usage is None:
            raise Refused("No usage is kept here: add `usage: {path: spangate.duckdb}` to spangate.yaml.", code="not_found")
        limits = _limits(gateway.config.server)
        house = self._houses.setdefault(team, House())
        try:
            guest = Guest(house, limits)
        except Full:
            raise Full(f"Only {AT_ONCE} queries may run at once; try again.") from None
        try:
            asked = await _read(await read_all(exchange, guest, limits))
            answer = await usage.sql.query(asked.sql, asked.params, team=team)
            await exchange.answer(200, {"content-type": "application/json", "cache-control": "no-store"}, await written(answer))
        finally:
            guest.leave()
            if not house.calls:
                self._houses.pop(team, None)


def check_token(exchange: Exchange, gateway: Gateway) -> None:
    """
    Raises:
        Refused: not_found where no token is set, invalid_api_key where another is shown.
    """
    token = gateway.config.server.admin_token
    if token is None:
        raise Refused(f"There is nothing at {exchange.path}: without server.admin_token /admin is off.", code="not_found")
    shown = presented_key(exchange.headers).encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(shown, token.get_secret_value().encode()):
        raise Refused("This needs the admin token: send it as 'Authorization: Bearer …'.", code="invalid_api_key")


def _limits(server: Server) -> Server:
    return server.model_copy(update={"max_calls": AT_ONCE, "max_body": LARGEST})


async def _read(raw: bytes) -> Asked:
    await read_body(raw)  # which says in our words what is wrong with it as JSON
    try:
        return msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=Asked)
    except msgspec.ValidationError as error:
        raise CallerFault(f"The body must be {{'sql': '…', 'params': […]}}: {error}.") from None
    except msgspec.DecodeError:
        raise CallerFault("The body holds half of a character.") from None


async def written(answer: Answer) -> bytes:
    """As JSON, a row at a time: an answer may be large, and others are waiting for the loop."""
    encode = msgspec.json.encode
    head = encode({"columns": answer.columns, "types": answer.types, "truncated": answer.truncated, "seconds": answer.seconds})
    pieces = []
    fresh = 0
    for row in answer.rows:
        pieces.append(encode(row))
        fresh += len(pieces[-1])
        if fresh > _PIECE:
            fresh = 0
            await asyncio.sleep(0)
    return b"".join((head[:-1], b',"rows":[', b",".join(pieces), b"]}"))
