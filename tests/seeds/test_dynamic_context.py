"""The seed's DynamicContextMiddleware: what its function says is at the end of the system prompt, anew for each call."""

from __future__ import annotations

import re
from datetime import datetime

from spangate.agent import ScriptedModel

from seeds.sample import run

PROMPT = "You are a helpful assistant.\n\n## Current Context\nTime: "


async def test_the_system_prompt_says_what_time_it_is() -> None:
    model = ScriptedModel()
    agent = run("agentscope/dynamic_context", model=model).agent
    before = datetime.now()  # noqa: DTZ005 - as the sample writes it
    assert (await agent("What time is it?")).text == "What time is it?"
    assert (await agent("And now?")).text == "And now?"
    told = []
    for call in model.calls:
        assert [message["role"] for message in call["messages"]] == ["system", "user"]
        said = re.fullmatch(re.escape(PROMPT) + "(.+)", call["messages"][0]["content"])
        assert said is not None
        told.append(datetime.fromisoformat(said.group(1)))
    assert before <= told[0] <= told[1]
    assert agent.system_prompt == "You are a helpful assistant.", "the agent itself stays as it is"
