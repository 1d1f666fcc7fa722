"""2.5: the model router."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from spangate.agent import (
    BM25Classifier,
    ChatModelCandidate,
    ClassifierModelBase,
    DataBlock,
    ModelFallbackMiddleware,
    ModelRouterMiddleware,
    ScriptedModel,
    SingleChoice,
    TracingMiddleware,
    URLSource,
    UserMsg,
    calls,
)
from spangate.agent.models.classifier import Choice, Classified

from acceptance.lines import Spans, accepts, agent, said, stepping


class Picks(ClassifierModelBase):
    """Picks what the text names, or what it is told to; remembers what it was asked."""

    model = "picks"

    def __init__(self, always: str | Exception | None = None) -> None:
        self.always = always
        self.texts: list[str] = []

    async def __call__(self, text: str, questions: Mapping[str, SingleChoice]) -> Classified:
        self.texts.append(text)
        await asyncio.sleep(0)
        if isinstance(self.always, Exception):
            raise self.always
        [(question, choice)] = questions.items()
        sought = self.always or next(name for name in choice.options if name in text)
        return Classified({question: Choice({**dict.fromkeys(choice.options, 0.1), sought: 0.9})})


def candidates(*models: ScriptedModel) -> Sequence[ChatModelCandidate]:
    return [ChatModelCandidate(each.model, each, f"for what is {each.model}") for each in models]


def named(name: str, *turns: Any) -> ScriptedModel:
    return ScriptedModel.saying(*turns, model=name)


@accepts('"hi" routed fast; same reply\'s 5 calls all fast; one classifier call')
async def one_choice_a_reply() -> None:
    own, strong, fast, picks = named("own"), named("strong"), stepping(4, model="fast"), Picks("fast")
    await agent(own, ModelRouterMiddleware(picks, candidates(fast, strong)))("hi")
    assert (len(fast.calls), len(own.calls), len(strong.calls), picks.texts) == (5, 0, 0, ["hi"])
    # A real one, that needs no key; and a chat model, asked for one of the names.
    described = [
        ChatModelCandidate("fast", named("fast"), "everyday questions and small talk"),
        ChatModelCandidate("strong", named("strong", "proved"), "mathematics, proofs, programming"),
    ]
    assert (await agent(own, ModelRouterMiddleware(BM25Classifier(), described))("a proof in mathematics")).text == "proved"
    router = named("router", calls("generate_structured_output", model="strong"))
    described[1] = ChatModelCandidate("strong", named("strong", "thought"), "mathematics")
    assert (await agent(own, ModelRouterMiddleware(router, described))("prove it")).text == "thought"
    assert router.calls[0]["messages"][-1]["content"] == "<user_input>\nprove it\n</user_input>"


@accepts("classifier raises → own model, reply completes")
async def the_choice_fails() -> None:
    answer = await agent(named("own", "mine"), ModelRouterMiddleware(Picks(OSError("down")), candidates(named("fast"))))("hi")
    assert answer.text == "mine"
    with pytest.raises(OSError, match="down"):
        await agent(named("own"), ModelRouterMiddleware(Picks(OSError("down")), candidates(named("fast")), on_failure="raise"))("hi")


@accepts("picks unknown → own model")
async def the_choice_is_no_candidate() -> None:
    assert (await agent(named("own", "mine"), ModelRouterMiddleware(Picks("ghost"), candidates(named("fast"))))("hi")).text == "mine"
    router = named("router", calls("generate_structured_output", model="ghost"))
    assert (await agent(named("own", "mine"), ModelRouterMiddleware(router, candidates(named("fast"))))("hi")).text == "mine"


@accepts("duplicate names → ValueError")
async def two_of_one_name() -> None:
    with pytest.raises(ValueError, match="'fast' stands twice"):
        ModelRouterMiddleware(Picks(), candidates(named("fast"), named("fast")))


@accepts("image-only input → own model, classifier not called")
async def no_text() -> None:
    picks = Picks("fast")
    image = UserMsg(name="u", content=[DataBlock(URLSource("https://example.com/cat.png", "image/png"))])
    assert (await agent(named("own", "a cat"), ModelRouterMiddleware(picks, candidates(named("fast"))))(image)).text == "a cat"
    assert picks.texts == []


@accepts("two concurrent replies with different picks → no bleed")
async def two_at_once() -> None:
    fast, strong = stepping(3, model="fast"), stepping(3, model="strong")
    bot = agent(named("own"), ModelRouterMiddleware(Picks(), candidates(fast, strong)))
    await asyncio.gather(bot("the fast one"), bot("the strong one"))
    for model in (fast, strong):
        assert [call["messages"][0]["content"] for call in model.calls] == [f"the {model.model} one"] * 4


@accepts("routed model fails with fallback configured → fallback used, not the router pick again")
async def the_routed_model_fails() -> None:
    for spare in (named("spare", "saved"), None):
        own = named("own", "saved")
        broken = ScriptedModel([{"fault": {"status": 503}}], model="fast")
        # The fallback is around the router; it may even be the agent's own model.
        layers = [ModelFallbackMiddleware(spare or own), ModelRouterMiddleware(Picks("fast"), candidates(broken))]
        assert (await agent(own, *layers)("hi")).text == "saved"
        assert len(broken.calls) == 1


@accepts("route recorded on span (spangate.route.name, confidence)")
async def on_the_span() -> None:
    spans = Spans()
    layers = [TracingMiddleware(spans.provider), ModelRouterMiddleware(Picks("fast"), candidates(named("fast", "quick")))]
    await agent(named("own"), *layers)("hi")
    span = spans.one("chat")
    assert span.name == "chat fast"
    assert said(span)["spangate.route.name"] == "fast"
    assert said(span)["spangate.route.confidence"] == pytest.approx(0.9)
