"""What spangate.yaml says of usage and prices: the sections `usage` and `prices`."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import PurePath
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from ...call.amounts import Duration, Size
from ...call.rules import fits_glob
from ..settings import Section

DEAREST = 10**6  # USD per million tokens: nobody asks for more than a dollar a token
DIGITS = 9  # after the point


def usd(value: object) -> Decimal:
    """A price as people write it: a decimal without sign and unit, kept exactly."""
    amount = None
    # A float by its repr: 0.1 is what was written, whatever its bits come to.
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
        try:
            amount = Decimal(str(value).strip())
        except InvalidOperation:
            amount = None
    if amount is None or not amount.is_finite() or not 0 <= amount <= DEAREST or -int(amount.normalize().as_tuple().exponent) > DIGITS:
        raise ValueError(f"must be US dollars per million tokens such as 0.25, with at most {DIGITS} decimals")
    return amount


Usd = Annotated[
    Decimal,
    BeforeValidator(usd),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]{1,7}(\.[0-9]{1,9})?$"}]}),
]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _names_a_file(path: str) -> str:
    if PurePath(path).name in ("", "..") or path.endswith(("/", "/.")) or "\0" in path:
        raise ValueError("must name a file, such as data/spangate.duckdb")
    return path


class Usage(Section):
    """Where the row of every call goes, and for how long."""

    enabled: bool = True
    """Whether rows are kept at all. A change needs a restart."""
    path: Annotated[str, StringConstraints(min_length=1), AfterValidator(_names_a_file)] = "spangate.duckdb"
    """The DuckDB file, beside this file unless the path is absolute. Its spool lies beside it, in `{path}.spool`. A change needs a
    restart."""
    retention: Annotated[Duration, Field(ge=3600)] = 90 * 86400.0
    """How long rows are kept; older ones are deleted, a few at a time. At least 1h."""
    fsync: Duration = 1.0
    """What a power failure may take at most (a crash or kill takes nothing); 0: never asked of the disk."""
    max_spool: Annotated[Size, Field(ge=2**20)] = 2**30
    """What the spool may hold while the database can't be written; what doesn't fit is lost, counted and told. At least 1MiB."""


class Price(Section):
    """What a model costs, in US dollars per million tokens, instead of what the catalog says."""

    provider: Pattern = "*"
    """A name under `providers`, exact or with `*`."""
    model: Pattern
    """What the provider calls the model, exact or with `*`."""
    input: Usd
    """Tokens of the request."""
    output: Usd
    """Tokens of the answer."""
    cached: Usd | None = None
    """The part of the request that was read from the provider's cache; `input` by default."""
    cache_write: Usd | None = None
    """The part of the request that was written to the provider's cache; `input` by default."""
    reasoning: Usd | None = None
    """The part of the answer that was reasoning; `output` by default."""

    def fits(self, provider: str, model: str) -> bool:
        return fits_glob(self.provider, provider) and fits_glob(self.model, model)
