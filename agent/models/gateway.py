"""A gateway in the same process as a model: it is given a `Next`, and asks it without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from ...call.call import Caller
from ...call.chain import Next
from ...call.errors import OurFault, ProviderFault, SpangateError
from ...call.seen import Outcome, Seen
from ..messages.msg import Msg
from ..settings import ToolChoice
from .base import ChatModelBase, Tools
from .response import ChatResponse

if TYPE_CHECKING:
    from ...exporters.record import Recorder

PATH = "/v1/chat/completions"


class GatewayModel(ChatModelBase):
    """Asks `next`, a gateway's chain, as `caller`. `recorder`: the gateway's, which is told each call as of a request that came by HTTP;
    without one nothing of the gateway is told."""

    provider = "spangate"

    def __init__(
        self,
        next: Next,
        model: str,
        *,
        caller: Caller | None = None,
        recorder: Recorder | None = None,
        stream: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, stream=stream, settings=settings)
        self.next = next
        self.caller = caller or Caller()
        self.recorder = recorder

    @property
    def takes_reply_labels(self) -> bool:
        return True

    @property
    def is_counted(self) -> bool:
        return self.recorder is not None

    async def pieces(
        self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponse]:
        from ..translation import call_of, chat_body, pieces_of

        body = chat_body(messages, tools, tool_choice, settings)
        call = call_of(body, model=self.model, stream=self.stream, caller=self.caller)
        outcome: Outcome = "aborted"
        code = ""
        try:
            async with aclosing(pieces_of(self.next(call), self.model)) as answer:
                async for piece in answer:
                    outcome = "completed" if piece.is_last else outcome
                    yield piece
        except Exception as error:
            outcome, code = _failure(error)
            raise
        finally:
            self._tell(call.seen, outcome, code)

    def _tell(self, seen: Seen, outcome: Outcome, code: str) -> None:
        seen.method, seen.path, seen.scheme = "POST", PATH, "process"
        seen.end(outcome, 200 if outcome == "completed" else 0, code)
        if self.recorder is not None:
            self.recorder.record(seen)


def _failure(error: Exception) -> tuple[Outcome, str]:
    if not isinstance(error, SpangateError):
        return "failed", OurFault.code
    return "failed" if isinstance(error, ProviderFault | OurFault) else "refused", error.code
