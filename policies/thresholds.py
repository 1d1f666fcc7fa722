"""When somebody wants to hear of a budget: at which shares of it, and by which webhook.

A threshold is told once a window: as a note on the call that crossed it, and as one signed request. Requests are sent by a task of their
own, so that no call waits for them; a few wait in a queue, and what is more is dropped and counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from ..call.amounts import Share
from ..call.clock import SYSTEM, Clock
from .ledger.ledger import Counter, Standing

log = logging.getLogger("spangate.budget")

REMEMBERED = 10_000  # counters of which it is known what was told
WAITING = 100  # requests
TRIES = 3
PAUSE = 1.0  # seconds before the second try, twice that before the third
SIGNATURE = "x-spangate-signature"

Send = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Posts a body to an address with headers; the status, or OSError where none came."""


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
    """Which thresholds were told of which counter, in the window that it is."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._told: OrderedDict[Counter, tuple[int | None, Decimal]] = OrderedDict()
        self._remembered = remembered

    def look(self, thresholds: Thresholds, standing: Standing, used: int, *, refused: bool = False) -> Decimal | None:
        """The highest threshold that is reached by now and was not told yet."""
        limit = standing.limit
        reached = [each for each in thresholds.at if (refused and each <= 1) or (limit > 0 and used >= each * limit)]
        if not reached:
            return None
        highest, counter = max(reached), standing.counter
        window, told = self._told.get(counter, (standing.resets_at, Decimal(-1)))
        if window == standing.resets_at and highest <= told:
            return None
        self._told[counter] = (standing.resets_at, highest)
        self._told.move_to_end(counter)
        if len(self._told) > self._remembered:
            self._told.popitem(last=False)
        return highest


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
