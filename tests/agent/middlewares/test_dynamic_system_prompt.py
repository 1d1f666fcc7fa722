"""agent/middlewares/dynamic_system_prompt.py: where the text goes. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from spangate.agent import DynamicSystemPromptMiddleware, ScriptedModel

from acceptance.lines import agent, stepping


@pytest.mark.parametrize(
    ("position", "prompt", "said", "system"),
    [
        ("append", "p", "now", "p\n\n# Now\nnow"),
        ("prepend", "p", "now", "# Now\nnow\n\np"),
        ("replace", "p", "now", "now"),
        ("append", None, "now", "# Now\nnow"),
        ("append", "p", None, "p"),
        ("prepend", None, None, None),
    ],
)
async def test_where_it_goes(position: Any, prompt: str | None, said: str | None, system: str | None) -> None:
    model = ScriptedModel()
    await agent(model, DynamicSystemPromptMiddleware(lambda: said, position, "# Now"), prompt=prompt)("hi")
    assert [message["content"] for message in model.calls[0]["messages"] if message["role"] == "system"] == [system] * (system is not None)


async def test_behind_the_messages_it_leaves_the_prompt_and_the_history_alone() -> None:
    model = stepping(1)
    layer = DynamicSystemPromptMiddleware(lambda: "now", "last_message", "# Now")
    bot = agent(model, layer, prompt="p", thread="t")
    await bot("hi")
    assert [call["messages"][0]["content"] for call in model.calls] == ["p", "p"]
    assert [call["messages"][-1] for call in model.calls] == [{"role": "user", "content": "# Now\nnow"}] * 2
    assert "now" not in "".join(msg.text for msg in await bot.history("t"))


async def test_nothing_to_say_adds_no_message() -> None:
    model = ScriptedModel()
    await agent(model, DynamicSystemPromptMiddleware(lambda: None, "last_message"))("hi")
    assert [message["content"] for message in model.calls[0]["messages"]] == ["hi"]


async def test_not_more_often_than_it_may_be_asked() -> None:
    now, asked = itertools.count(0, 4), itertools.count()
    model = stepping(3)
    layer = DynamicSystemPromptMiddleware(lambda: str(next(asked)), heading="", cache_ttl=10, clock=lambda: next(now))
    await agent(model, layer)("hi")
    assert [call["messages"][0]["content"] for call in model.calls] == ["0", "0", "0", "1"]


async def test_its_failure_is_raised() -> None:
    def fails() -> str:
        raise LookupError("nowhere")

    with pytest.raises(LookupError, match="nowhere"):
        await agent(ScriptedModel(), DynamicSystemPromptMiddleware(fails))("hi")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context_fn": "now"}, "context_fn must be a function"),
        ({"context_fn": str, "position": "first"}, "position must be one of append"),
        ({"context_fn": str, "cache_ttl": -1}, "cache_ttl must be a number"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DynamicSystemPromptMiddleware(**options)


@pytest.mark.parametrize("position", ["append", "prepend", "replace", "last_message"])
async def test_a_function_that_fails_fails_the_reply_or_changes_nothing(position: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise LookupError("CANARY")

    with pytest.raises(LookupError):
        await agent(ScriptedModel(), DynamicSystemPromptMiddleware(broken, position))("hi")
    model = ScriptedModel()
    await agent(model, DynamicSystemPromptMiddleware(broken, position, on_error="skip"), prompt="p")("hi")
    assert [message["content"] for message in model.calls[0]["messages"]] == ["p", "hi"]
    assert caplog.messages == ["a: the system prompt stays as it was (LookupError)"], "asked once a round, however often it is needed"
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip', not 'no'"):
        DynamicSystemPromptMiddleware(broken, on_error="no")  # type: ignore[arg-type]
