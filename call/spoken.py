"""How much text stands in the bytes of an answer, without the JSON around it, and how many tokens that may be: found by looking for the
places of words. Pure."""

from __future__ import annotations

import re

import msgspec

# Where words stand: messages and deltas, tool calls of both kinds, completions. Inside of a string its quotes would be escaped.
_WORDS = re.compile(rb'"(?:content|reasoning_content|reasoning|refusal|arguments|input|text)"\s*:\s*"((?:[^"\\]++|\\.)*+)')
BYTES_A_TOKEN = 4

_decode = msgspec.json.Decoder(str).decode


def spoken_in(data: bytes) -> tuple[int, int]:
    """Bytes of text in events or in a body; all of it where that is no JSON, which nobody can read who doesn't know its coding. And of a
    stream, how many events say any of it: a body has none."""
    found = _WORDS.findall(data)
    if not found and not data.lstrip().startswith((b"{", b"data:", b"event:", b":")):
        return len(data), 0
    text = sum([len(words) if b"\\" not in words else _unescaped(words) for words in found])
    # Some say one text in two places of an event.
    return text, min(len(found) - found.count(b""), data.count(b"data:"))


def tokens_of(text: int, deltas: int = 0) -> int:
    """How many tokens so many bytes of text are where nobody says so: one in every delta that it came in, at the least."""
    return max(-(-text // BYTES_A_TOKEN), deltas)


def _unescaped(words: bytes) -> int:
    try:
        return len(_decode(b'"%b"' % words).encode())
    except msgspec.DecodeError:  # a lone surrogate, or cut off within an escape
        return len(words)
