"""policies/rate_limit.py: what may be said of a limit, and what it comes to."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from pydantic import ValidationError

from spangate.call.errors import Refused
from spangate.policies.ledger.ledger import NANO
from spangate.policies.rate_limit import RateLimit

from admitting import Gate


def test_one_bound_for_each_thing() -> None:
    rule = RateLimit.model_validate({"requests": "600/min", "tokens": "200k/h", "concurrent": 32, "interval": "2s", "wait": "3s"})
    bounds = rule.bounds("standard")
    assert [(each.unit, each.window.text, each.limit // NANO) for each in bounds] == [
        ("requests", "rolling 60s", 600),
        ("tokens", "rolling 1h", 200_000),
        ("concurrent", "in flight", 32),
        ("interval", "rolling 2s", 1),
    ]
    assert {each.name for each in bounds} == {"standard.rate_limit.key"}
    assert {each.wait for each in bounds} == {3.0}
    assert {each.on_state_error for each in bounds} == {"local"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "needs one of requests"),
        ({"requests": 600}, "a rate such as"),
        ({"requests": "600/fortnight"}, "a rate such as"),
        ({"requests": "-1/s"}, "a number such as"),
        ({"interval": "200ms"}, "at least 1s"),
        ({"concurrent": 1, "per": "thread"}, "Input should be"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RateLimit.model_validate(said)


@pytest.mark.fault("RL-10")
async def test_no_minute_holds_more_than_the_limit_wherever_it_begins() -> None:
    gate = Gate(RateLimit.model_validate({"requests": "60/min"}))
    start = gate.hands.wall
    admitted: list[int] = []
    for burst in (59.5, 60.5, 90.0, 119.9, 120.6, 130.0):
        gate.hands.pass_((start + round(burst * 10**9) - gate.hands.wall) / 10**9)
        for _ in range(60):
            with suppress(Refused):
                await gate.ask()
                admitted.append(gate.hands.wall)
    for at in admitted:
        assert sum(at <= other < at + 60 * 10**9 for other in admitted) <= 60
    assert len(admitted) >= 120


@pytest.mark.fault("RL-08")
async def test_the_wall_clock_fills_and_lifts_no_limit() -> None:
    gate = Gate(RateLimit.model_validate({"requests": "5/min"}))
    for _ in range(5):
        await gate.ask()
    for jump in (-11, 3600, -3600):
        gate.hands.wall += jump * 10**9
        with pytest.raises(Exception, match="is reached"):
            await gate.ask()
    gate.hands.pass_(62)
    await gate.ask()


@pytest.mark.fault("RL-06")
async def test_a_large_picture_is_not_many_tokens() -> None:
    gate = Gate(RateLimit.model_validate({"tokens": "50000/min"}))
    url = "data:image/png;base64," + "A" * 1_500_000
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "hi"}]
    heard = await gate.ask(messages=[{"role": "user", "content": parts}], max_tokens=100)
    assert 48_000 < int(heard.headers["x-ratelimit-remaining-tokens"]) < 49_800


@pytest.mark.parametrize("per", ["key", "team", "model", "provider"])
async def test_each_has_one_of_its_own(per: str) -> None:
    gate = Gate(RateLimit.model_validate({"requests": "1/min", "per": per}))
    await gate.ask()
    with pytest.raises(Exception, match="is reached") as caught:
        await gate.ask()
    facts: dict[str, Any] = caught.value.facts["limit"]  # type: ignore[attr-defined]
    assert facts["scope"].startswith(f"{per}:")
    assert facts["window"] == "rolling 60s"
