"""A stream in OpenAI's dialect, read as it comes: when its content begins, whether it ended, and the frame that only we asked for.

Bytes in, bytes out; no I/O. Until the first content every frame is parsed, since retry and fallback end there. After that a
network read is looked at with a few searches, and parsed only if one of them hits; it goes on as it came, cut at its last whole
frame. A malformed frame goes on as it is and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ..call import sse
from ..call.errors import UpstreamError, UpstreamIncomplete
from ..call.events import Envelope, Usage, dicts
from ..call.usage import usage_of
from .answers import error_in, finish_of, has_content, provider_error

_decode = msgspec.json.Decoder().decode

MAX_FRAME = 16 * 2**20  # bytes of one unfinished frame: longer is no event


class Chunks:
    """What one stream has said so far.

    `hide_usage`: the usage frame was our wish alone, so it isn't passed on. `choices`: how many answers were asked for.
    """

    __slots__ = (
        "_begun", "_finishes", "_hide_usage", "_pending", "_wanted", "content", "done", "envelope", "error", "malformed", "tail", "usage"
    )  # fmt: skip

    def __init__(self, *, hide_usage: bool = False, choices: int = 1) -> None:
        self._pending = bytearray()
        self._hide_usage = hide_usage
        self._wanted = choices
        self._begun: set[int] = set()
        self._finishes: dict[int, str] = {}
        self.content = False
        self.done = False
        self.error: UpstreamError | None = None
        self.envelope: Envelope | None = None
        self.usage: Usage | None = None
        self.malformed = 0
        self.tail: bytes | None = None

    @property
    def finish(self) -> str | None:
        """The first choice's finish_reason."""
        return self._finishes[min(self._finishes)] if self._finishes else None

    @property
    def finished(self) -> bool:
        """A finish_reason came for every choice: for all that began if the provider says `[DONE]`, else for all asked for."""
        enough = 1 if self.done else self._wanted
        return len(self._finishes) >= enough and self._begun <= self._finishes.keys()

    def feed(self, data: bytes) -> bytes:
        """The frames that `data` completes, to be passed on now. After `done` or `error`: nothing more."""
        if self.done or self.error:
            return b""
        whole = data if data.endswith(b"\n\n") and not self._pending else self._completed(data)
        # With several choices each must be seen to begin, so that its end can be missed.
        if self.content and self._wanted == 1 and _plain(whole):
            return whole
        return self._parsed(whole)

    def _completed(self, data: bytes) -> bytes:
        """What waited and `data`, up to the last blank line; the rest waits. Only the new bytes are searched."""
        seam = bytes(self._pending[-1:])  # a blank line may lie across two reads
        end = sse.whole_frames(seam + data) - len(seam)
        if end <= 0:
            self._pending += data
            whole = b""
        else:
            whole = bytes(self._pending) + data[:end]
            self._pending = bytearray(data[end:])
        if len(self._pending) > MAX_FRAME:
            raise UpstreamError(f"The provider sent an event of more than {MAX_FRAME >> 20} MiB.")
        return whole

    def end(self) -> bytes:
        """The network ended cleanly: what is left is a frame that lacks its blank line, passed on if it can be read."""
        left, self._pending = bytes(self._pending).rstrip(b"\r\n") + b"\n\n", bytearray()
        data = sse.data_of(left)
        if not data or (data.strip() != b"[DONE]" and object_of(data) is None):
            return b""  # a piece of an event is none
        return self._parsed(left)

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
        chunk = object_of(data)
        if chunk is None:
            self.malformed += 1
            return True
        return self._read(chunk)

    def _read(self, chunk: Mapping[str, Any]) -> bool:
        error = error_in(chunk)
        if error:
            self.error = provider_error(error)
            return False
        choices = dicts(chunk.get("choices"))
        if self.envelope is None and (chunk.get("id") or chunk.get("model")):
            self.envelope = _envelope(chunk)
        for choice in choices:
            self._read_choice(choice)
        usage = usage_of(chunk.get("usage"))
        if usage is None:
            return True
        if not usage.unknown or self.usage is None:  # the last one counts; half a one takes nothing from a whole one
            self.usage = usage
        self.content = self.content or not choices  # on a chunk that tells the role alone it is no content
        return bool(choices) or not self._hide_usage

    def _read_choice(self, choice: Mapping[str, Any]) -> None:
        self.content = self.content or has_content(choice)
        given = choice.get("index")
        index = given if isinstance(given, int) else 0
        self._begun.add(index)
        finish = finish_of(choice)
        if finish:
            self._finishes.setdefault(index, finish)

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
    """Nothing in `data` but content: no end, no usage, no error, no broken event. Wrongly False only costs a parse."""
    return (
        b"[DONE]" not in data
        and b'"error"' not in data
        and data.count(b'"usage"') == data.count(b'"usage":null')
        and data.count(b'"finish_reason"') == data.count(b'"finish_reason":null')
        and data.count(b"\n\n") == data.count(b"}\n\n")
    )


def _envelope(chunk: Mapping[str, Any]) -> Envelope:
    created = chunk.get("created")
    return Envelope(
        id=str(chunk.get("id") or ""),
        model=str(chunk.get("model") or ""),
        created=created if isinstance(created, int) else 0,
        object=str(chunk.get("object") or "chat.completion.chunk"),
    )


def object_of(data: bytes) -> dict[str, Any] | None:
    """What the data of an event says; None if it is no JSON object."""
    try:
        value = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        value = _leniently(data)
    return value if isinstance(value, dict) else None


def _leniently(data: bytes) -> Any:
    """What the standard parser makes of what msgspec refused: it takes NaN and lone surrogates."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
