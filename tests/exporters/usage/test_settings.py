"""The sections `usage` and `prices`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from spangate.exporters.usage.settings import Price, Usage


def test_nothing_need_be_said() -> None:
    usage = Usage()
    assert (usage.path, usage.retention, usage.fsync, usage.max_spool) == ("spangate.duckdb", 90 * 86400, 1.0, 2**30)


def test_amounts_as_people_write_them() -> None:
    usage = Usage.model_validate({"path": "data/u.duckdb", "retention": "30d", "fsync": "250ms", "max_spool": "64MiB"})
    assert (usage.retention, usage.fsync, usage.max_spool) == (30 * 86400, 0.25, 64 * 2**20)
    assert Usage.model_validate({"fsync": 0}).fsync == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": ""},
        {"path": "."},
        {"path": "/"},
        {"path": ".."},
        {"path": "data/"},
        {"path": "a\0b"},
        {"retention": "5m"},
        {"retention": "-1d"},
        {"max_spool": "1kB"},
        {"fsync": "fast"},
        {"retain": "1d"},
    ],
)
def test_what_is_no_usage(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Usage.model_validate(wrong)


@pytest.mark.parametrize(("written", "meant"), [(0.1, "0.1"), ("0.025", "0.025"), (3, "3"), (0, "0"), (1e-7, "1E-7"), (1000000, "1000000")])
def test_prices_are_exact(written: object, meant: str) -> None:
    price = Price.model_validate({"model": "m", "input": written, "output": written})
    assert price.input == Decimal(meant)
    assert price.cached is None


@pytest.mark.parametrize("wrong", [-1, "-0.1", "free", True, None, "1e400", float("nan"), float("inf"), 1e-10, 1000001, [1], "0x10"])
def test_what_is_no_price(wrong: object) -> None:
    with pytest.raises(ValidationError, match="US dollars per million tokens"):
        Price.model_validate({"model": "m", "input": wrong, "output": 1})


def test_a_price_is_for_a_model_of_a_provider() -> None:
    price = Price.model_validate({"provider": "local*", "model": "qwen3:*", "input": 0, "output": 0})
    assert price.fits("local-1", "qwen3:8b")
    assert not price.fits("local-1", "qwen2:8b")
    assert not price.fits("openai", "qwen3:8b")
    for missing in ("model", "input", "output"):
        with pytest.raises(ValidationError):
            Price.model_validate({name: 1 if name != "model" else "m" for name in ("model", "input", "output") if name != missing})
