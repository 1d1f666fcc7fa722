"""A request body from bytes to fields: which JSON we take, and what we say of the rest.

One fast pass (msgspec, top-level names to raw bytes) does the work. Refused are: what is not UTF-8, not an object, nested deeper than
128, holds NaN or Infinity (RFC 8259 has neither), names a top-level field twice (a policy would read one value and the provider
the other), or names more of them than anybody needs. A lone surrogate is JSON, so it is taken, and goes out as the escape that it came
as.

No parser lets go of the interpreter, so a thread would help nobody: what can't be bounded is looked over first, a slice at a time, and
the fast pass then has little to build, whatever the body. The standard parser, which holds the loop up for a tenth of a second a MiB,
only finds the words for what is refused, and only if that is short.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections.abc import AsyncIterator, Mapping
from functools import reduce
from itertools import accumulate, compress, product
from typing import Any

import msgspec

from ..call.body import Body
from ..call.errors import CallerFault

MAX_DEPTH = 128
MAX_FIELDS = 4096  # at the top level: OpenAI's longest has some fifty, and each one more costs half a microsecond of everybody's
MAX_NAME = 512  # characters of a field's name, where it has to be found again among the bytes
_SLICE = 16384  # bytes that are looked over before the loop gets a turn
_LONG = 1 << 20  # bytes up to which a quick look is quick
_WORDY = 32 << 10  # bytes up to which the standard parser is quick
_LEAST = len(b'"":0,')  # bytes of a field

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NAME = re.compile(rb'\s*[{,]\s*"((?:[^"\\]++|\\.)*+)"\s*:\s*')  # of what is known to be JSON, where \s is all its white space
_SURROGATES = [b"\\u%c%c" % pair for pair in product(b"dD", b"89abcdefABCDEF")]
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'"[]{},')
_STEPS = bytes.maketrans(b"[{]},", b"\x01\x01\xff\xff\x00")  # as signed bytes: one level down, one level up
_COMMAS = bytes(byte == ord(",") for byte in range(256))


async def read_body(raw: bytes) -> Body:
    """The body as fields.

    Raises:
        CallerFault: one of the reasons above.
    """
    raw = raw.removeprefix(codecs.BOM_UTF8)  # RFC 8259, 8.1: a parser may ignore it
    if not _harmless(raw):
        await _look_over(raw)
    elif len(raw) > 8 * _SLICE:
        await asyncio.sleep(0)  # the look and the pass are two steps
    try:
        fields: Mapping[str, msgspec.Raw] = _fields(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        if len(raw) > _SLICE:
            await asyncio.sleep(0)
        if b"\\ud" not in raw and b"\\uD" not in raw:
            raise _refusal(raw, error) from None
        return await _with_surrogates(raw)
    if len(raw) != 1 + sum([len(name.encode()) + len(value) + 4 for name, value in fields.items()]):  # bytes are left for a second one
        async for _ in _members(raw, fields):
            pass
    return Body(fields, raw)


def _harmless(raw: bytes) -> bool:
    """As most bodies are: with too few brackets to nest too deep and too few quotes for too many fields, and ASCII, or short enough
    to be decoded at once."""
    if len(raw) > _LONG or _more_than(MAX_DEPTH, raw, b"{", b"["):
        return False
    if len(raw) > _LEAST * MAX_FIELDS and _more_than(2 * MAX_FIELDS, raw, b'"'):
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
    """Refuse what is not UTF-8, nests too deep or has too many fields, a slice at a time."""
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
    """How deep the brackets of a JSON document go, and how many fields it has on the first level. Of what begins as one and goes on as
    something else, this holds for what a parser reads of it.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._commas = 0
        self._quoted = False
        self._escape = b""

    def feed(self, piece: bytes) -> None:
        marks = self._outside_strings(piece)
        opened, commas = marks.count(b"[") + marks.count(b"{"), marks.count(b",")
        closed = len(marks) - opened - commas
        if self._depth + opened > MAX_DEPTH or (commas and self._depth - closed <= 1):
            self._follow(marks)
        self._depth += opened - closed

    def _follow(self, marks: bytes) -> None:
        """Level by level, where counting leaves open how deep it went, or on which level a comma stands."""
        depths = list(accumulate(memoryview(marks.translate(_STEPS)).cast("b"), initial=self._depth))
        if max(depths) > MAX_DEPTH:
            raise CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.")
        if min(depths) <= 1:
            self._commas += list(compress(depths, marks.translate(_COMMAS))).count(1)
        if self._commas >= MAX_FIELDS:
            raise CallerFault(f"The body has more than {MAX_FIELDS} fields; that is the limit for those at its top level.")

    def _outside_strings(self, piece: bytes) -> bytes:
        piece = self._escape + piece
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")  # pairs first: what is left before a quote escapes it
        self._escape = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.translate(None, _NOT_STRUCTURE).split(b'"')
        outside = b"".join(parts[self._quoted :: 2])
        self._quoted ^= len(parts) % 2 == 0
        return outside


async def _members(text: bytes, fields: Mapping[str, msgspec.Raw]) -> AsyncIterator[tuple[slice, slice]]:
    """Where each name and value stands. These are all that is in `text`, in this order, or a name came twice: the first field that
    differs is one that was there before, or one whose value another took the place of.
    """
    long = next((name for name in fields if len(name) > MAX_NAME), None)
    if long is not None:
        raise CallerFault(f"The body has a field whose name is longer than {MAX_NAME} characters.", param=_shown(long))
    at, given = 0, ""
    for number, (name, value) in enumerate(fields.items(), 1):
        found = _NAME.match(text, at)
        given = _unquoted(found[1]) if found else given  # none: the value before was a number, and this one the start of it
        if found is None or given != name or not text.startswith(value, found.end()):
            raise _twice(given)
        at = found.end() + len(value)
        yield slice(*found.span(1)), slice(found.end(), at)
        if number % 256 == 0:
            await asyncio.sleep(0)
    if fields and text[at:].strip() != b"}":
        found = _NAME.match(text, at)
        raise _twice(_unquoted(found[1]) if found else given)


def _unquoted(name: bytes) -> str:
    return json.loads(b'"%b"' % name) if b"\\" in name else name.decode()


def _twice(name: str) -> CallerFault:
    shown = _shown(name)
    return CallerFault(f"The body names {shown!r} twice; say it once.", param=shown)


def _shown(name: str) -> str:
    return name[:64].encode("ascii", "backslashreplace").decode("ascii")


async def _with_surrogates(raw: bytes) -> Body:
    """What msgspec refused, and takes if lone surrogates are all that it minds: with every surrogate written as another character, of
    as many bytes, each field stands where it stood.
    """
    text = await _tamed(raw)
    try:
        fields: Mapping[str, msgspec.Raw] = _fields(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refusal(raw, error) from None
    return Body({_unquoted(raw[name]): raw[value] async for name, value in _members(text, fields)}, raw)


async def _tamed(raw: bytes) -> bytes:
    text = bytearray(raw)
    for start in range(0, len(raw), _SLICE):
        if start:
            await asyncio.sleep(0)
        piece = slice(start, start + _SLICE + 3)  # with all of a surrogate that begins in the slice
        text[piece] = reduce(lambda part, begun: part.replace(begun, b"\\u00"), _SURROGATES, text[piece])
    return bytes(text)


def _refusal(raw: bytes, error: Exception) -> CallerFault:
    """Why these bytes are no body."""
    if isinstance(error, RecursionError):
        return CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.")
    found = _strictly(raw) if len(raw) <= _WORDY else None
    if found is None and isinstance(error, msgspec.ValidationError):
        found = CallerFault("The body must be a JSON object.")
    return found or CallerFault(f"The body is not JSON: {str(error).removeprefix('JSON is malformed: ').lower()}.")


def _strictly(raw: bytes) -> CallerFault | None:
    """What the standard parser says of it; None if it takes it."""
    # Numbers stay text: nobody reads them here, and Python refuses to convert an integer of 5000 digits.
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)
    try:
        decoder.decode(raw.decode())
    except CallerFault as fault:
        return fault
    except RecursionError:
        return CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.")
    except UnicodeDecodeError as error:
        return CallerFault(f"The body is not UTF-8 (byte {error.start + 1}).")
    except json.JSONDecodeError as error:
        said = error.msg.lower().removesuffix(" at")
        return CallerFault(f"The body is not JSON: {said} at line {error.lineno}, column {error.colno}.")
    return None


def _no_constant(name: str) -> Any:
    raise CallerFault(f"The body is not JSON: {name} is not a JSON number.")
