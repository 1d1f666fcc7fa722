"""agent/hooks.py: the onions: order, overrides, what faulty layers get, and that what isn't there costs nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from spangate.agent import (
    Agent,
    BatchPlan,
    ChatResponse,
    MiddlewareBase,
    MiddlewareFault,
    ModelCallEndEvent,
    PermissionDecision,
    ScriptedModel,
    TextBlockDeltaEvent,
    ToolChoice,
    ToolResponse,
    calls,
    collect_tools,
    tool,
)
from spangate.agent.hooks import HOOKS, Hooks
from spangate.call.errors import ProviderFault, UpstreamError


@tool
def look(of: str = "it") -> str:
    """Look."""
    return f"seen {of}"


class Everything(MiddlewareBase):
    """Every hook, written as in the seed: without aclosing."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def _streaming(self, what: str) -> Any:
        async def layer(next_handler: Any, input_kwargs: Any) -> AsyncIterator[Any]:
            self.said.append(f"{self.name} {what}")
            async for item in next_handler(**input_kwargs):
                yield item
            self.said.append(f"{self.name} {what} end")

        return layer

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for item in self._streaming("reply")(next_handler, input_kwargs):
            yield item

    async def on_reasoning(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for item in self._streaming("reasoning")(next_handler, input_kwargs):
            yield item

    async def on_acting(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for item in self._streaming("acting")(next_handler, input_kwargs):
            yield item

    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        self.said.append(f"{self.name} model")
        return await next_handler(**input_kwargs)

    async def on_compress_context(self, agent: Any, input_kwargs: Any, next_handler: Any) -> None:
        self.said.append(f"{self.name} compress")
        await next_handler(**input_kwargs)

    async def on_tool_calls(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        self.said.append(f"{self.name} calls")
        return await next_handler(**input_kwargs)

    async def on_check_permission(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        self.said.append(f"{self.name} permission")
        return await next_handler(**input_kwargs)

    async def on_system_prompt(self, agent: Any, current_prompt: str) -> str:
        return f"{current_prompt}{self.name}"


async def test_the_order_of_a_whole_reply() -> None:
    said: list[str] = []
    model = ScriptedModel.saying(calls("look"), "done")
    await Agent("a", "p", model, [look], [Everything("1", said), Everything("2", said)])("go")
    one_round = [f"{name} {what}" for what in ("compress", "reasoning", "model") for name in "12"]
    ends = [f"{name} reasoning end" for name in "21"]
    acts = [f"{name} {what}" for what in ("calls", "permission", "acting") for name in "12"] + ["2 acting end", "1 acting end"]
    assert said == ["1 reply", "2 reply", *one_round, *ends, *acts, *one_round, *ends, "2 reply end", "1 reply end"]
    assert [call["messages"][0]["content"] for call in model.calls] == ["p12", "p12"]


class Overrides(MiddlewareBase):
    def __init__(self, other: ScriptedModel) -> None:
        self.other = other

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async with aclosing(next_handler(inputs="changed")) as events:
            async for event in events:
                yield event

    async def on_reasoning(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async with aclosing(next_handler(tool_choice=ToolChoice("required"))) as events:
            async for event in events:
                yield event

    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        assert list(input_kwargs) == ["messages", "tools", "tool_choice", "current_model"]
        return await next_handler(current_model=self.other)


async def test_overrides_reach_the_inside_and_the_rest_passes_through() -> None:
    model, other = ScriptedModel(model="mine"), ScriptedModel(model="other")
    events = [event async for event in Agent("a", None, model, [look], [Overrides(other)]).stream("go")]
    assert not model.calls
    assert other.calls[0]["messages"] == [{"role": "user", "content": "changed"}]
    assert other.calls[0]["tool_choice"] == "required"
    assert [event.model_name for event in events if isinstance(event, ModelCallEndEvent)] == ["other"]


async def test_calling_next_again_runs_the_inside_again() -> None:
    class Fallback(MiddlewareBase):
        def __init__(self, model: ScriptedModel) -> None:
            self.model = model

        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            try:
                return await next_handler()
            except UpstreamError:
                return await next_handler(current_model=self.model)

    broken = ScriptedModel.saying({"fault": {"status": 503}}, model="broken")
    stream = Agent("a", None, broken, middlewares=[Fallback(ScriptedModel.saying("saved", model="spare"))]).stream("go")
    assert (await stream.result()).text == "saved"
    assert [(each.model, each.error) for each in stream.view.attempts] == [("broken", "UpstreamError"), ("spare", "")]


async def test_the_primed_rule_makes_a_stream_that_dies_early_fail_at_the_await() -> None:
    seen: list[str] = []

    class Note(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            for _ in range(3):
                try:
                    return await next_handler()
                except ProviderFault as error:
                    seen.append(type(error).__name__)
            return ChatResponse.of("gave up")

    model = ScriptedModel.saying({"fault": "error_in_200"}, {"fault": "empty"}, {"fault": {"reset_after": 0}})
    assert (await Agent("a", None, model, middlewares=[Note()])("go")).text == "gave up"
    assert seen == ["UpstreamError", "UpstreamIncomplete", "UpstreamIncomplete"]


class Raises(MiddlewareBase):
    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for event in next_handler():
            yield event
            if isinstance(event, TextBlockDeltaEvent):
                raise LookupError("mine")


class RaisesAtOnce(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        await next_handler()
        raise LookupError("mine")


class NothingBack(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        await next_handler()


class NoGenerator(MiddlewareBase):
    async def on_reasoning(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:  # type: ignore[override]
        return None


class NoneAtAll(MiddlewareBase):
    def on_reasoning(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        return None


class UnknownWord(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        return await next_handler(modle="x")


class OddPlan(MiddlewareBase):
    async def on_tool_calls(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        return []


class OddPermission(MiddlewareBase):
    async def on_check_permission(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        return True


class OddPrompt(MiddlewareBase):
    async def on_system_prompt(self, agent: Any, current_prompt: str) -> Any:
        return 7


FAULTS: list[tuple[MiddlewareBase, str]] = [
    (NothingBack(), r"NothingBack\.on_model_call returned None; it must return what next_handler\(\) gave"),
    (NoGenerator(), r"NoGenerator\.on_reasoning gave a coroutine; it must be an async generator"),
    (NoneAtAll(), r"NoneAtAll\.on_reasoning gave None"),
    (UnknownWord(), r"UnknownWord\.on_model_call passed on modle, which this hook hasn't; it has messages"),
    (OddPlan(), r"OddPlan\.on_tool_calls returned a list; it must return a BatchPlan"),
    (OddPermission(), r"OddPermission\.on_check_permission returned a bool; it must return a PermissionDecision"),
    (OddPrompt(), r"OddPrompt\.on_system_prompt returned a int"),
]


class Passing(MiddlewareBase):
    """Does nothing, and counts that it was left as often as entered."""

    def __init__(self) -> None:
        self.open = 0

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        self.open += 1
        try:
            async for event in next_handler():
                yield event
        finally:
            self.open -= 1


@pytest.mark.fault("AGT-10")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(("faulty", "words"), FAULTS, ids=lambda value: type(value).__name__ if isinstance(value, MiddlewareBase) else "")
async def test_a_faulty_layer_is_named_and_everything_is_closed_once(
    faulty: MiddlewareBase, words: str, position: int, stream: bool
) -> None:
    around = Passing()
    stack: list[MiddlewareBase] = [around, around]
    stack.insert(position, faulty)
    model = ScriptedModel.saying(calls("look"), "done", stream=stream)
    reply = Agent("a", "p", model, [look], stack, thread="t").stream("go")
    with pytest.raises(MiddlewareFault, match=words):
        await reply.result()
    assert around.open == 0
    assert not reply.view.state.open_calls()
    assert reply.view.open_streams == []


@pytest.mark.fault("AGT-10")
@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize(("faulty", "where"), [(Raises(), "Raises.on_reply"), (RaisesAtOnce(), "RaisesAtOnce.on_model_call")])
async def test_a_layers_own_exception_keeps_its_type_and_names_the_layer(faulty: MiddlewareBase, where: str, position: int) -> None:
    stack: list[MiddlewareBase] = [Passing()]
    stack.insert(position, faulty)
    with pytest.raises(LookupError, match="mine") as caught:
        await Agent("a", None, ScriptedModel.saying("one two"), middlewares=stack)("go")
    assert caught.value.__notes__ == [f"raised in {where}"]


async def test_a_layer_that_breaks_while_it_is_closed_leaves_the_others_closed() -> None:
    around = Passing()

    class Breaks(MiddlewareBase):
        async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            try:
                async for event in next_handler():
                    yield event
            finally:
                around.broke = True  # type: ignore[attr-defined]
                raise LookupError("at the end")

    stream = Agent("a", None, ScriptedModel.saying("one two"), middlewares=[around, Breaks(), around]).stream("go")
    async for event in stream:
        if isinstance(event, TextBlockDeltaEvent):
            break
    with pytest.raises(LookupError, match="at the end"):
        await stream.aclose()
    assert around.open == 0
    assert stream.view.open_streams == []


async def test_what_the_inside_raises_is_nobodys_fault_on_the_way() -> None:
    with pytest.raises(UpstreamError) as caught:
        await Agent("a", None, ScriptedModel.saying({"fault": {"status": 500}}), middlewares=[Everything("1", [])])("go")
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.fault("AGT-10")
async def test_a_layer_that_calls_next_twice_is_billed_twice_and_told_once() -> None:
    class Twice(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            await next_handler()
            return await next_handler()

    stream = Agent("a", None, ScriptedModel.saying("first", "second"), middlewares=[Twice()]).stream("go")
    events = [event.type async for event in stream]
    assert events.count("MODEL_CALL_END") == 1
    assert stream.message is not None
    assert stream.message.text == "second"
    assert len(stream.view.attempts) == 2


async def test_a_plan_never_gets_looser() -> None:
    class Refuses(MiddlewareBase):
        async def on_tool_calls(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            plan = await next_handler()
            return plan.answer(input_kwargs["tool_calls"][0].id, "No.")

    class Revives(MiddlewareBase):
        async def on_tool_calls(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            await next_handler()
            return BatchPlan.running(input_kwargs["tool_calls"])

    model = ScriptedModel.saying({"tool_calls": [{"name": "look"}, {"name": "look", "arguments": {"of": "more"}}]}, "done")
    await Agent("a", None, model, [look], [Revives(), Refuses()])("go")
    assert [message["content"] for message in model.calls[1]["messages"][-2:]] == ["No.", "seen more"]


async def test_permission_is_decided_on_copies() -> None:
    class Meddles(MiddlewareBase):
        async def on_check_permission(self, agent: Any, input_kwargs: Any, next_handler: Any) -> PermissionDecision:
            input_kwargs["tool_input"]["of"] = "everything"
            input_kwargs["tool_call"].input = "{}"
            decision: PermissionDecision = await next_handler()
            return decision

    model = ScriptedModel.saying(calls("look", of="one"), "done")
    await Agent("a", None, model, [look], [Meddles()])("go")
    assert model.calls[1]["messages"][-1]["content"] == "seen one"


async def test_a_tools_failure_may_be_retried_and_changed_by_a_layer() -> None:
    tries = 0

    @tool
    def flaky() -> str:
        """Fails once."""
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError("not yet")
        return "well"

    class Retry(MiddlewareBase):
        async def on_acting(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            for _ in range(2):
                try:
                    async with aclosing(next_handler()) as chunks:
                        done = [chunk async for chunk in chunks]
                except OSError:
                    continue
                yield ToolResponse(f"{done[-1].text} again")
                return

    model = ScriptedModel.saying(calls("flaky"), "done")
    await Agent("a", None, model, [flaky], [Retry()])("go")
    assert model.calls[1]["messages"][-1]["content"] == "well again"


async def test_an_internal_call_passes_the_others_and_shows_nothing() -> None:
    seen: list[str] = []

    class Asks(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            answer = await agent.ask("which?", purpose="router", by=self)
            seen.append(answer.text)
            return await next_handler()

    class Note(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            seen.append(agent.purpose)
            return await next_handler()

    stream = Agent("a", None, ScriptedModel.saying("the first", "answer"), middlewares=[Note(), Asks()]).stream("go")
    events = [event async for event in stream]
    assert seen == ["main", "router", "the first"]
    assert "".join(event.delta for event in events if isinstance(event, TextBlockDeltaEvent)) == "answer"
    assert [(attempt.purpose, attempt.usage is not None) for attempt in stream.view.attempts] == [("router", True), ("main", True)]
    assert len(stream.view.steps) == 1


async def test_plain_functions_may_hand_on_the_inside() -> None:
    class Plain(MiddlewareBase):
        def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            events: AsyncIterator[Any] = next_handler()
            return events

        def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:  # type: ignore[override]
            return next_handler()

        def on_system_prompt(self, agent: Any, current_prompt: str) -> Any:  # type: ignore[override]
            return None

    model = ScriptedModel.saying("done")
    assert (await Agent("a", "p", model, middlewares=[Plain()])("go")).text == "done"
    assert [message["role"] for message in model.calls[0]["messages"]] == ["user"]


async def test_tools_of_middlewares_are_collected_on_request() -> None:
    class Offers(MiddlewareBase):
        async def list_tools(self) -> Any:
            return [look]

    assert await collect_tools([Offers(), MiddlewareBase()]) == [look]


def test_only_what_is_implemented_is_kept() -> None:
    hooks = Hooks([RaisesAtOnce(), MiddlewareBase()])
    assert {hook for hook in HOOKS if hooks.stacks[hook]} == {"on_model_call"}
    assert not MiddlewareBase().is_implemented("on_reply")
    assert RaisesAtOnce().is_implemented("on_model_call")
    assert set(Hooks([NothingBack(), NothingBack()]).keys.values()) == {"NothingBack", "NothingBack#2"}


async def test_a_step_with_five_middlewares_costs_half_a_millisecond_at_most() -> None:
    class Light(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            return await next_handler()

        async def on_reasoning(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            async with aclosing(next_handler()) as events:
                async for event in events:
                    yield event

    class Canned(ScriptedModel):
        async def __call__(self, *_: Any, **__: Any) -> ChatResponse:  # type: ignore[override]
            return ChatResponse.of("done")

    agent = Agent("a", "p", Canned(), [look], [Light() for _ in range(5)])
    await agent("go")
    best = 1.0
    for _ in range(10):
        began = time.process_time()
        for _ in range(20):
            await agent("go")
        best = min(best, (time.process_time() - began) / 20)
        await asyncio.sleep(0)
    assert best <= 0.0005


class Says(MiddlewareBase):
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        self.said.append(f"{self.name} {input_kwargs['current_model'].model}")
        return next_handler()

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        self.said.append(f"{self.name} reply")
        async with aclosing(next_handler()) as events:
            async for event in events:
                yield event


class Inside(Says):
    innermost = frozenset({"on_model_call"})


async def test_one_may_stand_next_to_the_model_wherever_it_is_in_the_list() -> None:
    class Other(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            return await next_handler(current_model=ScriptedModel(model="other"))

    said: list[str] = []
    layers = [Inside("first", said), Says("second", said), Inside("third", said), Other()]
    await Agent("a", None, ScriptedModel(model="own"), middlewares=layers)("go")
    assert said == ["first reply", "second reply", "third reply", "second own", "first other", "third other"]


async def test_one_that_takes_no_part_is_asked_once_a_reply_and_costs_no_more() -> None:
    class Idle(Says):
        idle = True
        asked = 0

        def takes_part(self) -> bool:
            self.asked += 1
            return not self.idle

    said: list[str] = []
    idle = Idle("idle", said)
    agent = Agent("a", None, ScriptedModel(model="own"), middlewares=[Says("first", said), idle])
    views = [agent.stream("go").view for _ in range(2)]
    assert [len(view.hooks.stacks["on_reply"]) for view in views] == [1, 1]
    assert views[0].hooks is views[1].hooks, "made once"
    assert views[0].middlewares == agent.middlewares
    idle.idle = False
    await agent("go")
    assert said == ["first reply", "idle reply", "first own", "idle own"]
    assert idle.asked == 3
