"""Models that speak OpenAI's chat completions, through OpenAI's own client: OpenAI itself, a gateway of ours, and many others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...call.errors import ProviderFault, Refused, SpangateError, UpstreamError, UpstreamIncomplete, UpstreamTimeout
from ..asking import asking
from ..errors import InvalidInput
from ..messages.chat import REASONING
from ..messages.msg import Msg
from ..settings import ToolChoice
from .base import ChatModelBase, Tools, unreachable
from .chunks import ChatPieces
from .labels import is_vendor, reply_headers
from .response import ChatResponse

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIChatModel(ChatModelBase):
    """A model behind `base_url` (default: OpenAI's). Where that is no vendor's address it is taken for a gateway, unless `gateway` says
    otherwise: a gateway is told the reply, the thread and the trace, and retries by itself. `api_key` defaults to `OPENAI_API_KEY`.

    `settings` go into every request (`{"temperature": 0}`). `keep_reasoning`: send earlier reasoning back, as a few providers want it.
    """

    provider = "openai"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | None = None,
        stream: bool = True,
        context_size: int | None = None,
        settings: Mapping[str, Any] | None = None,
        max_retries: int | None = None,
        gateway: bool | None = None,
        keep_reasoning: bool = False,
    ) -> None:
        super().__init__(model, stream=stream, context_size=context_size, settings=settings)
        self._options = {"api_key": api_key, "base_url": base_url, "max_retries": max_retries}
        self._client = client
        self._gateway = gateway
        self._keep_reasoning = keep_reasoning

    @property
    def client(self) -> AsyncOpenAI:
        """OpenAI's client, made on first use."""
        if self._client is None:
            from openai import AsyncOpenAI

            given = {name: value for name, value in self._options.items() if value is not None}
            self._client = AsyncOpenAI(**given)  # type: ignore[arg-type]
            if self._options["max_retries"] is None and self.takes_reply_labels:
                self._client.max_retries = 0
        return self._client

    @property
    def takes_reply_labels(self) -> bool:
        return not is_vendor(str(self.client.base_url)) if self._gateway is None else self._gateway

    @property
    def address(self) -> str:
        return str(self.client.base_url)

    async def aclose(self) -> None:
        """Close its connections."""
        if self._client is not None:
            await self._client.close()

    async def pieces(
        self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]
    ) -> AsyncGenerator[ChatResponse, None]:
        pieces = ChatPieces(self.model)
        body = self._body(messages, tools, tool_choice, settings)
        answer = await _asked(self.client.chat.completions.create(**body), self.address)
        if not self.stream:
            pieces.add(_said(answer))
            if pieces.finish is None:
                raise UpstreamIncomplete(f"{self.model} answered with what is no answer.")
            yield pieces.last()
            return
        try:
            while True:
                chunk = await _asked(anext(answer, None), self.address)
                if chunk is None:
                    break
                piece = pieces.add(_said(chunk))
                if piece is not None:
                    yield piece
        finally:
            # The socket is given back at once, wherever the reader left.
            await answer.response.aclose()
        if pieces.finish is None:
            raise UpstreamIncomplete(f"The answer of {self.model} stopped before its end.")
        yield pieces.last()

    def _body(self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        from ..translation import chat_body

        body = chat_body(messages, tools, tool_choice, settings)
        if not self._keep_reasoning:
            body["messages"] = [{name: value for name, value in each.items() if name not in REASONING} for each in body["messages"]]
        body |= {"model": self.model, "stream": self.stream}
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        deadline = asking.get().deadline
        if deadline is not None:
            body["timeout"] = max(deadline - asyncio.get_running_loop().time(), 0.001)
        if self.takes_reply_labels:
            body["extra_headers"] = {**reply_headers(), **body.get("extra_headers", {})}
        return body


def _said(given: Any) -> Mapping[str, Any]:
    """What the client read, as it was written; the client checks nothing, and gives a page of HTML as text."""
    said: Mapping[str, Any] = given.model_dump(exclude_unset=True, warnings=False) if hasattr(given, "model_dump") else {}
    return said


async def _asked(waiting: Any, address: str) -> Any:
    """What the client gives, or its error in our words. `address`: whom it asks.

    Raises:
        SpangateError: what went wrong, and whether another try may help.
    """
    from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

    try:
        return await waiting
    except APITimeoutError as error:
        raise UpstreamTimeout("The model took too long to answer.", limit="total", detail=str(error)) from error
    except APIConnectionError as error:
        raise unreachable(address, error) from error
    except APIStatusError as error:
        headers = {name: value for name, value in error.response.headers.items() if name.lower().startswith("retry-after")}
        raise fault(error.status_code, error.body, error.message, headers) from error
    except APIError as error:
        raise fault(None, error.body, error.message, {}) from error
    except UnicodeEncodeError as error:
        raise InvalidInput("The request holds half of a character, which can't be sent.", detail=str(error)) from error
    except (ValueError, RecursionError) as error:
        raise UpstreamIncomplete("The model's answer is no JSON.", detail=str(error)) from error


def fault(status: int | None, body: Any, message: str, headers: Mapping[str, str]) -> SpangateError:
    """A provider's error, or the refusal of a gateway of ours, which says so."""
    told = body.get("error", body) if isinstance(body, Mapping) else {}
    told = told if isinstance(told, Mapping) else {}
    words, code = str(told.get("message") or message)[:2000], told.get("code")
    if told.get("source") in ("gateway", "policy") and isinstance(code, str) and status is not None and status < 500:
        facts = {name: told[name] for name in ("budget", "limit", "request_id", "trace_id") if name in told}
        return Refused(words, code=code, param=told.get("param"), headers=headers, facts=facts)
    retryable = status is None or status in (408, 409, 429) or status >= 500
    kind = told.get("type")
    own: ProviderFault = UpstreamError(
        words,
        status=status,
        kind=kind if isinstance(kind, str) else None,
        own_code=code if isinstance(code, str | int) else None,
        param=told.get("param") if isinstance(told.get("param"), str) else None,
        headers=headers,
        retryable=retryable,
    )
    return own
