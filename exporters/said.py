"""How much text an answer said, for those whose provider doesn't tell what it used: a stream is mostly the JSON around a few letters.

Most providers tell at the end, so that nothing is read before: what came is kept, and counted once it is a little much. Of a long
answer parts stand for the whole, so that what this costs hardly grows any more.
"""

from __future__ import annotations

import re

import msgspec

KEPT = 16 << 10  # bytes of a stream that are kept before they are counted
EXACT = 64 << 10  # bytes of a stream that are counted one and all; after them a KEPT whenever it has grown by a quarter
LOOKED = 1 << 20  # bytes of a whole answer that are looked at

# Where words stand: messages and deltas, tool calls of both kinds, completions. Inside of a string its quotes would be escaped.
_WORDS = re.compile(rb'"(?:content|reasoning_content|reasoning|refusal|arguments|input|text)"\s*:\s*"((?:[^"\\]++|\\.)*+)')
_decode = msgspec.json.Decoder(str).decode


class Said:
    """The text of one answer, as far as it has come."""

    __slots__ = ("_heard", "_kept", "_rate", "_resumes", "_size", "_skipped", "_text")

    def __init__(self) -> None:
        self._heard = 0  # bytes that came
        self._kept: list[bytes] = []  # of those, what is still to be counted,
        self._size = 0  # which is so much,
        self._skipped = 0  # and what was passed over since the last count
        self._resumes = 0  # how many must have come before the next is kept
        self._rate = 0.0  # text in a byte of what was counted last
        self._text = 0.0

    def hear(self, raw: bytes, *, sse: bool) -> None:
        """Whole events of a stream, or a piece of a body."""
        size = len(raw)
        self._heard += size
        if self._heard <= self._resumes or (not sse and self._kept):
            self._skipped += size
            return
        self._kept.append(raw)
        self._size += size
        if sse and self._size > KEPT:
            self._count()

    def bytes(self) -> int:
        """Of UTF-8, without the JSON around it. Asked once, when nothing more comes."""
        if self._kept:
            self._count()
        self._text += self._rate * self._skipped
        self._skipped = 0
        return round(self._text)

    def _count(self) -> None:
        data = (self._kept[0] if len(self._kept) == 1 else b"".join(self._kept))[:LOOKED]
        self._rate = text_in(data) / max(len(data), 1)
        self._text += self._rate * (self._size + self._skipped)
        self._kept, self._size, self._skipped = [], 0, 0
        if self._heard > EXACT:
            self._resumes = self._heard + self._heard // 4


def text_in(data: bytes) -> int:
    """Bytes of text in events or in a body; all of it where that is no JSON, which nobody can read who doesn't know its coding."""
    found = _WORDS.findall(data)
    if not found and not data.lstrip().startswith((b"{", b"data:", b"event:", b":")):
        return len(data)
    return sum([len(words) if b"\\" not in words else _unescaped(words) for words in found])


def _unescaped(words: bytes) -> int:
    try:
        return len(_decode(b'"%b"' % words).encode())
    except msgspec.DecodeError:  # a lone surrogate, or cut off within an escape
        return len(words)
