"""When somebody wants to hear of a budget: at which shares of it, and by which webhook.

A threshold is told once a window: as a note on a call, and as one signed request. Requests are sent by a task of their own, so that no
call waits for them; a few wait in a queue, and what is more is dropped and counted. Of several gateways with the same counters the one
tells that asks them first; where they can't be asked, it is told rather than not.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from ..call.amounts import Share
from ..call.clock import SYSTEM, Clock
from .ledger.ledger import Counter, Standing, StateUnavailable
from .windows import Rolling

log = logging.getLogger("spangate.budget")

REMEMBERED = 10_000  # counters of which it is known what was told
ASKING = 100  # thresholds that the other gateways are asked about at once
WAITING = 100  # requests
TRIES = 3
PAUSE = 1.0  # seconds before the second try, twice that before the third
SIGNATURE = "x-spangate-signature"

Send = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Posts a body to an address with headers; the status, or OSError where none came."""

First = Callable[[Counter, Decimal, int | None], Awaitable[bool]]
"""Whether this gateway is the first to tell of so much of a counter, in a window that ends then (UTC nanoseconds; None: never)."""


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("must be an address such as https://hooks.example.com/budgets, without a user or password")
    return value


class Thresholds(BaseModel):
    """When somebody wants to hear of a budget."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    at: Annotated[tuple[Share, ...], Field(min_length=1, max_length=10)] = (Decimal("0.5"), Decimal("0.8"), Decimal(1))
    """Shares of the limit, such as 80%. What a call was refused for has reached 100%."""
    webhook: Annotated[str, AfterValidator(_address)] | None = None
    """Who is told, by POST: an address that answers with a status of 2xx."""
    secret: SecretStr | None = None
    """What requests are signed with, so that whoever gets one knows that it is ours. docs/budgets.md says how."""

    @model_validator(mode="after")
    def _signed(self) -> Thresholds:
        if self.webhook is not None and (self.secret is None or len(self.secret.get_secret_value()) < 16):
            raise ValueError("a webhook needs a `secret` of 16 or more characters")
        return self


class Crossings:
    """Which thresholds were told of which counter, in the window that it is. A rolling one is over when its length has passed since.

    `first` is there where other gateways have the same counters. Its answer is waited for by a task, so a call that crosses a threshold may
    have ended by then: the note is then kept for the next one.
    """

    def __init__(self, first: First | None = None, *, clock: Clock = SYSTEM, remembered: int = REMEMBERED) -> None:
        self._first = first
        self._now = clock.wall
        self._told: OrderedDict[Counter, tuple[int | None, Decimal]] = OrderedDict()
        self._notes: OrderedDict[Counter, list[Mapping[str, Any]]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._remembered = remembered

    @property
    def shared(self) -> bool:
        return self._first is not None

    def look(self, thresholds: Thresholds, standing: Standing, used: int, *, refused: bool = False) -> Decimal | None:
        """The highest threshold that is reached by now and was not told yet: then it counts as told."""
        limit, counter = standing.limit, standing.counter
        reached = [each for each in thresholds.at if (refused and each <= 1) or (limit > 0 and used >= each * limit)]
        if not reached:
            return None
        highest, window, now = max(reached), counter.window, self._now()
        until, told = self._told.get(counter, (standing.resets_at, Decimal(-1)))
        over = until is None or until <= now if isinstance(window, Rolling) else until != standing.resets_at
        if highest <= told and not over:
            return None
        self.restore(counter, now + window.length if isinstance(window, Rolling) else standing.resets_at, highest)
        return highest

    def restore(self, counter: Counter, until: int | None, level: Decimal) -> None:
        """So much was told of the counter in the window that ends then; of a rolling one when it may be told again."""
        self._told[counter] = until, level
        self._told.move_to_end(counter)
        if len(self._told) > self._remembered:
            self._told.popitem(last=False)

    def tell(self, counter: Counter, level: Decimal, note: Mapping[str, Any], and_then: Callable[[], None]) -> None:
        """Keep the note for a call, `and_then` do that; if this gateway is the first to do so."""
        if self._first is None or len(self._tasks) >= ASKING:
            self._keep(counter, note)
            and_then()
            return
        task = asyncio.get_running_loop().create_task(self._ask(self._first, counter, level, note, and_then), name="spangate.thresholds")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def notes(self, counter: Counter) -> Sequence[Mapping[str, Any]]:
        """What is kept for the next call that concerns the counter."""
        return self._notes.pop(counter, ()) if self._notes else ()

    async def known(self) -> None:
        """Wait until it is known who tells of what was asked about."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """What no call came for to note it on stands in the log."""
        await self.known()
        while self._notes:
            self._log_oldest()

    async def _ask(self, first: First, counter: Counter, level: Decimal, note: Mapping[str, Any], and_then: Callable[[], None]) -> None:
        with suppress(StateUnavailable):
            if not await first(counter, level, self._told.get(counter, (None,))[0]):
                return
        self._keep(counter, note)
        and_then()

    def _keep(self, counter: Counter, note: Mapping[str, Any]) -> None:
        self._notes.setdefault(counter, []).append(note)
        if len(self._notes) > self._remembered:
            self._log_oldest()

    def _log_oldest(self) -> None:
        """What is kept for no call any more is told here."""
        for note in self._notes.popitem(last=False)[1]:
            log.warning("the budget %s of %s reached %s of its limit", note["name"], note["scope"], note["threshold"])


class Post(msgspec.Struct, frozen=True):
    """One request that waits."""

    url: str
    secret: str
    body: bytes


class Webhooks:
    """Sends requests, one after the other. `dropped` counts those that nobody took."""

    def __init__(self, send: Send, *, clock: Clock = SYSTEM, waiting: int = WAITING, pause: float = PAUSE) -> None:
        self._send = send
        self._clock = clock
        self._posts: deque[Post] = deque()
        self._most = waiting
        self._pause = pause
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def tell(self, thresholds: Thresholds, event: Mapping[str, Any]) -> None:
        """Soon. Where nobody wants to be told, nothing happens."""
        if thresholds.webhook is None or thresholds.secret is None:
            return
        if len(self._posts) >= self._most:
            self.dropped += 1
            return
        self._posts.append(_post(thresholds, event))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="spangate.webhooks")

    async def test(self, thresholds: Thresholds, event: Mapping[str, Any]) -> str:
        """What a webhook answers to this: `200`, or why nothing came."""
        try:
            return str(await self.post(_post(thresholds, event)))
        except OSError as error:
            return str(error) or type(error).__name__

    async def post(self, post: Post) -> int:
        """Send one now; the status.

        Raises:
            OSError: no answer came.
        """
        seconds = self._clock.wall() // 10**9
        headers = {"content-type": "application/json", SIGNATURE: signature(post.secret, seconds, post.body)}
        return await self._send(post.url, headers, post.body)

    async def aclose(self, patience: float = 2.0) -> None:
        """Send what waits, within so many seconds."""
        task, self._task = self._task, None
        if task is None:
            return
        await asyncio.wait([task], timeout=patience)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self.dropped += len(self._posts)

    async def _run(self) -> None:
        while self._posts:
            post = self._posts[0]
            sent = await self._tried(post)
            self._posts.popleft()
            if not sent:
                self.dropped += 1

    async def _tried(self, post: Post) -> bool:
        told = ""
        for again in range(TRIES):
            if again:
                await asyncio.sleep(self._pause * again)
            try:
                status = await self.post(post)
            except OSError as error:
                told = type(error).__name__
                continue
            if 200 <= status < 300:
                return True
            told = f"status {status}"
        log.warning("a webhook of a budget was not taken (%s): the threshold is in the log and in decisions all the same", told)
        return False


def _post(thresholds: Thresholds, event: Mapping[str, Any]) -> Post:
    secret = thresholds.secret.get_secret_value() if thresholds.secret else ""
    return Post(thresholds.webhook or "", secret, json.dumps(event, separators=(",", ":"), default=str).encode("ascii"))


def signature(secret: str, seconds: int, body: bytes) -> str:
    """`t=SECONDS,v1=HEX`: the HMAC-SHA256 of `SECONDS.BODY`, so that nobody can send an old one again."""
    return f"t={seconds},v1={hmac.new(secret.encode(), b'%d.%b' % (seconds, body), hashlib.sha256).hexdigest()}"
