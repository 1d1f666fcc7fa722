"""agent/bridge.py: a gateway's policies around the model calls of an agent."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spangate.agent import (
    Agent,
    ChatModelBase,
    ChatResponse,
    MiddlewareBase,
    MiddlewareFault,
    ModelStream,
    Msg,
    PolicyMiddleware,
    ReplyFinishedReason,
    ScriptedModel,
    TextBlock,
    TextBlockDeltaEvent,
    ThinkingBlock,
    ToolCallBlock,
    TracingMiddleware,
    calls,
    tool,
)
from spangate.call.call import Call, Caller, Target
from spangate.call.chain import Next, pulling
from spangate.call.errors import ProviderFault, Refused, UpstreamError, UpstreamTimeout
from spangate.call.events import Closed, Delta, Envelope, Event, Opened, Usage
from spangate.policies.access import Access
from spangate.policies.time_limit import TimeLimit


class Keeps:
    """Lets everything through, and keeps what it saw."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.events: list[Event] = []
        self.open = 0

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        self.calls.append(call)
        self.open += 1
        try:
            async with pulling(next(call)) as events:
                async for event in events:
                    self.events.append(event)
                    yield event
        finally:
            self.open -= 1


class Cuts:
    """Ends an answer once it has said so many characters."""

    stage: ClassVar[int] = 20

    def __init__(self, after: int) -> None:
        self.after = after

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        said = 0
        async with pulling(next(call)) as events:
            async for event in events:
                yield event
                if isinstance(event, Delta):
                    said += len(event.text)
                    if said >= self.after:
                        break
        call.notes.add("cut.stopped", said=said)
        yield Closed(usage=Usage(7, said, source="estimated"), finish="length")


class Retargets:
    """Sends every call elsewhere, and on to the next of `names` where that fails."""

    stage: ClassVar[int] = 60
    needs: ClassVar[frozenset[str]] = frozenset({"targets"})

    def __init__(self, *names: str) -> None:
        self.names = names

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        for number, name in enumerate(self.names):
            async with pulling(next(call.to(Target("", name)))) as events:
                try:
                    opened = await anext(aiter(events))
                except ProviderFault:
                    if number + 1 == len(self.names):
                        raise
                    continue
                assert isinstance(opened, Opened)
                yield opened.with_headers(x_spangate_target=name)
                async for event in events:
                    yield event
                return


class Redacts:
    """Takes a word out of what is asked and out of what is answered; holds each answer's text back until its end."""

    stage: ClassVar[int] = 30

    def __init__(self, word: str) -> None:
        self.word = word

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        messages = json.loads(json.dumps(call.body.get("messages")).replace(self.word, "[…]"))
        held, envelope, whole = "", Envelope("", ""), False
        async with pulling(next(call.with_body(call.body.changed(messages=messages)))) as events:
            async for event in events:
                if isinstance(event, Opened):
                    envelope, whole = event.envelope or envelope, not event.stream
                elif isinstance(event, Delta) and whole:
                    yield Delta(event.raw.replace(self.word.encode(), b"[x]"), sse=False)
                    continue
                elif isinstance(event, Delta):
                    held += event.text
                    if event.text:
                        continue
                elif held:
                    yield Delta.of(envelope, text=held.replace(self.word, "[x]"))
                yield event


@tool
def look(of: str = "") -> str:
    """Look at something."""
    return f"seen {of}"


def agent(model: ChatModelBase, *policies: Any, middlewares: Any = (), **given: Any) -> Agent:
    return Agent("a", "Be nice.", model, [look], [*middlewares, PolicyMiddleware(*policies, **given)])


STREAM = pytest.mark.parametrize("stream", [True, False])


@STREAM
async def test_access_and_time_limit_as_in_a_gateway(stream: bool) -> None:
    model = ScriptedModel.saying(calls("look", of="it"), "done", stream=stream)
    keeps = Keeps()
    reply = agent(model, keeps, Access(models=("scripted",)), TimeLimit(), caller=Caller(team="x")).stream("go", thread="t", deadline=60)
    assert (await reply.result()).text == "done"
    assert [(call.caller.team, call.labels.reply, call.labels.thread, call.purpose) for call in keeps.calls] == [
        ("x", reply.reply_id, "t", "main")
    ] * 2
    first = keeps.calls[0]
    assert (first.op, first.model, first.head.stream, first.target) == ("chat", "scripted", stream, None)
    assert first.deadline is not None
    assert first.body.parsed() == {
        "messages": [{"role": "system", "content": "Be nice."}, {"role": "user", "content": "go"}],
        "tools": [look.definition()],
        "model": "scripted",
        "stream": stream,
    }
    assert keeps.open == 0
    assert reply.view.open_streams == []


@STREAM
async def test_access_refuses_before_anybody_is_asked(stream: bool) -> None:
    model = ScriptedModel(stream=stream)
    with pytest.raises(Refused, match="'scripted' is not one that this key may use") as caught:
        await agent(model, TimeLimit(), Access(models=("other",)))("go")
    assert caught.value.code == "model_not_found"
    assert caught.value.__notes__ == ["raised in Access"]
    assert not model.calls


@pytest.mark.parametrize("fault", [{"stall_after": 0}, {"stall_after": 1}])
@STREAM
async def test_a_time_limit_ends_a_call_that_stalls(stream: bool, fault: dict[str, Any]) -> None:
    model = ScriptedModel([{"answer": {"text": "one two three", "chunks": 3}, "fault": fault}], stream=stream)
    keeps = Keeps()
    reply = agent(model, keeps, TimeLimit(first=0.05, silence=0.05, total=0.08)).stream("go")
    with pytest.raises(UpstreamTimeout) as caught:
        await reply.result()
    assert caught.value.limit == ("total" if not stream else "silence" if fault["stall_after"] else "first")
    assert keeps.calls[0].notes.named("time_limit.reached")
    assert keeps.open == 0
    assert reply.view.open_streams == []
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_time_limit_holds_whichever_task_reads() -> None:
    """A task for each event: `asyncio.wait_for(anext(reply), …)` makes one before Python 3.12."""
    model = ScriptedModel([{"answer": {"text": "one two three", "chunks": 3}, "fault": {"stall_after": 2}}])
    said: list[str] = []

    async def read(reply: Any) -> None:
        while True:
            event = await asyncio.create_task(next_of(reply))
            if isinstance(event, TextBlockDeltaEvent):
                said.append(event.delta)

    clock = asyncio.get_running_loop().time
    async with agent(model, TimeLimit(silence=0.05)).stream("go") as reply:
        began = clock()
        with pytest.raises(UpstreamTimeout):
            await read(reply)
    assert len(said) == 2
    assert clock() - began < 1.5, "its own limit ended it"


async def next_of(reply: Any) -> Any:
    async with asyncio.timeout(2):
        return await anext(reply)


async def test_the_replys_own_deadline_is_not_the_policys() -> None:
    from spangate.agent import DeadlineExceeded

    model = ScriptedModel([{"answer": {"text": "one two"}, "fault": {"stall_after": 1}}])
    with pytest.raises(DeadlineExceeded):
        await agent(model, TimeLimit(silence=30))("go", deadline=0.05)


async def test_a_cut_stream_is_what_was_said_until_then() -> None:
    keeps = Keeps()
    model = ScriptedModel([{"answer": {"text": "one two three four", "chunks": 4}}])
    reply = agent(model, keeps, Cuts(6)).stream("go")
    said = [event.delta async for event in reply if isinstance(event, TextBlockDeltaEvent)]
    assert reply.message is not None
    assert reply.message.text == "".join(said) == "one two t"
    [step] = reply.view.steps
    assert (step.finish, step.text) == ("length", reply.message.text)
    assert reply.message.usage is not None
    assert (reply.message.usage.input_tokens, reply.message.usage.source) == (7, "estimated")
    assert keeps.open == 0
    assert reply.view.open_streams == []


@pytest.mark.parametrize("chunks", [1, 9])
async def test_half_a_tool_call_is_no_call(chunks: int) -> None:
    """A policy that leaves in the middle of a call's arguments: the tool never runs on what there is of them."""
    ran = []

    @tool
    def erase(path: str = "/") -> str:
        """Erase."""
        ran.append(path)
        return "gone"

    class Leaves:
        async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            seen = 0
            async with pulling(next(call)) as events:
                async for event in events:
                    yield event
                    seen += isinstance(event, Delta) and bool(event.tool_calls)
                    if seen == 2 or (seen and chunks == 1):
                        break
            yield Closed(finish="length")

    rule = {"answer": {"tool_calls": [{"name": "erase", "arguments": {"path": "/tmp/one thing"}}], "chunks": chunks}}
    reply = Agent("a", None, ScriptedModel([rule]), [erase], [PolicyMiddleware(Leaves())]).stream("go")
    message = await reply.result()
    assert ran == []
    assert (message.finished_reason, message.content) == (ReplyFinishedReason.COMPLETED, [])
    assert not reply.view.state.open_calls()


@STREAM
async def test_another_target_is_another_model(stream: bool) -> None:
    other = ScriptedModel.saying(calls("look"), "from b", model="b", stream=stream)
    first = ScriptedModel(model="a", stream=stream)
    reply = agent(first, Retargets("b"), targets={"b": other}).stream("go")
    message = await reply.result()
    assert message.text == "from b"
    assert not first.calls
    assert [call["model"] for call in other.calls] == ["b", "b"]
    assert [step.model for step in reply.view.steps] == ["b", "b"]
    assert reply.view.answer is not None
    assert reply.view.answer.metadata == {"headers": {"x-spangate-target": "b"}}


@STREAM
async def test_a_policy_falls_back_by_try_and_except(stream: bool) -> None:
    broken = ScriptedModel([{"fault": {"status": 503}}], model="broken", stream=stream)
    works = ScriptedModel.saying("fine", model="works", stream=stream)
    reply = agent(ScriptedModel(), Retargets("broken", "works"), targets={"p/broken": broken, "broken": broken, "works": works}).stream(
        "go"
    )
    assert (await reply.result()).text == "fine"
    assert [(each.model, each.error) for each in reply.view.attempts] == [("broken", "UpstreamError"), ("works", "")]
    with pytest.raises(UpstreamError) as caught:
        await agent(ScriptedModel(), Retargets("broken"), targets={"broken": broken})("go")
    assert not hasattr(caught.value, "__notes__"), "it passed through the policy only"


async def test_a_target_with_its_provider() -> None:
    class Chooses:
        needs = ("targets",)

        def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            return next(call.to(Target("azure", "gpt")))

    mine, other = ScriptedModel.saying("mine"), ScriptedModel.saying("other")
    assert (await agent(ScriptedModel(), Chooses(), targets={"azure/gpt": mine, "gpt": other})("go")).text == "mine"
    words = re.escape("was sent to azure/gpt by a policy, and has no such target (it has openai/gpt)")
    with pytest.raises(MiddlewareFault, match=words):
        await agent(ScriptedModel(), Chooses(), targets={"openai/gpt": other})("go")


def test_what_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="Retargets needs targets: give it targets="):
        PolicyMiddleware(Access(), Retargets("b"))

    class Claims(Keeps):
        needs = ("ledger",)

    with pytest.raises(ValueError, match="Claims needs ledger: give it a gateway"):
        PolicyMiddleware(Claims(), targets={"a": ScriptedModel()})
    with pytest.raises(ValueError, match="ledger: no policy of this version keeps accounts in an agent"):
        PolicyMiddleware(Access(), ledger=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Access is no policy: give an instance"):
        PolicyMiddleware(Access)
    with pytest.raises(TypeError, match="str is no policy"):
        PolicyMiddleware("access")
    with pytest.raises(TypeError, match=r"targets\['b'\] is no model"):
        PolicyMiddleware(Retargets("b"), targets={"b": ScriptedModel})  # type: ignore[dict-item]


async def test_policies_stand_by_stage_and_what_builds_one_is_built() -> None:
    order: list[str] = []

    class Placed:
        def __init__(self, name: str, stage: int) -> None:
            self.name, self.stage = name, stage

        def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            order.append(self.name)
            return next(call)

    class Settings:
        def build(self, clock: Any) -> Placed:
            assert clock.wall() > 0
            return Placed("built", 20)

    await agent(ScriptedModel(), Placed("late", 80), Settings(), Placed("early", 10))("go")
    assert order == ["early", "built", "late"]


@STREAM
async def test_what_is_changed_is_changed_both_ways(stream: bool) -> None:
    model = ScriptedModel.saying(calls("look", of="ann"), "it was ann, ann", stream=stream)
    reply = agent(model, Redacts("ann")).stream("where is ann?", thread="t")
    deltas = [event.delta async for event in reply if isinstance(event, TextBlockDeltaEvent)]
    assert reply.message is not None
    assert reply.message.text == "".join(deltas) == "it was [x], [x]"
    said = str([call["messages"] for call in model.calls])
    assert "ann" not in said
    assert "where is […]?" in said
    assert reply.view.state.context[0].text == "where is ann?", "only this call was changed, not what is kept"
    if not stream:
        assert model.calls[1]["messages"][-1]["content"] == "seen [x]", "the changed call is the one that was made"


async def test_untouched_answers_are_the_very_ones() -> None:
    """Blocks that OpenAI's chunks can't say come through policies whole."""
    thought = [ThinkingBlock("hm", "th"), ThinkingBlock("", "th", {"anthropic": {"signature": "s1"}})]
    last = ChatResponse(
        [ThinkingBlock("hm", "th", {"anthropic": {"signature": "s1"}}), TextBlock("yes", "te")], finish="end_turn", model="m"
    )

    class Thinks(ChatModelBase):
        async def pieces(self, *given: Any) -> AsyncIterator[ChatResponse]:
            for block in [*thought, TextBlock("yes", "te")]:
                yield ChatResponse([block], is_last=False, id=last.id)
            yield last

    keeps = Keeps()
    reply = agent(Thinks("m"), keeps).stream("go")
    await reply.result()
    assert reply.view.answer is last
    assert [chunk["choices"][0]["delta"] for event in keeps.events if isinstance(event, Delta) for chunk in event.chunks] == [
        {"role": "assistant", "reasoning_content": "hm"},
        {},
        {"content": "yes"},
        {},
    ]
    assert json.loads(next(e for e in keeps.events if isinstance(e, Delta)).raw[6:])["object"] == "chat.completion.chunk"

    class Rewrites:
        async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            async with pulling(next(call)) as events:
                async for event in events:
                    thinks = isinstance(event, Delta) and "hm" in str(event.chunks)
                    yield Delta.of(Envelope("", ""), reasoning="ho") if thinks else event

    reply = agent(Thinks("m"), Rewrites()).stream("go")
    await reply.result()
    assert reply.view.answer is not None
    assert reply.view.answer.content == [ThinkingBlock("ho", "th", {"chat": {"field": "reasoning_content"}}), TextBlock("yes", "te")], (
        "a signature holds for the text that was signed"
    )


@STREAM
async def test_a_policy_may_answer_by_itself(stream: bool) -> None:
    class Answers:
        async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            envelope = Envelope("chatcmpl-1", "cache")
            yield Opened("cache", envelope=envelope)
            yield Delta.of(envelope, role="assistant", text="from ")
            yield Delta.of(envelope, text="memory", finish="stop")
            yield Closed(Usage(1, 2), "stop")

    model = ScriptedModel(stream=stream)
    reply = agent(model, Answers()).stream("go")
    assert (await reply.result()).text == "from memory"
    assert not model.calls
    [step] = reply.view.steps
    assert (step.attempted, step.model, step.finish) == (False, "cache", "stop")
    assert step.usage is not None
    assert step.usage.output_tokens == 2


async def test_a_policy_may_rename_a_tool_drop_a_call_or_make_one() -> None:
    class Renames:
        async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            async with pulling(next(call)) as events:
                async for event in events:
                    if isinstance(event, Delta) and "peek" in str(event.chunks):
                        chunks = json.loads(json.dumps(event.chunks).replace("peek", "look"))
                        yield Delta.saying(*chunks)
                    elif not (isinstance(event, Delta) and "erase" in str(event.chunks)):
                        yield event

    rule = {"tool_calls": [{"name": "peek", "arguments": {"of": "it"}}, {"name": "erase", "arguments": "{}"}], "chunks": 1}
    model = ScriptedModel.saying(rule, "done")
    await agent(model, Renames())("go")
    [made] = model.calls[1]["messages"][-2]["tool_calls"]
    assert made["function"] == {"name": "look", "arguments": '{"of": "it"}'}
    assert model.calls[1]["messages"][-1]["content"] == "seen it"


@STREAM
async def test_settings_tools_and_choice_may_be_changed(stream: bool) -> None:
    class Changes:
        def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            assert call.head.output_cap == 100
            assert "extra_headers" not in call.body
            body = call.body.changed(max_tokens=5, temperature=None, tools=None, tool_choice="none", seed=1)
            return next(call.with_body(body))

    asked: list[dict[str, Any]] = []

    class Records(ChatModelBase):
        async def pieces(self, messages: Any, tools: Any, tool_choice: Any, settings: Mapping[str, Any]) -> AsyncIterator[ChatResponse]:
            asked.append({"tools": tools, "choice": tool_choice, **settings})
            yield ChatResponse.of("ok")

    model = Records("m", stream=stream, settings={"max_tokens": 100, "temperature": 0, "extra_headers": {"x-key": "secret"}})
    assert (await agent(model, Changes())("go")).text == "ok"
    [given] = asked
    assert given.pop("choice").mode == "none"
    assert given == {"tools": [], "max_tokens": 5, "seed": 1, "extra_headers": {"x-key": "secret"}}
    assert model.settings["max_tokens"] == 100


async def test_settings_reach_a_model_of_anybodys() -> None:
    got: dict[str, Any] = {}

    class Duck:
        name = "duck"

        async def __call__(self, messages: Any, tools: Any = None, tool_choice: Any = None, **settings: Any) -> ChatResponse:
            got.update(settings)
            return ChatResponse.of("quack")

    class Caps:
        def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            return next(call.with_body(call.body.changed(max_tokens=5)))

    class Inside(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            model = input_kwargs["current_model"]
            assert (model.name, model.takes_reply_labels) == ("duck", False)
            return await next_handler()

    duck: Any = Duck()
    duck.model = "duck"
    answer = await Agent("a", None, duck, middlewares=[PolicyMiddleware(Caps()), Inside()])("go")
    assert (answer.text, got) == ("quack", {"max_tokens": 5})


BROKEN: list[tuple[Any, str]] = []


def broken(words: str) -> Any:
    def keep(policy: Any) -> Any:
        BROKEN.append((policy, words))
        return policy

    return keep


@broken("got no answer from its policies")
async def nothing(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for _ in events:
            pass
    return
    yield Opened()


@broken("got no answer from its policies")
async def no_opening(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for event in events:
            if not isinstance(event, Opened):
                yield event


@broken("got an answer without an end")
async def no_end(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for event in events:
            if not isinstance(event, Closed):
                yield event


@broken("gives_none.__call__ gave None; a policy yields events, or returns next")
def gives_none(call: Call, next: Next) -> Any:
    return None


@broken("mine")
async def raises_late(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for event in events:
            if isinstance(event, Delta):
                raise LookupError("mine")
            yield event


@pytest.mark.fault("AGT-10")
@STREAM
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(("policy", "words"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
async def test_a_faulty_policy_is_named_and_everything_is_closed_once(policy: Any, words: str, position: int, stream: bool) -> None:
    keeps = Keeps()
    stack: list[Any] = [keeps, keeps]
    stack.insert(position, policy)
    model = ScriptedModel([{"answer": {"text": "one two"}}], stream=stream)
    reply = agent(model, *stack).stream("go")
    with pytest.raises((MiddlewareFault, LookupError), match=words) as caught:
        await reply.result()
    assert keeps.open == 0
    assert reply.view.open_streams == []
    assert len(model.calls) == len(reply.view.attempts) <= 1
    assert policy.__name__ in str(caught.value) or caught.value.__notes__ == [f"raised in {policy.__name__}"]


@pytest.mark.fault("AGT-10")
@STREAM
async def test_a_policy_that_asks_twice_is_billed_twice_and_told_once(stream: bool) -> None:
    async def twice(call: Call, next: Next) -> AsyncIterator[Event]:
        async with pulling(next(call)) as events:
            async for _ in events:
                pass
        async with pulling(next(call)) as events:
            async for event in events:
                yield event

    reply = agent(ScriptedModel.saying("first", "second", stream=stream), twice).stream("go")
    events = [event.type async for event in reply]
    assert events.count("MODEL_CALL_END") == events.count("REPLY_END") == 1
    assert reply.message is not None
    assert reply.message.text == "second"
    assert [each.usage is not None for each in reply.view.attempts] == [True, True]


@pytest.mark.fault("AGT-08")
@STREAM
async def test_an_endless_loop_is_stopped_by_a_policys_budget(stream: bool) -> None:
    """The policy counts what it saw used, and refuses the call after that: a typed error, and every call has its result."""

    class Budget:
        stage = 20
        used, limit = 0, 40

        async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            if self.used >= self.limit:
                raise Refused("The budget of 40 tokens is spent.", code="budget_exceeded", facts={"budget": {"limit": self.limit}})
            async with pulling(next(call)) as events:
                async for event in events:
                    if isinstance(event, Closed) and event.usage is not None:
                        self.used += event.usage.input + event.usage.output
                    yield event

    model = ScriptedModel([{"answer": {"tool_calls": [{"name": "look"}]}, "usage": {"input": 10, "output": 3}}], stream=stream)
    reply = agent(model, Budget()).stream("go", thread="t")
    with pytest.raises(Refused, match="budget of 40 tokens is spent") as caught:
        await reply.result()
    assert (caught.value.code, caught.value.facts) == ("budget_exceeded", {"budget": {"limit": 40}})
    assert len(model.calls) == 4
    assert not reply.view.state.open_calls()


async def test_what_policies_note_stands_on_the_span_that_is_current() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    traced = TracingMiddleware(provider)
    model = ScriptedModel([{"answer": {"text": "one two three four", "chunks": 4}}])
    await agent(model, Cuts(6), middlewares=[traced])("go")
    with pytest.raises(Refused):
        await agent(model, Access(models=("other",)), middlewares=[traced])("go")
    told = [
        (event.name, dict(event.attributes or {}))
        for span in spans.get_finished_spans()
        if span.name == "invoke_agent a"
        for event in span.events
    ]
    assert [(name, said["spangate.policy.note"]) for name, said in told] == [
        ("spangate.policy", "cut.stopped"),
        ("spangate.policy", "access.refused"),
    ]
    assert told[0][1]["spangate.cut.said"] == 9
    provider.shutdown()


async def test_an_answer_that_nobody_reads_is_closed_by_the_reply() -> None:
    keeps = Keeps()
    open_then: list[int] = []

    class Forgets(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> ChatResponse:
            await next_handler()
            open_then.append(keeps.open)
            return ChatResponse.of("my own words")

    reply = agent(ScriptedModel([{"answer": {"text": "one two"}}]), keeps, middlewares=[Forgets()]).stream("go")
    assert (await reply.result()).text == "my own words"
    assert open_then == [1]
    assert keeps.open == 0


async def test_a_reader_that_leaves_closes_the_policies_inner_first() -> None:
    keeps = Keeps()
    async with agent(ScriptedModel([{"answer": {"text": "one two three"}}]), keeps).stream("go") as reply:
        async for event in reply:
            if isinstance(event, TextBlockDeltaEvent):
                assert keeps.open == 1
                break
    assert keeps.open == 0


async def test_a_stop_inside_passes_through() -> None:
    class Stops(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> ChatResponse:
            return ModelStream.stop("enough")

    model = ScriptedModel()
    stack = [PolicyMiddleware(TimeLimit()), Stops()]
    assert (await Agent("a", None, model, middlewares=stack)("go")).finished_reason is ReplyFinishedReason.CANCELLED


async def test_internal_calls_pass_through_under_their_purpose() -> None:
    keeps = Keeps()

    class Asks(MiddlewareBase):
        async def on_system_prompt(self, agent: Any, current_prompt: str) -> str:
            if agent.purpose == "main":
                await agent.ask("which?", purpose="selector", by=self)
            return current_prompt

    assert (await agent(ScriptedModel(), keeps, middlewares=[Asks()])("go")).text == "go"
    assert [call.purpose for call in keeps.calls] == ["selector", "main"]


async def test_a_body_is_made_only_when_somebody_looks() -> None:
    class Looks:
        def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            looked.append(call.body._made is not None)  # type: ignore[attr-defined]
            return next(call)

    looked: list[bool] = []
    await agent(ScriptedModel(), Access(), TimeLimit(), Looks())("go")
    assert looked == [False]


async def test_history_that_a_policy_leaves_alone_is_the_very_same() -> None:
    """A policy that changes one message leaves what OpenAI's dialect can't say in the others."""
    signed = ThinkingBlock("hm", extra={"anthropic": {"signature": "s"}})
    before = [
        Msg("user", [TextBlock("first")], "user"),
        Msg("a", [signed, TextBlock("answer"), ToolCallBlock("c", "look", "{}")], "assistant"),
    ]
    got: list[Any] = []

    class Inside(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            got.extend(input_kwargs["messages"])
            return await next_handler()

    stack = [PolicyMiddleware(Redacts("ann")), Inside()]
    await Agent("a", None, ScriptedModel(), [look], stack)([*before, Msg("user", [TextBlock("ann?")], "user")])
    assert signed in [block for msg in got for block in msg.content]
    assert [msg.text for msg in got][-1] == "[…]?"


async def test_100_replies_at_a_time_share_one_and_keep_apart() -> None:
    keeps = Keeps()
    shared = PolicyMiddleware(keeps, Access(), TimeLimit())
    agents = [Agent(f"a{n}", None, ScriptedModel([{"answer": {"every": 0.001}}]), middlewares=[shared]) for n in range(10)]

    async def one(number: int) -> None:
        async with aclosing(agents[number % 10].stream(f"say {number}", thread=f"t{number}")) as reply:
            said = "".join([event.delta async for event in reply if isinstance(event, TextBlockDeltaEvent)])
        assert said == f"say {number}"
        [call] = [call for call in keeps.calls if call.labels.reply == reply.reply_id]
        assert call.labels.thread == f"t{number}"
        assert call.body.get("messages")[-1]["content"] == f"say {number}"

    await asyncio.gather(*(one(number) for number in range(100)))
    assert len({call.id for call in keeps.calls}) == 100
    assert keeps.open == 0


def test_no_policy_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="needs at least one policy"):
        PolicyMiddleware()
