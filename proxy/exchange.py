"""One HTTP exchange, as the pipeline sees it: a head, a body to read, an answer to write. Whoever speaks HTTP to clients gives one;
nothing behind this knows aiohttp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .callers import Headers


class Exchange(Protocol):
    """`path` is the raw path without query. `length` is the Content-Length, None where the body comes in chunks. `events`: the answer
    that was begun is a stream of events, so that one more can tell of an error. `extra` are headers that go out with whatever is
    answered."""

    method: str
    path: str
    headers: Headers
    length: int | None
    has_body: bool
    started: bool
    events: bool
    extra: Mapping[str, str]

    @property
    def client_address(self) -> str:
        """The address of whoever is connected, "" if it can't be told."""
        ...

    @property
    def http_version(self) -> str:
        """`1.1` or `1.0`."""
        ...

    @property
    def gone(self) -> bool:
        """The client has left: whatever is written, nobody reads."""
        ...

    @property
    def arrived(self) -> bool:
        """The whole body is here: reading it waits for nothing."""
        ...

    async def read(self) -> bytes:
        """The next piece of the body, b"" at its end.

        Raises:
            CallerFault: its framing is broken, or it took too long.
        """
        ...

    def ask_for_body(self, *, within: float) -> None:
        """The rest of the body is wanted, in so many seconds; send `100 Continue` if the client waits for that."""
        ...

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin an answer whose length isn't known."""
        ...

    async def write(self, data: bytes) -> None:
        """Give the client more; waits while it is slow. If that wait is cancelled, all of `data` goes out nevertheless.

        Raises:
            ConnectionError: it has left.
        """
        ...

    async def end(self, last: bytes = b"") -> None:
        """The answer is whole with `last`, which goes out together with what ends it."""
        ...

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A whole answer at once."""
        ...

    def close_after(self) -> None:
        """Don't keep the connection: what is left of the request won't be read."""
        ...

    def abort(self) -> None:
        """Cut the connection: an answer that began can't be ended well."""
        ...
