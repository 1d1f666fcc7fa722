"""How much text stands in the bytes of an answer, without the JSON around it, and how many tokens that may be: found by looking for the
places of words. Of a long text samples stand for the whole. Pure."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import msgspec

# Where words stand: messages and deltas, tool calls of both kinds, completions. Inside of a string its quotes would be escaped.
_WORDS = re.compile(rb'"(?:content|reasoning_content|reasoning|refusal|arguments|input|text)"\s*:\s*"((?:[^"\\]++|\\.)*+)')
_VOICES = re.compile(rb'"index"\s*:\s*(\d{1,4})|' + _WORDS.pattern)
_CUT_OFF = re.compile(rb"(?:\\(?:u[0-9a-fA-F]{0,3})?|[\xc0-\xff][\x80-\xbf]*)\Z")
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.?")
BYTES_A_TOKEN = 4
PIECE = 1024  # bytes
WORD, ESCAPE = 64, 6  # bytes within which there is another

_decode = msgspec.json.Decoder(str).decode


class Sample(msgspec.Struct):
    """Pieces of a text, as JSON writes them, that stand for so many bytes of it."""

    pieces: list[bytes]
    stands_for: float = 0.0


def words_in(data: bytes) -> list[bytes] | None:
    """The texts in events or in a body, as JSON writes them; None where that is no JSON, which nobody can read who doesn't know its
    coding."""
    found = _WORDS.findall(data)
    return found if found or data.lstrip().startswith((b"{", b"data:", b"event:", b":")) else None


def spoken_in(data: bytes) -> tuple[int, int]:
    """Bytes of text in events or in a body; all of it where nobody can read it. And of a stream, how many events say any of it: a body has
    none."""
    return measured(words_in(data), data)


def measured(words: list[bytes] | None, data: bytes) -> tuple[int, int]:
    """The same of words that were found in it."""
    if words is None:
        return len(data), 0
    text = sum([len(each) if b"\\" not in each else _unescaped(each) for each in words])
    # Some say one text in two places of an event.
    return text, min(len(words) - words.count(b""), data.count(b"data:"))


def voices_in(data: bytes) -> list[bytes]:
    """The texts of several choices that came in turns, each put together."""
    voices: dict[bytes, list[bytes]] = {}
    voice = b""
    for index, words in _VOICES.findall(data):
        voice = index or voice
        if words:
            voices.setdefault(voice, []).append(words)
    return [b"".join(words) for words in voices.values()]


def sampled(words: list[bytes] | None, data: bytes, most: int, *, several: bool = False) -> list[bytes]:
    """Pieces of the texts that were found in it, of `most` bytes together. `several`: they are of more than one choice."""
    if words is None:
        return []
    voices = voices_in(data) if several else [b"".join(words)]
    return [piece for voice in voices for piece in pieces_of(voice, most // len(voices))]


def pieces_of(text: bytes | memoryview, most: int) -> list[bytes]:
    """The text, or of one that is longer than `most` bytes, pieces from all over it that are no longer together. They begin and end between
    words, where there are any."""
    if len(text) <= most:
        return [bytes(text)]
    count = max(1, most // PIECE)
    size, gap = most // count, len(text) // count
    return [_whole_words(bytes(text[start : start + size])) for start in range((gap - size) // 2, len(text) - size + 1, gap)]


def _whole_words(piece: bytes) -> bytes:
    begin, end = piece.find(b" ", 0, WORD), piece.rfind(b" ", -WORD)
    if begin < 0:
        begin = max(0, piece.find(b"\\", 0, ESCAPE))
    return piece[begin : end if end > begin else len(piece)]


def text_of(piece: bytes) -> str:
    """What a piece says. One that was cut within a letter or an escape says a little less."""
    text = piece.decode("utf-8", "ignore")
    return _ESCAPES.sub(_meant, text) if "\\" in text else text


def tokens_of(text: int, deltas: int = 0) -> int:
    """How many tokens so many bytes of text are where nobody says so: one in every delta that it came in, at the least."""
    return max(-(-text // BYTES_A_TOKEN), deltas)


def _meant(escapes: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{escapes[0]}"'))
    except ValueError:
        return ""


def _unescaped(words: bytes) -> int:
    for text in (words, _CUT_OFF.sub(b"", words)):
        with suppress(msgspec.DecodeError):
            return len(_decode(b'"%b"' % text).encode())
    return len(words)  # a lone surrogate
