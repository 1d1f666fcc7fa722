"""A request body from bytes to fields: which JSON we take, and what we say of the rest.

One fast pass (msgspec, top-level names to raw bytes) does the work; what it refuses, the strict standard parser decides. Refused
are: what is not UTF-8, not an object, nested deeper than 128, holds NaN or Infinity (RFC 8259 has neither), or names a top-level
field twice (a policy would read one value and the provider the other). A lone surrogate is JSON, so it is taken; such a body
goes out ASCII-escaped.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import msgspec

from ..call.body import Body
from ..call.errors import CallerFault

MAX_DEPTH = 128
_LONG = 131072  # bytes from which the loop gets a turn between the passes

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_BLANK = re.compile(rb"[ \t\r\n]*")
_NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


async def read_body(raw: bytes) -> Body:
    """The body as fields.

    Raises:
        CallerFault: one of the reasons above.
    """
    if not raw.isascii():
        _utf8(raw)
    await _turn(raw)
    try:
        fields: Mapping[str, msgspec.Raw | bytes] = _fields(raw)
    except (msgspec.DecodeError, RecursionError):
        return _strictly(raw)
    await _turn(raw)
    await _shallow(raw)
    if not _each_once(raw, fields):
        return _strictly(raw)
    return Body(fields, raw)


async def _turn(raw: bytes) -> None:
    if len(raw) > _LONG:
        await asyncio.sleep(0)


def _utf8(raw: bytes) -> None:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise CallerFault(f"The body is not UTF-8 (byte {error.start + 1}).") from None


async def _shallow(raw: bytes) -> None:
    """Refuse what nests deeper than MAX_DEPTH. `raw` is valid JSON, so its brackets are balanced."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # pairs first, so that what is left before a quote escapes it
        await _turn(raw)
    outside = raw.translate(None, _NOT_STRUCTURE).split(b'"')[::2]
    brackets = b"".join(outside)
    if len(brackets) <= 2 * MAX_DEPTH:
        return
    depth = 0
    for start in range(0, len(brackets), 4096):
        depths = list(accumulate(map(_STEP.__getitem__, brackets[start : start + 4096]), initial=depth))
        if max(depths) > MAX_DEPTH:
            raise CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.")
        depth = depths[-1]
        await asyncio.sleep(0)


def _each_once(raw: bytes, fields: Mapping[str, Any]) -> bool:
    """Whether names and values of `fields`, in order, are all that stands in `raw`: then no name came twice.

    False also for names that are written with escapes; the strict parser knows.
    """
    at = _after_blank(raw, 0) + 1
    for name, value in fields.items():
        key = b'"' + name.encode("utf-8", "surrogatepass") + b'"'
        at = _after_blank(raw, at)
        if not raw.startswith(key, at):
            return False
        at = _after_blank(raw, at + len(key)) + 1
        at = _after_blank(raw, at) + len(memoryview(value))
        at = _after_blank(raw, at) + 1
    return at == len(raw.rstrip()) + (0 if fields else 1)


def _after_blank(raw: bytes, at: int) -> int:
    if at < len(raw) and raw[at] > 32:
        return at
    blank = _BLANK.match(raw, at)
    return blank.end() if blank else at


def _strictly(raw: bytes) -> Body:
    """The standard parser's view of what msgspec refused or could not vouch for."""
    try:
        value = json.loads(raw, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except RecursionError:
        raise CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.") from None
    except json.JSONDecodeError as error:
        raise CallerFault(f"The body is not JSON: {error.msg.lower()} at line {error.lineno}, column {error.colno}.") from None
    except UnicodeDecodeError:
        raise CallerFault("The body is not UTF-8.") from None
    except ValueError:  # an integer of more digits than Python converts
        raise CallerFault("The body is not usable JSON: a number is too long.") from None
    if not isinstance(value, _Pairs):
        raise CallerFault("The body must be a JSON object.")
    _no_duplicate(value.names)
    if _depth(value.value) > MAX_DEPTH:
        raise CallerFault(f"The body is nested deeper than {MAX_DEPTH} levels.")
    return Body({_escaped_name(name): json.dumps(_plain(part)).encode("ascii") for name, part in value.value.items()})


class _Pairs:
    """An object as the parser saw it, with every name in order."""

    __slots__ = ("names", "value")

    def __init__(self, names: list[str], value: dict[str, Any]) -> None:
        self.names = names
        self.value = value


def _pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    return _Pairs([name for name, _ in pairs], dict(pairs))


def _no_constant(name: str) -> Any:
    raise CallerFault(f"The body is not JSON: {name} is not a JSON number.")


def _no_duplicate(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            shown = name[:64].encode("ascii", "backslashreplace").decode("ascii")
            raise CallerFault(f"The body names {shown!r} twice; say it once.", param=shown)
        seen.add(name)


def _escaped_name(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {name: _plain(part) for name, part in value.value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value


def _depth(value: Any) -> int:
    """Nesting of a parsed value, its own level counted; level by level, so that depth costs no stack."""
    deep, level = 0, [value]
    while level and deep <= MAX_DEPTH + 1:
        deep += 1
        parts: list[Any] = []
        for item in level:
            parts.extend(item.values() if isinstance(item, dict) else item.value.values() if isinstance(item, _Pairs) else item)
        level = [part for part in parts if isinstance(part, list | dict | _Pairs)]
    return deep
