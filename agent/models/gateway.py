"""A gateway in the same process as a model: it is given a `Next`, and asks it without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ...call.call import Caller
from ...call.chain import Next
from ..messages.msg import Msg
from ..settings import ToolChoice
from .base import ChatModelBase, Tools
from .response import ChatResponse


class GatewayModel(ChatModelBase):
    """Asks `next`, a gateway's chain, as `caller`."""

    provider = "spangate"

    def __init__(
        self, next: Next, model: str, *, caller: Caller | None = None, stream: bool = True, settings: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(model, stream=stream, settings=settings)
        self.next = next
        self.caller = caller or Caller()

    @property
    def takes_reply_labels(self) -> bool:
        return True

    async def pieces(
        self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponse]:
        from ..translation import call_of, chat_body, pieces_of

        body = chat_body(messages, tools, tool_choice, settings)
        call = call_of(body, model=self.model, stream=self.stream, caller=self.caller)
        answer = pieces_of(self.next(call), self.model)
        try:
            async for piece in answer:
                yield piece
        finally:
            await answer.aclose()
