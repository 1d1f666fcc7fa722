"""2.2 timing, 2.9 rate limit, 2.10 dynamic system prompt, 2.11 fallback."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from spangate.agent import (
    DynamicSystemPromptMiddleware,
    MiddlewareBase,
    ModelFallbackMiddleware,
    Msg,
    RateLimitExceeded,
    RateLimitMiddleware,
    ScriptedModel,
    TextBlock,
    TextBlockDeltaEvent,
    Timed,
    TimingMiddleware,
    TracingMiddleware,
    UserMsg,
)
from spangate.agent.hooks import prompt_through
from spangate.call.errors import UpstreamError, UpstreamIncomplete

from acceptance.lines import Spans, accepts, agent, stepping, told

# ---- timing


@accepts("streaming model with 1 s body → total ≥ 1 s, ttft < total")
async def the_body_counts() -> None:
    timed: list[Timed] = []
    model = ScriptedModel([{"answer": {"text": "a b c d e f", "every": "20ms"}}])
    await agent(model, TimingMiddleware(timed.append))("hi")
    [one] = timed
    assert one.first is not None
    assert one.seconds >= 0.1 > one.first
    assert one.outcome == "ok"


@accepts("error → duration recorded with outcome=error, error re-raised")
async def a_failure_is_timed() -> None:
    timed: list[Timed] = []
    with pytest.raises(UpstreamError):
        await agent(ScriptedModel([{"fault": {"status": 400}}]), TimingMiddleware(timed.append))("hi")
    assert [(each.outcome, each.error, each.first) for each in timed] == [("error", "UpstreamError", None)]


@accepts("system clock stepped back → duration ≥ 0")
async def never_less_than_nothing() -> None:
    timed: list[Timed] = []
    back: Iterator[int] = itertools.count(100, -10)
    await agent(ScriptedModel(), TimingMiddleware(timed.append, clock=lambda: next(back)))("hi")
    assert timed[0].seconds >= 0
    assert timed[0].first is not None
    assert timed[0].first >= 0


# ---- rate limit


class Looked:
    """The monotonic clock, and what it said last: to whoever looks next, however long the machine had other work in between."""

    last = 0.0

    def __call__(self) -> float:
        self.last = time.monotonic()
        return self.last


class Begun(MiddlewareBase):
    """When each model call was let go by a limit that goes by this clock."""

    def __init__(self, clock: Looked) -> None:
        self.at: list[float] = []
        self._clock = clock

    def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        self.at.append(self._clock.last)
        return next_handler()


def apart(at: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(sorted(at))]


@accepts("3 concurrent calls, 1 s → start times ≥1 s apart")
async def three_at_once() -> None:
    clock = Looked()
    begun, limit = Begun(clock), RateLimitMiddleware(0.05, clock=clock)
    bot = agent(ScriptedModel(), limit, begun)
    await asyncio.gather(*(bot("hi") for _ in range(3)))
    assert len(begun.at) == 3
    assert min(apart(begun.at)) >= 0.05


@accepts("clock step → unaffected")
async def no_wall_clock() -> None:
    # The clock never goes back; it is the default, and it is the one that counts.
    assert RateLimitMiddleware()._clock is time.monotonic
    now = [1000.0]
    limit = RateLimitMiddleware(1, on_exceed="reject", clock=lambda: now[0])
    bot = agent(ScriptedModel(), limit)
    await bot("hi")
    now[0] -= 500  # even a clock that does go back opens no gate
    with pytest.raises(RateLimitExceeded):
        await bot("hi")
    now[0] += 501
    await bot("hi")


@accepts("max_wait 0.5 and needed 1 → reject with 429 + Retry-After (proxy) / RateLimitExceeded (SDK)")
async def too_long_a_wait() -> None:
    now = [0.0]
    bot = agent(ScriptedModel(), RateLimitMiddleware(1, max_wait=0.5, clock=lambda: now[0]))
    await bot("hi")
    with pytest.raises(RateLimitExceeded) as refused:
        await bot("hi")
    assert (refused.value.retry_after, refused.value.code) == (1.0, "rate_limit_exceeded")
    assert refused.value.headers == {"retry-after": "1"}


@accepts("cancel waiter 2 of 3 → waiter 3 not delayed by it")
async def a_waiter_leaves() -> None:
    clock = Looked()
    begun = Begun(clock)
    bot = agent(ScriptedModel(), RateLimitMiddleware(0.1, clock=clock), begun)
    tasks = [asyncio.create_task(bot("hi")) for _ in range(3)]
    await tasks[0]
    tasks[1].cancel()
    await tasks[2]
    [between] = apart(begun.at)
    assert 0.1 <= between < 0.19
    assert tasks[1].cancelled()


@accepts("two keys → independent")
async def two_keys() -> None:
    limit = RateLimitMiddleware(60, key="model", on_exceed="reject")
    for name in ("one", "two"):
        await agent(ScriptedModel(model=name), limit)("hi")
    with pytest.raises(RateLimitExceeded):
        await agent(ScriptedModel(model="two"), limit)("hi")


# ---- dynamic system prompt


def prompts(model: ScriptedModel) -> list[Any]:
    return [[message["content"] for message in call["messages"] if message["role"] == "system"] for call in model.calls]


@accepts("two transformers → second sees first's output")
async def one_after_the_other() -> None:
    model = ScriptedModel()
    layers = [DynamicSystemPromptMiddleware(lambda text=text: text, heading="") for text in ("one", "two")]
    await agent(model, *layers, prompt="p")("hi")
    assert prompts(model) == [["p\n\none\n\ntwo"]]


@accepts("changing clock fn called twice in a round → same text both times")
async def once_a_round() -> None:
    class Counts(MiddlewareBase):
        """Puts the prompt together before the step, as whoever counts its tokens does."""

        def __init__(self) -> None:
            self.seen: list[str | None] = []

        async def on_compress_context(self, agent: Any, input_kwargs: Any, next_handler: Any) -> None:
            self.seen.append(await prompt_through(agent.hooks, agent, agent.system_prompt))

    ticks, counts, model = itertools.count(), Counts(), stepping(1)
    await agent(model, counts, DynamicSystemPromptMiddleware(lambda: str(next(ticks)), heading="Now"), prompt="p")("hi")
    assert prompts(model) == [["p\n\nNow\n0"], ["p\n\nNow\n1"]]
    assert counts.seen == ["p\n\nNow\n0", "p\n\nNow\n1"]


@accepts("async fn works")
async def a_coroutine_function() -> None:
    async def context(agent: Any) -> str:
        await asyncio.sleep(0)
        return f"of {agent.name}"

    model = ScriptedModel()
    await agent(model, DynamicSystemPromptMiddleware(context), prompt="p")("hi")
    assert prompts(model) == [["p\n\n## Current Context\nof a"]]


@accepts("replace with None → no system message")
async def no_prompt_left() -> None:
    model = ScriptedModel()
    await agent(model, DynamicSystemPromptMiddleware(lambda: None, "replace"), prompt="p")("hi")
    assert prompts(model) == [[]]


@accepts("block-list prompts keep their blocks")
async def blocks_stay_blocks() -> None:
    model = ScriptedModel()
    blocks = Msg("system", [TextBlock("one"), TextBlock("two")], "system")
    await agent(model, DynamicSystemPromptMiddleware(lambda: "now"), prompt="p")([blocks, UserMsg("hi")])
    own, given = prompts(model)[0]
    assert own == "p\n\n## Current Context\nnow"
    assert given == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


# ---- fallback


def failing(fault: Any, *, model: str = "broken", **answer: Any) -> ScriptedModel:
    return ScriptedModel([{"fault": fault, "answer": answer}], model=model)


def spare(text: str = "saved", model: str = "spare") -> ScriptedModel:
    return ScriptedModel.saying(text, model=model)


@accepts("primary 503, second ok → one response, span shows both")
async def the_second_answers() -> None:
    spans = Spans()
    bot = agent(failing({"status": 503}), TracingMiddleware(spans.provider), ModelFallbackMiddleware(spare()))
    stream = bot.stream("hi")
    assert (await stream.result()).text == "saved"
    assert [span.name for span in spans.named("chat")] == ["chat broken", "chat spare"]
    assert len(stream.view.steps) == 1


async def texts(bot: Any) -> str:
    return "".join(event.delta for event in await told(bot.stream("hi")) if isinstance(event, TextBlockDeltaEvent))


@accepts("stream opens then dies before text → fallback, client sees one clean stream")
async def dies_before_text() -> None:
    assert await texts(agent(failing({"reset_after": 0}, text="never"), ModelFallbackMiddleware(spare()))) == "saved"


@accepts("dies after 3 deltas → error, no replay")
async def dies_later() -> None:
    other = spare()
    stream = agent(failing({"reset_after": 3}, text="a b c d e"), ModelFallbackMiddleware(other)).stream("hi")
    deltas: list[str] = []

    async def heard() -> None:
        async for event in stream:
            deltas.extend([event.delta] if isinstance(event, TextBlockDeltaEvent) else [])

    with pytest.raises(UpstreamIncomplete):
        await heard()
    assert len(deltas) == 3
    assert not other.calls
    assert stream.view.state.context[-1].text == "".join(deltas), "what was said is kept"


@accepts("HTTP 200 + error event first → fallback")
async def an_error_in_200() -> None:
    assert await texts(agent(failing("error_in_200"), ModelFallbackMiddleware(spare()))) == "saved"


@accepts("empty completion → fallback")
async def an_empty_answer() -> None:
    assert await texts(agent(failing("empty"), ModelFallbackMiddleware(spare()))) == "saved"


@accepts("original request object unchanged after fallback")
async def the_request_stays() -> None:
    seen: list[tuple[Any, Any]] = []

    class Note(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            hosted = {"type": "web_search"}
            marked = {"type": "function", "function": {"name": "look", "parameters": {}}, "cache_control": {"type": "ephemeral"}}
            given = {**input_kwargs, "tools": [marked, hosted]}
            seen.append((input_kwargs["messages"], [dict(marked), dict(hosted)]))
            answer = await next_handler(tools=given["tools"])
            seen.append((input_kwargs["messages"], given["tools"]))
            return answer

    model, other = failing({"status": 503}), spare()
    other.provider = "another"
    await agent(model, Note(), ModelFallbackMiddleware(other))("hi")
    assert seen[0] == seen[1]
    assert [sorted(each) for each in other.calls[0]["tools"]] == [["function", "type"]]


@accepts("all fail → last error, notes list all")
async def all_fail() -> None:
    models = [failing({"status": status}, model=f"m{status}") for status in (500, 502, 504)]
    with pytest.raises(UpstreamError) as raised:
        await agent(models[0], ModelFallbackMiddleware(*models[1:]))("hi")
    assert raised.value.status == 504
    notes = [note for note in raised.value.__notes__ if "before that" in note]
    assert [note.split()[2] for note in notes] == ["m500", "m502"]
