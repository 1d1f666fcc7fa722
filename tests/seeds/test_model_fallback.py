"""The seed's ModelFallbackMiddleware: what the first model can't do, the other does, for streams too."""

from __future__ import annotations

import re
from typing import Any

import pytest

from spangate.agent import Agent, ModelCallEndEvent, ScriptedModel, TextBlockDeltaEvent
from spangate.call.errors import SpangateError

from seeds.sample import run

FAULTS: dict[str, Any] = {
    "an error status": {"status": 503, "message": "Overloaded."},
    "an error in a 200": "error_in_200",
    "nothing at all": "empty",
    "a connection that breaks": {"reset_after": 0},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_other_model_answers(stream: bool, fault: Any, capsys: pytest.CaptureFixture[str]) -> None:
    spare = ScriptedModel.saying("Saved.", model="spare", stream=stream)
    fallback = run("agentscope/model_fallback").ModelFallbackMiddleware(spare)
    broken = ScriptedModel([{"fault": fault}], model="broken", stream=stream)
    reply = Agent("assistant", None, broken, middlewares=[fallback]).stream("Go.")
    events = [event async for event in reply]
    assert "".join(event.delta for event in events if isinstance(event, TextBlockDeltaEvent)) == "Saved."
    assert [event.model_name for event in events if isinstance(event, ModelCallEndEvent)] == ["spare"]
    [line] = capsys.readouterr().out.splitlines()
    assert re.fullmatch("Primary model failed: .+, switching to fallback", line)
    assert spare.calls[0]["messages"] == broken.calls[0]["messages"]


async def test_what_the_other_cannot_do_either_is_raised() -> None:
    spare = ScriptedModel([{"fault": {"status": 500, "message": "Broken too."}}], model="spare")
    fallback = run("agentscope/model_fallback").ModelFallbackMiddleware(spare)
    broken = ScriptedModel([{"fault": {"status": 503}}], model="broken")
    with pytest.raises(SpangateError, match="Broken too"):
        await Agent("assistant", None, broken, middlewares=[fallback])("Go.")


async def test_a_model_that_works_is_kept() -> None:
    spare = ScriptedModel(model="spare")
    fallback = run("agentscope/model_fallback").ModelFallbackMiddleware(spare)
    answer = await Agent("assistant", None, ScriptedModel.saying("Well."), middlewares=[fallback])("Go.")
    assert (answer.text, len(spare.calls)) == ("Well.", 0)
