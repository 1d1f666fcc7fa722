"""How much text an answer said, and in how many deltas, for those whose provider doesn't tell what it used: a stream is mostly the
JSON around a few letters.

Most providers tell at the end, so that nothing is read before: what came is kept, and counted once it is a little much. Of a long
answer parts stand for the whole, so that what this costs hardly grows any more. A little of each part is kept as samples, for those who
count tokens in them.
"""

from __future__ import annotations

from ..call.spoken import Sample, measured, sampled, words_in

KEPT = 16 << 10  # bytes of a stream that are kept before they are counted
EXACT = 64 << 10  # bytes of a stream that are counted one and all; after them a KEPT whenever it has grown by a quarter
LOOKED = 128 << 10  # bytes of a whole answer that are looked at
WHOLE, EARLY, LATE = 4 << 10, 1 << 10, 512  # bytes of samples: of a whole answer, of each part of what is EXACT, of each after that


class Said:
    """The text of one answer, as far as it has come. `several`: of more than one choice, which come in turns."""

    __slots__ = ("_deltas", "_heard", "_kept", "_rates", "_resumes", "_several", "_size", "_skipped", "_sse", "_text", "samples")

    def __init__(self, *, several: bool = False) -> None:
        self._several = several
        self._sse = True
        self.samples: list[Sample] = []
        self._heard = 0  # bytes that came
        self._kept: list[bytes] = []  # of those, what is still to be counted,
        self._size = 0  # which is so much,
        self._skipped = 0  # and what was passed over since the last count
        self._resumes = 0  # how many must have come before the next is kept
        self._rates = (0.0, 0.0)  # text and deltas in a byte of what was counted last
        self._text = self._deltas = 0.0

    def hear(self, raw: bytes, *, sse: bool) -> None:
        """Whole events of a stream, or a piece of a body."""
        size = len(raw)
        self._sse = sse
        self._heard += size
        if self._heard <= self._resumes or (not sse and self._kept):
            self._skipped += size
            return
        self._kept.append(raw)
        self._size += size
        if sse and self._size > KEPT:
            self._count()

    def total(self) -> tuple[int, int]:
        """Bytes of UTF-8, without the JSON around it, and deltas of a stream that said any of it. Asked when nothing more comes."""
        if self._kept:
            self._count()
        self._add(self._skipped)
        self._skipped = 0
        return round(self._text), round(self._deltas)

    def _count(self) -> None:
        data = (self._kept[0] if len(self._kept) == 1 else b"".join(self._kept))[:LOOKED]
        words = words_in(data)
        text, deltas = measured(words, data)
        if text:
            most = (LATE if self._heard > EXACT else EARLY) if self._sse else WHOLE
            self.samples.append(Sample(sampled(words, data, most, several=self._several)))
        size = max(len(data), 1)
        self._rates = text / size, deltas / size
        self._add(self._size + self._skipped)
        self._kept, self._size, self._skipped = [], 0, 0
        if self._heard > EXACT:
            self._resumes = self._heard + self._heard // 4

    def _add(self, size: int) -> None:
        """So many bytes more, like those that were counted last."""
        text, deltas = self._rates
        self._text += text * size
        if text:
            self.samples[-1].stands_for += text * size
        self._deltas += deltas * size
