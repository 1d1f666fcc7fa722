"""A model that asks nobody: it answers as a script says (call/script.py), and remembers what it was asked.

Part of the product: examples, users' tests and ours stand on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from ...call.script import AnyRule, Script
from ..messages.msg import Msg
from ..settings import ToolChoice
from .base import ChatModelBase, Tools
from .response import ChatResponse

_RULE = {"when", "answer", "usage", "fault", "times"}


class ScriptedModel(ChatModelBase):
    """Answers as `script` says: rules as in YAML, or functions that choose one; with none it repeats the last user message.

    `calls` holds the bodies that it was asked with, as a provider of OpenAI's dialect would get them, the oldest first.
    """

    provider = "scripted"

    def __init__(
        self, script: Script | Iterable[AnyRule] = (), *, model: str = "scripted", stream: bool = True, context_size: int | None = None
    ) -> None:
        super().__init__(model, stream=stream, context_size=context_size)
        self.script = script if isinstance(script, Script) else Script(script)
        self.calls: deque[dict[str, Any]] = deque(maxlen=1000)
        self._serial = 0

    @classmethod
    def saying(cls, *turns: str | Mapping[str, Any], model: str = "scripted", stream: bool = True) -> ScriptedModel:
        """Says these in turn: a text, an answer (`{"tool_calls": […]}`), or a rule (`{"fault": …}`); after the last it echoes."""
        return cls([_once(turn) for turn in turns], model=model, stream=stream)

    async def pieces(
        self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponse]:
        from ..translation import call_of, chat_body, pieces_of

        call = call_of(chat_body(messages, tools, tool_choice, settings), model=self.model, stream=self.stream)
        self._serial += 1
        self.calls.append(call.body.parsed())
        answer = pieces_of(self.script.answer(call, provider=self.provider, serial=self._serial), self.model)
        try:
            async for piece in answer:
                yield piece
        finally:
            await answer.aclose()


def _once(turn: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(turn, str):
        return {"answer": {"text": turn}, "times": 1}
    return {"times": 1, **turn} if turn.keys() <= _RULE else {"answer": dict(turn), "times": 1}


def calls(name: str, /, *, id: str | None = None, **arguments: Any) -> dict[str, Any]:
    """An answer that calls one tool: `ScriptedModel.saying(calls("get_weather", city="Rome"), "It is sunny.")`."""
    return {"tool_calls": [{"name": name, "arguments": arguments, "id": id}]}
