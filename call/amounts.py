"""Amounts as people write them, `5s`, `32MiB`, `200k`, and the pydantic types that read them.

Pure: text in, number out, and back. Settings classes of every room use `Duration`, `Size` and `Number`, so that one grammar holds
everywhere: numbers `k M G` decimal, sizes `kB MB GB` decimal and `KiB MiB GiB` binary, times `ms s m h d`, rates `N/s /min /h /day`,
shares `10%`. A bare number is seconds, bytes or a count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

TIMES = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
SIZES = {"kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
NUMBERS = {"k": 1000, "M": 1000**2, "G": 1000**3}
PER = {"s": 1, "min": 60, "h": 3600, "day": 86400}

# An int64 of nanoseconds ends after 292 years, an asyncio timer before; nobody means either.
LONGEST_DAYS = 36500
LARGEST = 2**63 - 1

# No sign: nothing that is counted, held or waited for is negative. Bounded, so that no text costs a long conversion.
AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?) ?([A-Za-z]{0,5})", re.ASCII)


def seconds(value: object) -> float:
    """`250ms` → 0.25."""
    amount = _amount(value, TIMES, "a time such as 250ms, 5s, 10m, 1h or 30d")
    if amount > LONGEST_DAYS * 86400:
        raise ValueError(f"must be at most {LONGEST_DAYS}d")
    return float(amount)


def size(value: object) -> int:
    """`32MiB` → 33554432."""
    return _whole(_amount(value, SIZES, "a size such as 512KiB, 32MiB or 1GB"), "bytes")


def number(value: object) -> int:
    """`200k` → 200000."""
    return _whole(_amount(value, NUMBERS, "a number such as 600, 200k or 5M"), "numbers")


class Rate(NamedTuple):
    """So many in so many seconds."""

    amount: int
    seconds: int

    def __str__(self) -> str:
        return f"{show_number(self.amount)}/{next((name for name, each in PER.items() if each == self.seconds), f'{self.seconds}s')}"


def rate(value: object) -> Rate:
    """`200k/min` → Rate(200000, 60)."""
    if isinstance(value, Rate):
        return value
    count, slash, unit = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not slash or unit.strip() not in PER:
        raise ValueError(f"must be a rate such as 10/s, 600/min or 200k/h (N/{', N/'.join(PER)})")
    return Rate(number(count), PER[unit.strip()])


def quantity(value: object) -> Decimal:
    """`5M` → 5000000, `0.25` → 0.25: a number that need not be whole."""
    if isinstance(value, Decimal):
        return value
    return _amount(value, NUMBERS, "a number such as 50, 0.25, 200k or 5M")


def share(value: object) -> Decimal:
    """`10%` → 0.1; so is 0.1."""
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, Decimal):
        return text
    if isinstance(text, str) and text.endswith("%"):
        return _amount(text[:-1].rstrip(), {}, "a share such as 10%") / 100
    return _amount(text, {}, "a share such as 10%")


def show_share(value: Decimal) -> str:
    """Text that `share` reads as the same: 10%."""
    return f"{(Decimal(value) * 100).normalize():f}%"


def show_quantity(value: Decimal) -> str:
    """Text that `quantity` reads as the same: 5M, 0.25."""
    exact = Decimal(value)
    return show_number(int(exact)) if exact == int(exact) else f"{exact.normalize():f}"


def show_seconds(value: float) -> str:
    """Text that `seconds` reads as the same time, in a unit that keeps it whole; seconds up to ten minutes, as people write."""
    exact = Decimal(repr(float(value)))
    for unit in ("d", "h", "m", "s", "ms"):
        count = exact / TIMES[unit]
        if count >= (11 if unit == "m" else 1) and count == int(count):
            return f"{int(count)}{unit}"
    return f"{exact.normalize():f}s" if exact else "0s"


def show_size(value: int) -> str:
    """Text that `size` reads as the same count of bytes."""
    return _show(value, ("GiB", "GB", "MiB", "MB", "KiB", "kB"), SIZES)


def show_number(value: int) -> str:
    """Text that `number` reads as the same number: 10k, but 1000."""
    return str(value) if value < 10_000 else _show(value, ("G", "M", "k"), NUMBERS)


def _show(value: int, order: tuple[str, ...], units: Mapping[str, int]) -> str:
    for unit in order:
        if value and value % units[unit] == 0:
            return f"{value // units[unit]}{unit}"
    return str(value)


def _amount(value: object, units: Mapping[str, Decimal | int], wanted: str) -> Decimal:
    # bool is an int in Python; `max_calls: true` is a slip all the same.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be {wanted}")
    text = value.strip() if isinstance(value, str) else _plain(value)
    match = AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"must be {wanted}")
    figure, unit = match.groups()
    if unit and unit not in units:
        raise ValueError(f"must be {wanted}: {_unit_advice(unit, units)}")
    return Decimal(figure) * (units[unit] if unit else 1)


def _plain(value: float) -> str:
    # Decimal of the repr, so that 1e-05 is written out and 1e300, inf and nan fall to the pattern.
    return str(value) if isinstance(value, int) else f"{Decimal(repr(value)):f}"


def _unit_advice(unit: str, units: Mapping[str, Decimal | int]) -> str:
    near = [known for known in units if known.lower() == unit.lower()] or [k for k in units if k.lower() == f"{unit.lower()}b"]
    return f"the unit is {' or '.join(near)}" if near else f"units are {' '.join(units)}"


def _whole(amount: Decimal, what: str) -> int:
    if amount != int(amount):
        raise ValueError(f"must come to whole {what}")
    if amount > LARGEST:
        raise ValueError("is too large")
    return int(amount)


def _schema(units: Mapping[str, Any], amount: str, example: str) -> WithJsonSchema:
    pattern = rf"^[0-9]{{1,20}}(\.[0-9]{{1,9}})? ?({'|'.join(units)})?$"
    written: dict[str, Any] = {"type": "string", "pattern": pattern, "examples": [example]}
    # `x-amount` lets proxy/schema.py write defaults as people do, and is taken out there.
    return WithJsonSchema({"anyOf": [written, {"type": "number", "minimum": 0}], "x-amount": amount})


Duration = Annotated[float, BeforeValidator(seconds), _schema(TIMES, "time", "5s")]
Size = Annotated[int, BeforeValidator(size), _schema(SIZES, "size", "32MiB")]
Number = Annotated[int, BeforeValidator(number), _schema(NUMBERS, "number", "200k")]
RateOf = Annotated[
    Rate,
    BeforeValidator(rate),
    WithJsonSchema(
        {"type": "string", "pattern": rf"^[0-9]{{1,20}}(\.[0-9]{{1,9}})? ?(k|M|G)?/({'|'.join(PER)})$", "examples": ["600/min"]}
    ),
]
Quantity = Annotated[Decimal, BeforeValidator(quantity), _schema(NUMBERS, "quantity", "5M")]
Share = Annotated[
    Decimal,
    BeforeValidator(share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^[0-9]{1,20}(\.[0-9]{1,9})? ?%?$", "examples": ["10%"]},
                {"type": "number", "minimum": 0},
            ],
            "x-amount": "share",
        }
    ),
]
