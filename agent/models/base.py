"""What every chat model is: a thing that is awaited with messages and gives an answer.

A model of ours implements `pieces`, an async generator; the base primes it, and reads it to its end where the model does not stream.
So a whole answer takes the same way as a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ...call.errors import UpstreamUnreachable
from ..messages.msg import Msg, as_messages
from ..settings import ToolChoice
from .response import Answer, primed

Tools = Sequence[Mapping[str, Any]]


def unreachable(address: str, error: Exception) -> UpstreamUnreachable:
    """No connection to `address`, of which host and port are said."""
    place = urlsplit(address).netloc.rpartition("@")[2]
    return UpstreamUnreachable(f"The model at {place} could not be reached.", detail=str(error))


class ChatModelBase:
    """A chat model. `model` is its name; `stream` whether its answers come in pieces; `context_size` how many tokens it can read, if
    that is known; `dialect` names the module in messages/ that it speaks."""

    dialect: ClassVar[str] = "chat"
    provider: str = ""

    def __init__(
        self, model: str, *, stream: bool = True, context_size: int | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.model = model
        self.stream = stream
        self.context_size = context_size
        self.settings = dict(settings or {})

    async def __call__(
        self, messages: str | Msg | Sequence[Msg], tools: Tools | None = None, tool_choice: ToolChoice | None = None, **settings: Any
    ) -> Answer:
        """Ask. `tools` are JSON Schema functions as in OpenAI's API; `settings` go into the request beside those of the model.

        Raises:
            SpangateError: the model could not be reached, or answered with nothing.
        """
        source = self.pieces(as_messages(messages), list(tools or ()), tool_choice, {**self.settings, **settings})
        answer = await primed(source, empty=f"{self.model} answered with nothing.")
        return answer if self.stream else await answer.response()

    def pieces(
        self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """The pieces of the answer, the last of which is the whole (`is_last`)."""
        raise NotImplementedError(f"{type(self).__name__} implements pieces() or __call__().")

    @property
    def takes_reply_labels(self) -> bool:
        """It asks a gateway of ours, which wants to know the reply, and to which retries and fallbacks are left."""
        return False

    @property
    def is_counted(self) -> bool:
        """A gateway tells its usage in the same trace: whoever tells it again has counted it twice."""
        return self.takes_reply_labels

    @property
    def address(self) -> str:
        """The URL that it asks; empty for one in this process."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"
