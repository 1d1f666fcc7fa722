"""What a provider tells of its own limits in the head of an answer: how much of each is left, when it is full again, when to come back.

    x-ratelimit-{limit,remaining,reset}-{requests,tokens}   OpenAI's: resets as Go writes durations (6m0s, 120ms), or in seconds
    anthropic-ratelimit-{…,input-tokens,output-tokens}-{limit,remaining,reset}      resets as instants (RFC 3339)
    ratelimit-policy, ratelimit                             draft-ietf-httpapi-ratelimit-headers: "name";r=50;t=30
    retry-after-ms, retry-after                             milliseconds; seconds or an HTTP date (RFC 9110, 10.2.3)

Pure. None of it is trusted: what makes no sense counts as not said, to callers as to us, and how long anything is believed is for others
to bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from math import ceil
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
FARTHEST = 31 * 86400.0  # seconds: limits are told of a month at the most, so that nobody has to come back later
PAST = 60.0  # seconds: an instant that is over since then was the time of something else


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
_AGAIN = ((b"retry-after-ms", 0.001), (b"retry-after", 1.0))
"""When to come back, and what a number there is of, in seconds: the finer first."""
NAMES = frozenset([b"ratelimit", b"ratelimit-policy", *[name for name, _ in _AGAIN], *[name for _, *names in _FIELDS for name in names]])


def told_by(headers: Headers, now: int) -> Told | None:
    """What a head tells, at the wall time `now` in nanoseconds; None: nothing, as most. An instant is measured against the answer's own
    `date`, since both are by the provider's clock."""
    said = {name: value for name, value in headers if name in NAMES}
    if not said:
        return None
    dated = _dated(headers, now)
    listed = _listed(said) if b"ratelimit" in said else ()
    again = next((wait for name, unit in _AGAIN if name in said and (wait := _wait(_text(said[name]), dated, unit))), 0.0)
    return Told((*_fielded(said, dated), *listed), again)


def passed_on(headers: Headers, now: int) -> dict[str, str]:
    """When to come back, as callers hear of it: as it was said, where that makes sense to them; as a number, where it was said in other
    words than theirs; nothing, where we read nothing in it either. `now` as of `told_by`."""
    said, found = dict(headers), {}
    for name, unit in _AGAIN:
        text = _text(said.get(name, b""))
        wait = _wait(text, _dated(headers, now), unit)
        if wait is not None:
            number = _number(text)
            as_said = (number is not None and number < EPOCH) or (unit == 1.0 and _HTTP_DATE.fullmatch(text))
            found[name.decode()] = text if as_said else str(ceil(round(wait / unit, 3)))
    return found


def _dated(headers: Headers, now: int) -> Now:
    """The time of an answer, by whoever gave it, if it says so."""
    return lambda: next((at for name, value in headers if name == b"date" and (at := _date(_text(value))) is not None), now / 1e9)


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


def _wait(text: str, now: Now, unit: float) -> float | None:
    """How long to stay away. None: it doesn't say, or nothing that a provider can mean."""
    found = _until(text, now, unit)
    return None if found is None or not -PAST <= found <= FARTHEST else max(0.0, found)


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
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")


def seconds(text: str, now: Now, unit: float = 1.0) -> float | None:
    """How long from `now` on: a number of `unit` seconds, a duration as Go writes it, or an instant as a number, in RFC 3339, or as an HTTP
    date. Never below 0. None: none of these."""
    found = _until(text, now, unit)
    return None if found is None else max(0.0, found)


def _until(text: str, now: Now, unit: float) -> float | None:
    """As `seconds`, below 0 where that is past."""
    if not text:
        return None
    number = _number(text)
    if number is not None and number < EPOCH:
        return number * unit
    if number is None and (found := _duration(text)) is not None:
        return found
    at = _instant(text) if number is None else number / 1000 if number >= EPOCH_MS else number
    return None if at is None else at - now()


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
