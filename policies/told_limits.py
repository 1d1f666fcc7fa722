"""What a provider tells of its own limits in the head of an answer: how much of each is left, when it is full again, when to come back.

    x-ratelimit-{limit,remaining,reset}-{requests,tokens}   OpenAI's: resets as Go writes durations (6m0s, 120ms), or in seconds
    anthropic-ratelimit-{…,input-tokens,output-tokens}-{limit,remaining,reset}      resets as instants (RFC 3339)
    ratelimit-policy, ratelimit                             draft-ietf-httpapi-ratelimit-headers: "name";r=50;t=30
    retry-after-ms, retry-after                             milliseconds; seconds or an HTTP date (RFC 9110, 10.2.3)

Pure. None of it is trusted: what makes no sense counts as not said, and how long anything is believed is for others to bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Literal, get_args

import msgspec

Unit = Literal["requests", "tokens", "input_tokens", "output_tokens"]
Headers = Iterable[tuple[bytes, bytes]]
"""Header lines as they came, names in lower case."""
Now = Callable[[], float]
"""Seconds since 1970: asked by those alone to whom an instant was told."""

MOST = 10**15  # of anything that is counted, or in seconds
LONGEST = 512  # bytes of a value that is read
POLICIES = 4  # limits of a list that are kept


class Left(msgspec.Struct, frozen=True):
    """What is left of one limit. `name`: a list's own for it, else empty. `reset`: seconds until all of it is there again; None: not said,
    as for `limit`."""

    unit: Unit
    remaining: int
    limit: int | None = None
    reset: float | None = None
    name: str = ""


class Told(msgspec.Struct, frozen=True):
    """All that a head tells. `retry_after` in seconds, 0 where it says nothing."""

    limits: tuple[Left, ...] = ()
    retry_after: float = 0.0


NOTHING = Told()


_FIELDS: tuple[tuple[Unit, bytes, bytes, bytes], ...] = (
    ("requests", b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests"),
    ("tokens", b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens"),
    *[
        (unit, *[b"anthropic-ratelimit-%b-%b" % (unit.replace("_", "-").encode(), part) for part in (b"limit", b"remaining", b"reset")])
        for unit in get_args(Unit)
    ],
)
_OTHERS = (b"ratelimit", b"ratelimit-policy", b"retry-after-ms", b"retry-after")
NAMES = frozenset([*_OTHERS, *[name for _, *names in _FIELDS for name in names]])


def told_by(headers: Headers, now: int) -> Told | None:
    """What a head tells, at the wall time `now` in nanoseconds; None: nothing, as most. An instant is measured against the answer's own
    `date`, since both are by the provider's clock."""
    said = {name: value for name, value in headers if name in NAMES}
    if not said:
        return None

    def dated() -> float:
        return next((at for name, value in headers if name == b"date" and (at := _date(_text(value))) is not None), now / 1e9)

    listed = _listed(said) if b"ratelimit" in said else ()
    again = _again(said, dated) if b"retry-after" in said or b"retry-after-ms" in said else 0.0
    return Told((*_fielded(said, dated), *listed), again)


def _fielded(said: Mapping[bytes, bytes], now: Now) -> list[Left]:
    found = []
    for unit, limit, remaining, reset in _FIELDS:
        if remaining in said and (left := count(_text(said[remaining]))) is not None:
            found.append(Left(unit, left, count(_text(said.get(limit, b""))) or None, seconds(_text(said.get(reset, b"")), now)))
    return found


_ENTRY = re.compile(r'\s*"?([\w.:/-]{1,64})"?\s*((?:;\s*[a-z]{1,8}\s*=\s*"?[\w-]{1,32}"?\s*){0,8})', re.ASCII)
_PARAMETER = re.compile(r';\s*([a-z]+)\s*=\s*"?([\w-]+)', re.ASCII)


def _listed(said: Mapping[bytes, bytes]) -> list[Left]:
    policies = dict(_entries(said.get(b"ratelimit-policy", b"")))
    found = []
    for name, about in _entries(said.get(b"ratelimit", b"")):
        policy = policies.get(name, {})
        unit = _unit(name, policy.get("qu", "requests"))
        remaining = count(about.get("r", ""))
        if unit is not None and remaining is not None:
            reset = count(about.get("t", ""))
            found.append(Left(unit, remaining, count(policy.get("q", "")) or None, None if reset is None else float(reset), name))
    return found[:POLICIES]


def _entries(value: bytes) -> Iterable[tuple[str, dict[str, str]]]:
    for entry in _text(value).split(","):
        if found := _ENTRY.fullmatch(entry):
            yield found[1], dict(_PARAMETER.findall(found[2]))


def _unit(name: str, counted: str) -> Unit | None:
    """What an entry of a list counts: calls, unless it says or its name says otherwise. What can't be told of a call doesn't concern us."""
    if counted == "tokens" or name.endswith("tokens"):
        return "tokens"
    return "requests" if counted == "requests" else None


def _again(said: Mapping[bytes, bytes], now: Now) -> float:
    ms = seconds(_text(said.get(b"retry-after-ms", b"")), now, unit=0.001)
    return ms or seconds(_text(said.get(b"retry-after", b"")), now) or 0.0


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip() if len(value) <= LONGEST else ""


_COUNT = re.compile(r"(-?)([0-9]{1,18})(?:\.[0-9]{1,18})?")


@lru_cache(4096)
def count(text: str) -> int | None:
    """A number of whole things; what is below nothing is nothing. None: it is no number."""
    found = _COUNT.fullmatch(text)
    return None if found is None else 0 if found[1] else min(int(found[2]), MOST)


_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_GO = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,12})?(?:ns|us|µs|ms|s|m|h)){1,6}")
_GO_PART = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)")
_GO_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
EPOCH = 1e9  # seconds from which on a number is an instant: so long nobody waits
EPOCH_MS = 1e12


def seconds(text: str, now: Now, unit: float = 1.0) -> float | None:
    """How long from `now` on: a number of `unit` seconds, a duration as Go writes it, or an instant as a number, in RFC 3339, or as an HTTP
    date. Never below 0. None: none of these."""
    if not text:
        return None
    number = _number(text)
    if number is not None and number < EPOCH:
        return number * unit
    if number is None and (found := _duration(text)) is not None:
        return found
    at = _instant(text) if number is None else number / 1000 if number >= EPOCH_MS else number
    return None if at is None else max(0.0, at - now())


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


@lru_cache(4096)
def _duration(text: str) -> float | None:
    return sum([float(part) * _GO_UNITS[of] for part, of in _GO_PART.findall(text)]) if _GO.fullmatch(text) else None


def _instant(text: str) -> float | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return _date(text)
    return _since_1970(at)


def _date(text: str) -> float | None:
    try:
        return _since_1970(parsedate_to_datetime(text))
    except (ValueError, OverflowError):
        return None


def _since_1970(at: datetime) -> float:
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
