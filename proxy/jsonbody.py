"""A request body from bytes to fields: which JSON we take, and what we say of the rest.

One fast pass (msgspec, top-level names to raw bytes) does the work; what it refuses, the strict standard parser decides. Refused
are: what is not UTF-8, not an object, nested deeper than 128, holds NaN or Infinity (RFC 8259 has neither), or names a top-level
field twice (a policy would read one value and the provider the other). A lone surrogate is JSON, so it is taken, and goes out as
the escape that it came as.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import msgspec

from ..call.body import Body
from ..call.errors import CallerFault

MAX_DEPTH = 128
_SLICE = 16384  # bytes that are looked over before the loop gets a turn
_LONG = 1 << 20  # bytes up to which a quick look is quick

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NAME = re.compile(rb'\s*[{,]\s*"([^"\\]*)"\s*:\s*')  # of what is known to be JSON, where \s is all its white space
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level down, one level up


async def read_body(raw: bytes) -> Body:
    """The body as fields.

    Raises:
        CallerFault: one of the reasons above.
    """
    raw = raw.removeprefix(codecs.BOM_UTF8)  # RFC 8259, 8.1: a parser may ignore it
    try:
        fields: Mapping[str, msgspec.Raw] = _fields(raw)
    except (msgspec.DecodeError, RecursionError):
        return await _strictly(raw)
    if not _harmless(raw):
        await _look_over(raw)
    if not await _each_once(raw, fields):
        return await _strictly(raw)
    return Body(fields, raw)


def _harmless(raw: bytes) -> bool:
    """As most bodies are: with too few brackets to nest too deep, and ASCII, or short enough to be decoded at once."""
    if len(raw) > _LONG or _more_than(MAX_DEPTH, raw, b"{", b"["):
        return False
    if raw.isascii():
        return True
    if len(raw) > 8 * _SLICE:
        return False  # a mix of scripts takes 3 ns a byte
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _more_than(most: int, raw: bytes, *wanted: bytes) -> bool:
    """Whether `wanted` come more often than `most` times; where they are rare, looking for each is quicker than counting."""
    if len(raw) < 2048:
        return sum([raw.count(byte) for byte in wanted]) > most
    seen = 0
    for byte in wanted:
        at = raw.find(byte)
        while at >= 0:
            seen += 1
            if seen > most:
                return True
            at = raw.find(byte, at + 1)
    return False


async def _look_over(raw: bytes) -> None:
    """Refuse what is not UTF-8 or nests too deep, a slice at a time."""
    text, nesting = _Text(), _Nesting()
    plain = raw.isascii()
    for start in range(0, len(raw), _SLICE):
        if start:
            await asyncio.sleep(0)
        piece = raw[start : start + _SLICE]
        if not plain:
            text.feed(piece, last=start + _SLICE >= len(raw))
        nesting.feed(piece)


class _Text:
    """Bytes that must be UTF-8; a character may lie across two slices."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._at = 0

    def feed(self, piece: bytes, *, last: bool) -> None:
        begun = len(self._decoder.getstate()[0])
        try:
            self._decoder.decode(piece, last)
        except UnicodeDecodeError as error:
            raise CallerFault(f"The body is not UTF-8 (byte {self._at - begun + error.start + 1}).") from None
        self._at += len(piece)


class _Nesting:
    """How deep the brackets of a JSON document go that is known to be one, so that they are balanced."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = False
        self._escape = b""

    def feed(self, piece: bytes) -> None:
        brackets = self._outside_strings(piece)
        opened = brackets.count(b"[") + brackets.count(b"{")
        if self._depth + opened > MAX_DEPTH:
            deepest = max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=self._depth))
            if deepest > MAX_DEPTH:
                raise CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.")
        self._depth += 2 * opened - len(brackets)

    def _outside_strings(self, piece: bytes) -> bytes:
        piece = self._escape + piece
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")  # pairs first: what is left before a quote escapes it
        self._escape = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.translate(None, _NOT_STRUCTURE).split(b'"')
        outside = b"".join(parts[self._quoted :: 2])
        self._quoted ^= len(parts) % 2 == 0
        return outside


async def _each_once(raw: bytes, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Whether these names and values, in order, are all that stands in `raw`: then no name came twice.

    False also for names that are written with escapes; the strict parser knows.
    """
    if len(raw) == 1 + sum([len(name.encode()) + len(value) + 4 for name, value in fields.items()]):
        return True  # not a byte is left for a second one
    at = 0
    for number, (name, value) in enumerate(fields.items(), 1):
        found = _NAME.match(raw, at)
        if found is None or found[1] != name.encode() or not raw.startswith(value, found.end()):
            return False
        at = found.end() + len(value)
        if number % 1024 == 0:
            await asyncio.sleep(0)
    return not fields or raw[at:].strip() == b"}"


async def _strictly(raw: bytes) -> Body:
    """The standard parser's view of what msgspec refused or could not vouch for."""
    await _turn(raw)
    names: list[str] = []

    def outermost_last(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names[:] = [name for name, _ in pairs]
        return dict(pairs)

    try:
        text = raw.decode()
        value = _decoder(object_pairs_hook=outermost_last).decode(text)
    except RecursionError:
        raise CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.") from None
    except UnicodeDecodeError as error:
        raise CallerFault(f"The body is not UTF-8 (byte {error.start + 1}).") from None
    except json.JSONDecodeError as error:
        said = error.msg.lower().removesuffix(" at")
        raise CallerFault(f"The body is not JSON: {said} at line {error.lineno}, column {error.colno}.") from None
    if not isinstance(value, dict):
        raise CallerFault("The body must be a JSON object.")
    _no_duplicate(names)
    if _depth(value) > MAX_DEPTH:
        raise CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.")
    await _turn(raw)
    return Body(_cut(text, names), raw)


async def _turn(raw: bytes) -> None:
    if len(raw) > _SLICE:
        await asyncio.sleep(0)


def _decoder(**hooks: Any) -> json.JSONDecoder:
    # Numbers stay text: nobody reads them here, and Python refuses to convert an integer of 5000 digits.
    return json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant, **hooks)


def _no_constant(name: str) -> Any:
    raise CallerFault(f"The body is not JSON: {name} is not a JSON number.")


def _no_duplicate(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            shown = name[:64].encode("ascii", "backslashreplace").decode("ascii")
            raise CallerFault(f"The body names {shown!r} twice; say it once.", param=shown)
        seen.add(name)


def _depth(value: Any) -> int:
    """Nesting of a parsed value, its own level counted; level by level, so that depth costs no stack."""
    deep = 0
    level: list[Any] = [value]
    while level and deep <= MAX_DEPTH:
        deep += 1
        parts = [part for item in level for part in (item.values() if isinstance(item, dict) else item)]
        level = [part for part in parts if isinstance(part, list | dict)]
    return deep


def _cut(text: str, names: list[str]) -> dict[str, bytes]:
    """The top-level fields of a good document as the bytes that they came as."""
    value_at = _decoder().raw_decode
    fields: dict[str, bytes] = {}
    at = text.index("{")
    for name in names:
        _, at = value_at(text, _after_space(text, at + 1))
        start = _after_space(text, text.index(":", at) + 1)
        _, at = value_at(text, start)
        fields[name] = text[start:at].encode()
        at = _after_space(text, at)  # the comma
    return fields


def _after_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
