"""policies/provider_limits.py: a provider's own limits slow calls down, and refuse those for which there is no time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from spangate.call.call import Call
from spangate.call.chain import Next, chain, pulling
from spangate.call.clock import SYSTEM, Clock
from spangate.call.errors import UpstreamError
from spangate.call.events import Delta
from spangate.policies.provider_limits import WAIT, ProviderLimits
from spangate.policies.refusals import TargetRefused
from spangate.policies.time_limit import TimeLimit
from spangate.policies.tokens import Tokens
from spangate.policies.turns import Turn, headers_of
from spangate.proxy.providers.scripted import ScriptedProvider

from admitting import TARGET, call, notes
from ledgers import Hands


class Stage:
    """A provider that answers with these heads, one after another, the last one for ever."""

    def __init__(
        self, *heads: Mapping[str, str], wait: float = WAIT, script: Sequence[Mapping[str, Any]] = (), clock: Clock = SYSTEM
    ) -> None:
        rules = [{"answer": {"headers": dict(head)}, "times": 1} for head in heads[:-1]]
        last = [{"answer": {"headers": dict(head)}} for head in heads[-1:]]
        self.provider = ScriptedProvider("script", [*script, *rules, *last])
        self.limits = ProviderLimits("script", self.provider.lines, Tokens(), clock=clock, wait=wait)
        self.next: Next = chain([self.limits], self.provider.answer)

    async def ask(self, asked: Call | None = None, **more: Any) -> str:
        async with pulling(self.next((asked or call(**more)).to(TARGET))) as events:
            return "".join([event.text async for event in events if isinstance(event, Delta)])

    async def refusal(self, asked: Call | None = None, **more: Any) -> TargetRefused:
        with pytest.raises(TargetRefused) as caught:
            await self.ask(asked, **more)
        return caught.value


def requests(remaining: int, reset: str) -> dict[str, str]:
    return {"x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": str(remaining), "x-ratelimit-reset-requests": reset}


async def test_a_provider_that_tells_nothing_is_asked_at_once() -> None:
    stage = Stage({})
    for _ in range(3):
        asked = call()
        assert await stage.ask(asked) == "hi"
        assert len(asked.notes) == 0
    assert stage.provider.lines.models == ()


async def test_a_call_waits_for_its_turn() -> None:
    hands = Hands()
    stage = Stage(requests(0, "4s"), clock=hands.clock)
    await stage.ask()
    asked = call()
    waiting = asyncio.create_task(stage.ask(asked))
    await asyncio.sleep(0)
    line = stage.provider.lines.of(TARGET.model)
    assert line is not None
    assert (line.waiting, len(stage.provider.calls)) == (1, 1)
    hands.pass_(3)
    stage.provider.lines.heard(TARGET.model, 200, headers_of(requests(1, "1s")), Turn(line.sent, 0.0))
    assert await waiting == "hi"
    told = {"rule": "providers.script", "scope": "provider:script", "seconds": 3.0, "admitted": True}
    assert notes(asked, "rate_limit.waited") == [told]


async def test_a_call_that_would_wait_too_long_is_refused() -> None:
    stage = Stage(requests(0, "45s"))
    await stage.ask()
    asked = call()
    error = await stage.refusal(asked)
    assert (error.code, error.source, error.headers) == ("rate_limit_exceeded", "policy", {"retry-after": "45"})
    assert "provider 'script'" in error.message
    assert "its own limit of 2 requests" in error.message
    limit = dict(error.facts["limit"])
    assert str(limit.pop("resets_at")).startswith("20")
    told = {"name": "script.requests", "scope": "provider:script", "unit": "requests", "limit": 2, "used": 2, "reserved": 0}
    assert limit == told
    [note] = notes(asked, "rate_limit.refused")
    assert note.pop("resets_at")
    assert note == {**told, "rule": "providers.script", "retry_after": 45}
    assert len(stage.provider.calls) == 1


async def test_a_pause_that_a_provider_asked_for() -> None:
    stage = Stage(script=[{"fault": {"status": 429, "headers": {"retry-after": "7200"}}}])
    with pytest.raises(UpstreamError):
        await stage.ask()
    error = await stage.refusal()
    assert error.headers == {"retry-after": "60"}
    assert "it asked for a pause" in error.message
    assert (error.facts["limit"]["name"], error.facts["limit"]["limit"], error.facts["limit"]["used"]) == ("script.retry_after", None, None)


@pytest.mark.parametrize(("limits", "stream"), [({"total": 2}, False), ({"first": 2}, True)])
async def test_no_call_waits_longer_than_its_answer_may_take(limits: dict[str, float], stream: bool) -> None:
    stage = Stage(requests(0, "3s"))
    await stage.ask()
    stage.next = chain([TimeLimit(**limits), stage.limits], stage.provider.answer)
    assert (await stage.refusal(stream=stream)).code == "rate_limit_exceeded", "at once: a limit that passes is a timeout"


async def test_each_model_has_limits_of_its_own() -> None:
    stage = Stage(requests(0, "45s"))
    await stage.ask()
    other = call().to(replace(TARGET, model="other"))
    async with pulling(stage.next(other)) as events:
        assert [event async for event in events]
    await stage.refusal()


async def test_tokens_are_counted_as_they_will_likely_be() -> None:
    tokens = {"x-ratelimit-limit-tokens": "100000", "x-ratelimit-remaining-tokens": "3000", "x-ratelimit-reset-tokens": "45s"}
    stage = Stage(tokens)
    await stage.ask()
    long = "word " * 3000
    for content, cap, fits in (("hi", 100, True), (long, 100, False), ("hi", 100_000, True), ("hi", None, True)):
        asked = call(content, max_tokens=cap)
        if fits:
            await stage.ask(asked)
        else:
            assert (await stage.refusal(asked)).facts["limit"]["unit"] == "tokens"


async def test_a_long_body_is_looked_at_before_it_is_counted() -> None:
    stage = Stage({"x-ratelimit-limit-tokens": "100000", "x-ratelimit-remaining-tokens": "90000", "x-ratelimit-reset-tokens": "45s"})
    await stage.ask()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 40_000}}
    asked = call(messages=[{"role": "user", "content": [picture]}])
    await stage.ask(asked)
    assert len(stage.provider.calls) == 2


async def test_who_leaves_the_line_is_not_sent() -> None:
    stage = Stage(requests(0, "4s"))
    await stage.ask()
    line = stage.provider.lines.of(TARGET.model)
    assert line is not None
    leaving = asyncio.create_task(stage.ask())
    await asyncio.sleep(0)
    assert line.waiting == 1
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (line.waiting, len(stage.provider.calls)) == (0, 1)
