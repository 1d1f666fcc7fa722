"""Server-sent events: frames from bytes, bytes from frames. Pure; what a frame means is said elsewhere.

A frame is what one blank line ends (WHATWG HTML, 9.2): lines end with CR, LF or CRLF and with nothing else, so everything
here works on bytes: U+2028 and U+0085 inside a JSON string are not line ends, and a cut inside a character does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

# A line end, then at least one empty line; more of them say nothing and stay with the frame that they follow.
_BLANK_LINES = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2,}")
_LINE_END = re.compile(rb"\r\n|\n|\r")


def whole_frames(data: bytes) -> int:
    """How many bytes of `data` are whole frames: the index after its last blank line, 0 if there is none.

    A CR at the very end counts as a line end at once, though an LF may follow: nobody should wait for it.
    """
    lf = data.rfind(b"\n\n")
    cr = max(data.rfind(b"\n\r"), data.rfind(b"\r\r"))
    end = max(lf, cr) + 2
    if end < 2:
        return 0
    return end + 1 if cr > lf and data.startswith(b"\n", end) else end


def frames(data: bytes) -> Iterator[bytes]:
    """The whole frames of `data`, each with its blank line; an unfinished end is left out."""
    if b"\r" not in data and b"\n\n\n" not in data:  # as nearly every provider writes them
        for part in data.split(b"\n\n")[:-1]:
            yield part + b"\n\n"
        return
    start = 0
    for blank in _BLANK_LINES.finditer(data):
        yield data[start : blank.end()]
        start = blank.end()


def data_of(frame: bytes) -> bytes | None:
    """The data of one frame, its data lines joined by LF; None if it has none (a comment, a lone event or retry).

    One space after the colon belongs to the syntax, a second one to the data.
    """
    if frame.startswith(b"data: ") and frame.find(b"\n") >= len(frame) - 2 and b"\r" not in frame:
        return frame[6:].rstrip(b"\n")  # the frame that nearly every provider sends
    lines = [line for line in _LINE_END.split(frame) if line == b"data" or line.startswith(b"data:")]
    if not lines:
        return None
    return b"\n".join(_value(line) for line in lines)


def _value(line: bytes) -> bytes:
    value = line[5:]
    return value[1:] if value.startswith(b" ") else value


def frame(data: bytes, event: str | None = None) -> bytes:
    """One frame that carries `data`, a line at a time, under the name `event` if one is given."""
    name = f"event: {event}\n".encode() if event else b""
    return name + b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(data)) + b"\n"
