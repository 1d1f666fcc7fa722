"""agent/middlewares/model_fallback.py: what falls back, and to what. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spangate.agent import (
    ChatResponse,
    ContextConfig,
    LimitReached,
    MiddlewareBase,
    ModelFallbackMiddleware,
    NoAnswer,
    RateLimitMiddleware,
    ScriptedModel,
)
from spangate.call.errors import UpstreamError

from acceptance.lines import agent


def failing(fault: Any = None, *, model: str = "broken", **options: Any) -> ScriptedModel:
    return ScriptedModel([{"fault": fault or {"status": 503}}], model=model, **options)


def spare(model: str = "spare", **options: Any) -> ScriptedModel:
    return ScriptedModel([{"answer": {"text": "saved"}}], model=model, **options)


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_what_another_try_cannot_mend_is_raised(status: int) -> None:
    other = spare()
    with pytest.raises(UpstreamError):
        await agent(failing({"status": status}), ModelFallbackMiddleware(other))("hi")
    assert not other.calls


async def test_exception_types_or_a_function_may_say_otherwise() -> None:
    for chosen in ((UpstreamError,), lambda error: error.status == 400):
        assert (await agent(failing({"status": 400}), ModelFallbackMiddleware(spare(), fallback_on=chosen))("hi")).text == "saved"
    with pytest.raises(UpstreamError):
        await agent(failing(), ModelFallbackMiddleware(spare(), fallback_on=lambda error: False))("hi")


async def test_an_empty_answer_may_be_one() -> None:
    class Silent(ScriptedModel):
        async def pieces(self, *args: Any) -> AsyncIterator[ChatResponse]:
            yield ChatResponse(finish="stop")

    assert (await agent(Silent(), ModelFallbackMiddleware(spare()))("hi")).text == "saved"
    with pytest.raises(NoAnswer):
        await agent(Silent(), ModelFallbackMiddleware(spare(), on_empty=False))("hi")


async def test_what_is_too_long_goes_to_larger_windows_only() -> None:
    fault = {"status": 400, "code": "context_length_exceeded"}
    small, large = spare("small", context_size=50), spare("large", context_size=200)
    bot = agent(failing(fault, context_size=100), ModelFallbackMiddleware(small, large), context_config=ContextConfig())
    assert (await bot("hi")).text == "saved"
    assert (len(small.calls), len(large.calls)) == (0, 1)
    with pytest.raises(UpstreamError, match="The script answers with status 400") as raised:
        await agent(failing(fault, context_size=100), ModelFallbackMiddleware(small))("hi")
    assert raised.value.own_code == "context_length_exceeded"


async def test_a_model_is_made_when_it_is_needed() -> None:
    made: list[ScriptedModel] = []

    def make() -> ScriptedModel:
        made.append(spare())
        return made[-1]

    layer = ModelFallbackMiddleware(make)
    await agent(ScriptedModel(), layer)("hi")
    assert made == []
    for _ in range(2):
        assert (await agent(failing(), layer)("hi")).text == "saved"
    assert len(made) == 1


async def test_one_that_cannot_be_made_is_one_that_fails() -> None:
    def make() -> ScriptedModel:
        raise KeyError("no api key")

    assert (await agent(failing(), ModelFallbackMiddleware(make, spare()))("hi")).text == "saved"
    with pytest.raises(KeyError, match="no api key") as raised:
        await agent(failing(), ModelFallbackMiddleware(make))("hi")
    assert any("broken failed: UpstreamError" in note for note in raised.value.__notes__)


async def test_a_target_may_fail_in_any_way() -> None:
    class Odd(ScriptedModel):
        async def __call__(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("what is this?")

    assert (await agent(failing(), ModelFallbackMiddleware(Odd(model="odd"), spare()))("hi")).text == "saved"


async def test_a_model_that_failed_is_passed_over_for_a_while() -> None:
    now = [0.0]
    broken, other = failing(), spare()
    bot = agent(broken, ModelFallbackMiddleware(other, cooldown=30, clock=lambda: now[0]))
    for _ in range(3):
        await bot("hi")
    assert (len(broken.calls), len(other.calls)) == (1, 3)
    now[0] = 31
    await bot("hi")
    assert (len(broken.calls), len(other.calls)) == (2, 4)


async def test_a_model_that_is_gone_is_forgotten() -> None:
    layer, there = ModelFallbackMiddleware(spare(), cooldown=30), failing()
    await agent(there, layer)("hi")
    for _ in range(20):
        await agent(failing(), layer)("hi")
    gc.collect()
    assert list(layer._failed_at) == [there]
    del there
    gc.collect()
    assert len(layer._failed_at) == 0


async def test_if_all_are_passed_over_the_first_is_asked() -> None:
    broken, other = failing(), failing(model="also")
    bot = agent(broken, ModelFallbackMiddleware(other, cooldown=30, clock=lambda: 0))
    for _ in range(2):
        with pytest.raises(UpstreamError):
            await bot("hi")
    assert (len(broken.calls), len(other.calls)) == (2, 1)


async def test_behind_a_gateway_it_does_nothing_unless_asked_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Gateway(ScriptedModel):
        takes_reply_labels = True  # type: ignore[assignment]

    for asked_for, text in ((False, None), (True, "saved")):
        layer = ModelFallbackMiddleware(spare(), behind_gateway=asked_for)
        bot = agent(Gateway([{"fault": {"status": 503}}], model="smart"), layer)
        if text is None:
            with pytest.raises(UpstreamError):
                await bot("hi")
        else:
            assert (await bot("hi")).text == text
    assert ["does nothing" in record.getMessage() for record in caplog.records] == [True], "once, of the one that isn't asked for"


async def test_a_limit_is_no_failure_of_the_model() -> None:
    class Limit(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            raise LimitReached("enough")

    other = spare()
    with pytest.raises(LimitReached):
        await agent(ScriptedModel(), ModelFallbackMiddleware(other), Limit())("hi")
    # … unless one says so: a limit on one model may leave another free.
    limit = RateLimitMiddleware(60, key="model", on_exceed="reject")
    bot = agent(ScriptedModel(), ModelFallbackMiddleware(other, fallback_on=(LimitReached,)), limit)
    assert [(await bot("hi")).text for _ in range(2)] == ["hi", "saved"]


def test_it_needs_a_model() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        ModelFallbackMiddleware()
    with pytest.raises(ValueError, match="cooldown must be a number"):
        ModelFallbackMiddleware(spare(), cooldown=-1)
