"""Kill switches that several gateways share, as one hash on the Valkey or Redis server of `state`: what one of them was told, all hold to.

Each gateway keeps its own file too, so that nothing is forgotten while the server is away, or by it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from ..policies.ledger.server import Server
from .settings import State
from .stops_file import Turn, Turns, merged, newer, remembered, switch_of

KEY = "spangate:switches"
TIMEOUT = 0.25  # seconds for a step: a server that hangs must not keep a gateway from its file for long


def shared_by(state: State) -> SharedStops | None:
    """Where the gateways of this state tell each other; None: each is alone.

    Raises:
        ValueError: the address is none of a server; the message doesn't repeat it.
    """
    if state.backend == "memory" or state.url is None:
        return None
    return SharedStops(Server(state.url.get_secret_value(), cluster=state.cluster, timeout=TIMEOUT))


class SharedStops:
    """The hash: a field a switch, `stopped 2026-11-30T19:30:00+00:00` or `resumed …`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def exchange(self, mine: Turns, now: datetime) -> Turns:
        """Tell what is newer here; the newest that anybody knows.

        Raises:
            StateUnavailable:
        """
        theirs = _read(await self._server.fields(KEY))
        fresh = {switch: turn for switch, turn in mine.items() if newer(turn, theirs.get(switch))}
        gone = list(theirs.keys() - remembered(theirs, now).keys() - fresh.keys())
        if fresh or gone:
            await self._server.set_fields(KEY, {switch: _written(turn) for switch, turn in fresh.items()}, gone)
        return merged(theirs, fresh)

    async def close(self) -> None:
        await self._server.close()


def _read(fields: dict[str, str]) -> dict[str, Turn]:
    """What can be understood of it: somebody else may write there too."""
    found = {}
    for name, value in fields.items():
        word, _, at = value.partition(" ")
        try:
            found[switch_of(name)] = Turn({"stopped": True, "resumed": False}[word], datetime.fromisoformat(at).astimezone(UTC))
        except (ValueError, KeyError, OverflowError):
            continue
    return found


def _written(turn: Turn) -> str:
    return f"{'stopped' if turn.stopped else 'resumed'} {turn.at.astimezone(UTC).isoformat()}"
