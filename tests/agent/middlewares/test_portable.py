"""agent/middlewares/portable.py: what goes to a model of another provider, and how large it is."""

from __future__ import annotations

import copy

from spangate.agent import AssistantMsg, ScriptedModel, TextBlock, ThinkingBlock, UserMsg
from spangate.agent.messages.chat import to_chat
from spangate.agent.middlewares.portable import estimated_tokens, fits, tools_for

MARKED = [
    {"type": "function", "function": {"name": "look", "cache_control": {"type": "ephemeral"}}, "cache_control": {"type": "ephemeral"}},
    {"type": "web_search_20250305", "name": "web_search"},
]


def of(provider: str, **options: int) -> ScriptedModel:
    model = ScriptedModel(model=provider, **options)  # type: ignore[arg-type]
    model.provider = provider
    return model


def test_marks_and_hosted_tools_stay_with_their_provider() -> None:
    before = copy.deepcopy(MARKED)
    assert tools_for(of("openai"), MARKED, instead_of=of("anthropic")) == [{"type": "function", "function": {"name": "look"}}]
    assert tools_for(of("anthropic"), MARKED, instead_of=of("anthropic")) is MARKED
    assert before == MARKED


def test_what_stands_in_blocks_goes_to_no_other_dialect() -> None:
    cached = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
    said = [
        UserMsg(name="u", content=[TextBlock("hi", extra=cached)]),
        AssistantMsg(name="a", content=[ThinkingBlock("hm", extra={"anthropic": {"signature": "s"}}), TextBlock("yes")]),
    ]
    assert to_chat(said) == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]


def test_a_request_is_about_so_large() -> None:
    assert estimated_tokens([UserMsg("x" * 400)]) == 101
    assert estimated_tokens([UserMsg("x" * 400)], [{"name": "look"}]) > 101
    assert fits(of("any"), 10**9)
    assert fits(of("small", context_size=100), 100)
    assert not fits(of("small", context_size=100), 101)
