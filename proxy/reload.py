"""Watching the configuration: when spangate.yaml or its keys file changes, load it, and apply what is good.

A bad file never replaces a good one. What counts is content, not events: the files are read again twice a second, which sees an
editor's rename, the swap of a Kubernetes ConfigMap's link and a network file system alike; file events miss some of these, and
watching for them would be one more way for a change to go unnoticed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeVar

from .config import Config, without_revoked
from .contents import content_of
from .mistakes import ConfigMistakes, Mistake

Read = TypeVar("Read")

log = logging.getLogger("spangate.reload")

LOOK_EVERY = 0.5
# A file counts once two looks so far apart see the same: half of a file is often good YAML with teams missing.
SETTLE = 0.1
# An editor may empty or move a file before it writes the new one. For so long that is no mistake and revokes no key.
PATIENCE = 0.4
# One that never rests is loaded all the same.
LONGEST = 1.2


@dataclass(frozen=True, slots=True)
class _State:
    """What the watched files held at one moment; `gone`: one that was loaded isn't there, or is empty."""

    digests: tuple[tuple[Path, str], ...]
    gone: bool


class Reload:
    """One owned task that keeps the configuration in step with its files.

    `load` reads them (in a thread: it takes longer than the loop may stand still). `apply` takes a good configuration into use, or
    raises ConfigMistakes too and leaves all as it was. `refused` hears the mistakes, once while they stay the same, and may not raise.
    Keys that were revoked end all the same: `rekey` takes the running configuration without them into use, and may not raise.
    `config` is the one in use, `mistakes` are those that stand in the way of a newer one.
    """

    def __init__(
        self,
        config: Config,
        *,
        load: Callable[[], Config],
        apply: Callable[[Config], None],
        refused: Callable[[Sequence[Mistake]], None],
        rekey: Callable[[Config], None],
    ) -> None:
        self.config = config
        self.mistakes: tuple[Mistake, ...] = ()
        self._load = load
        self._apply = apply
        self._refused = refused
        self._rekey = rekey
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._forced = False
        self._torn = False
        self._seen: _State | None = None
        self._task: asyncio.Task[None] | None = None
        # Of its own: those of the loop look up names, and a name server that is gone would keep a revoked key alive.
        self._thread = ThreadPoolExecutor(1, "spangate.reload")

    def start(self) -> None:
        """Begin to watch. What changed since `config` was loaded is seen at once."""
        self._task = asyncio.create_task(self._run(), name="spangate.reload")
        self._task.add_done_callback(_ended)

    def soon(self) -> None:
        """Load and apply again whether or not a file changed: SIGHUP."""
        self._forced = True
        self._wake.set()

    async def stop(self) -> None:
        """Stop watching; nothing of it runs afterwards."""
        self._stopping.set()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            await self._look()
            await self._rest(LOOK_EVERY)

    async def _look(self) -> None:
        forced, self._forced = self._forced, False
        state = await self._settled(forced=forced)
        if self._stopping.is_set() or (state == self._seen and not forced):
            return
        self._seen = state
        try:
            config = await self._aside(self._load)
            if forced or self.mistakes or config.version != self.config.version:
                self._apply(config)
                self.config, self.mistakes = config, ()
        except ConfigMistakes as error:
            if not self._torn and await self._aside(self._state) != state:  # written to while it was read: look again before judging
                self._torn = True
                self._wake.set()
                return
            self._refuse(tuple(error.mistakes))
            await self._revoke()
        self._torn = False

    async def _revoke(self) -> None:
        config = await self._aside(partial(without_revoked, self.config))
        if config is not self.config:
            self._rekey(config)
            self.config = config

    async def _aside(self, reading: Callable[[], Read]) -> Read:
        return await asyncio.get_running_loop().run_in_executor(self._thread, reading)

    def _refuse(self, mistakes: tuple[Mistake, ...]) -> None:
        if mistakes != self.mistakes:
            self.mistakes = mistakes
            self._refused(mistakes)

    async def _settled(self, *, forced: bool) -> _State:
        """What the files hold, once it holds still."""
        since = monotonic()
        state = await self._aside(self._state)
        while state != self._seen and not forced and not self._stopping.is_set():
            if self._seen is None and not state.gone:
                break
            await asyncio.sleep(SETTLE)
            before, state = state, await self._aside(self._state)
            waited = monotonic() - since
            if waited >= LONGEST or (state == before and (not state.gone or waited >= PATIENCE)):
                break
        return state

    def _state(self) -> _State:
        digests = tuple((path, _digest(path)) for path in self._files())
        gone = {path for path, digest in digests if not digest}
        had = {path for path, digest in self._seen.digests if digest} if self._seen else {self.config.path}
        return _State(digests, gone=bool(gone & had))

    def _files(self) -> list[Path]:
        """Those in use, and those whose mistakes stand in the way: mending them must be seen too."""
        named = [self.config.path, self.config.keys_path, *(Path(mistake.file) for mistake in self.mistakes)]
        return list(dict.fromkeys(path for path in named if path is not None)) if self.config.path else []

    async def _rest(self, longest: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), longest)


def _digest(path: Path) -> str:
    """Another text for other content; empty for a file that is empty or isn't there."""
    try:
        found, _ = content_of(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"errno {error.errno}"
    return hashlib.sha256(found).hexdigest() if found.strip() else ""


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the configuration is no longer watched", exc_info=error)
