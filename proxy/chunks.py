"""A stream in OpenAI's dialect, read as it comes: when its content begins, whether it ended, and the frame that only we asked for.

Bytes in, bytes out; no I/O. Until the first content every frame is parsed, since retry and fallback end there. After that a
network read is looked at with a few searches, and parsed only if one of them hits; it goes on as it came, cut at its last whole
frame. A malformed frame goes on as it is and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..call import sse
from ..call.errors import UpstreamError, UpstreamIncomplete
from ..call.events import Envelope, Usage
from .answers import finish_of, has_content, provider_error, usage_of

MAX_FRAME = 16 * 2**20  # bytes of one unfinished frame: longer is no event


class Chunks:
    """What one stream has said so far.

    `hide_usage`: the usage frame was our wish alone, so it isn't passed on. `choices`: how many answers were asked for.
    """

    __slots__ = (
        "_finished", "_hide_usage", "_pending", "_wanted", "content", "done", "envelope", "error", "finish", "malformed", "tail", "usage"
    )  # fmt: skip

    def __init__(self, *, hide_usage: bool = False, choices: int = 1) -> None:
        self._pending = b""
        self._hide_usage = hide_usage
        self._wanted = choices
        self._finished: set[int] = set()
        self.content = False
        self.done = False
        self.error: UpstreamError | None = None
        self.envelope: Envelope | None = None
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.malformed = 0
        self.tail: bytes | None = None

    @property
    def finished(self) -> bool:
        """A finish_reason came for every choice."""
        return len(self._finished) >= self._wanted

    def feed(self, data: bytes) -> bytes:
        """The frames that `data` completes, to be passed on now. After `done` or `error`: nothing more."""
        if self._pending:
            data = self._pending + data
        end = len(data) if data.endswith(b"\n\n") else sse.whole_frames(data)
        self._pending = data[end:]
        if len(self._pending) > MAX_FRAME:
            raise UpstreamError(f"The provider sent an event of more than {MAX_FRAME >> 20} MiB.")
        whole = data[:end] if self._pending else data
        if self.content and _plain(whole):
            return whole
        return self._parsed(whole)

    def end(self) -> bytes:
        """The network ended cleanly: what is left is a frame that lacks its blank line, passed on if it can be read."""
        left, self._pending = self._pending, b""
        if not left.strip() or self.done or self.error:
            return b""
        return self._parsed(left.rstrip(b"\r\n") + b"\n\n")

    def _parsed(self, whole: bytes) -> bytes:
        passed = [frame for frame in sse.frames(whole) if self._pass(frame)]
        return b"".join(passed)

    def _pass(self, frame: bytes) -> bool:
        """Read one frame; whether it goes on to the caller."""
        if self.done or self.error:
            return False
        data = sse.data_of(frame)
        if not data:
            return True
        if data.strip() == b"[DONE]":
            self.done, self.tail = True, frame
            return False
        chunk = _object(data)
        if chunk is None:
            self.malformed += 1
            return True
        return self._read(chunk)

    def _read(self, chunk: Mapping[str, Any]) -> bool:
        if chunk.get("error"):
            self.error = provider_error(chunk["error"])
            return False
        choices = [choice for choice in chunk.get("choices") or () if isinstance(choice, dict)]
        if self.envelope is None and chunk.get("id"):
            self.envelope = _envelope(chunk)
        for choice in choices:
            self._read_choice(choice)
        usage = usage_of(chunk.get("usage"))
        if usage is not None:
            self.usage, self.content = usage, True
            return bool(choices) or not self._hide_usage
        return True

    def _read_choice(self, choice: Mapping[str, Any]) -> None:
        self.content = self.content or has_content(choice)
        finish = finish_of(choice)
        if finish:
            index = choice.get("index")
            self._finished.add(index if isinstance(index, int) else 0)
            self.finish = self.finish or finish

    def check_ended(self) -> None:
        """The stream is over: was that its end?

        Raises:
            UpstreamError: it told of an error.
            UpstreamIncomplete: it stopped before a finish_reason for every choice.
        """
        if self.error is not None:
            raise self.error
        if not self.finished:
            raise UpstreamIncomplete("The provider's stream stopped before its end.")


def _plain(data: bytes) -> bool:
    """Nothing in `data` but content: no end, no usage, no error. Wrongly False only costs a parse."""
    return (
        b"[DONE]" not in data
        and b'"error"' not in data
        and data.count(b'"usage"') == data.count(b'"usage":null')
        and data.count(b'"finish_reason"') == data.count(b'"finish_reason":null')
    )


def _envelope(chunk: Mapping[str, Any]) -> Envelope:
    created = chunk.get("created")
    return Envelope(
        id=str(chunk["id"]),
        model=str(chunk.get("model") or ""),
        created=created if isinstance(created, int) else 0,
        object=str(chunk.get("object") or "chat.completion.chunk"),
    )


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
