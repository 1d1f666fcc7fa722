"""Models that speak Anthropic's messages, over our own client: the vendor's package is not needed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...call import sse
from ...call.errors import ProviderFault, UpstreamIncomplete, UpstreamTimeout
from ...call.events import dicts
from ..asking import asking
from ..errors import InvalidInput
from ..messages.anthropic import to_anthropic, tools_of
from ..messages.blocks import Block, ForeignBlock, TextBlock, ThinkingBlock, ToolCallBlock, new_id
from ..messages.msg import ChatUsage, Msg
from ..settings import ToolChoice
from .base import ChatModelBase, Tools, unreachable
from .chunks import fields_of, words_of
from .labels import is_vendor, reply_headers
from .openai import fault
from .response import ChatResponse, Gathered

if TYPE_CHECKING:
    from aiohttp import ClientSession

VERSION = "2023-06-01"
MAX_TOKENS = 8192
MAX_ERROR = 1 << 16
MAX_FRAME = 1 << 24  # bytes of one event
FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


class AnthropicChatModel(ChatModelBase):
    """A model behind `base_url` (default: Anthropic's). `api_key` defaults to `ANTHROPIC_API_KEY`. `settings` go into every request;
    `max_tokens`, which Anthropic wants, is 8192 unless they say otherwise. Close it with `aclose()`."""

    dialect = "anthropic"
    provider = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = "https://api.anthropic.com",
        stream: bool = True,
        context_size: int | None = None,
        settings: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        gateway: bool | None = None,
    ) -> None:
        super().__init__(model, stream=stream, context_size=context_size, settings=settings)
        self._api_key = api_key
        self._url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages"
        self._headers = dict(headers or {})
        self._gateway = gateway
        self._session: ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def takes_reply_labels(self) -> bool:
        return not is_vendor(self._url) if self._gateway is None else self._gateway

    @property
    def address(self) -> str:
        return self._url

    async def aclose(self) -> None:
        """Close its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _client(self) -> ClientSession:
        from aiohttp import ClientSession, ClientTimeout

        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._session, self._loop = ClientSession(timeout=ClientTimeout(total=None, sock_connect=10)), loop
        return self._session

    async def pieces(
        self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]
    ) -> AsyncGenerator[ChatResponse, None]:
        body = self._body(messages, tools, tool_choice, settings)
        pieces = AnthropicPieces(self.model)
        answer = await _reached(self._client().post(self._url, json=body, headers=self._request_headers(), allow_redirects=False))
        try:
            if answer.status != 200:
                raise await _refused(answer)
            if not self.stream:
                yield pieces.whole(_object(await _reached(answer.read())))
                return
            rest = b""
            while not pieces.ended:
                data = await _reached(answer.content.readany())
                if not data:
                    raise UpstreamIncomplete(f"The answer of {self.model} stopped before its end.")
                rest += data
                if len(rest) > MAX_FRAME:
                    raise UpstreamIncomplete(f"The answer of {self.model} holds an event without an end.")
                whole = sse.whole_frames(rest)
                for frame in sse.frames(rest[:whole]):
                    piece = pieces.add(_object(sse.data_of(frame)))
                    if piece is not None:
                        yield piece
                rest = rest[whole:]
            yield pieces.last()
        finally:
            answer.close()

    def _body(self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        system, said = to_anthropic(messages)
        body: dict[str, Any] = {"max_tokens": MAX_TOKENS, **settings, "model": self.model, "messages": said, "stream": self.stream}
        if system is not None:
            body["system"] = system
        if tools:
            chosen = tool_choice.tools if tool_choice is not None else None
            body["tools"] = [each for each in tools_of(tools) if not chosen or each.get("name") in chosen]
            choice = _tool_choice(tool_choice)
            if choice is not None:
                body["tool_choice"] = choice
        return body

    def _request_headers(self) -> dict[str, str]:
        key = self._api_key or os.environ.get("ANTHROPIC_API_KEY", "")
        if not key:
            raise InvalidInput("AnthropicChatModel needs api_key, or ANTHROPIC_API_KEY in the environment.", param="api_key")
        labels = reply_headers() if self.takes_reply_labels else {}
        return {"x-api-key": key, "anthropic-version": VERSION, **labels, **self._headers}


def _tool_choice(choice: ToolChoice | None) -> dict[str, Any] | None:
    if choice is None or choice.mode == "auto":
        return None
    if choice.mode in ("none", "required"):
        return {"type": "none" if choice.mode == "none" else "any"}
    return {"type": "tool", "name": choice.mode}


async def _reached(waiting: Any) -> Any:
    """What the client gives, within what is left of the reply's time.

    Raises:
        ProviderFault: the provider could not be reached, or went away.
    """
    from aiohttp import ClientConnectorError, ClientError

    try:
        async with asyncio.timeout_at(asking.get().deadline):
            return await waiting
    except TimeoutError as error:
        raise UpstreamTimeout("The model took too long to answer.", limit="total") from error
    except ClientConnectorError as error:
        raise unreachable(f"http://{error.host}:{error.port}", error) from error
    except ClientError as error:
        raise UpstreamIncomplete("The model's answer stopped before its end.", detail=str(error)) from error


async def _refused(answer: Any) -> Exception:
    body = _object(await _reached(answer.content.read(MAX_ERROR)))
    headers = {name: value for name, value in answer.headers.items() if name.lower().startswith("retry-after")}
    return fault(answer.status, body, f"The provider answered with status {answer.status}.", headers)


def _object(data: bytes | None) -> dict[str, Any]:
    """The object in these bytes; an empty one for anything else."""
    try:
        value = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _place(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


class AnthropicPieces:
    """The pieces of one answer, made of Anthropic's events. `last` is the whole of it."""

    def __init__(self, model: str = "") -> None:
        self.model = model
        self.id = new_id()
        self.ended = False
        self.finish: str | None = None
        self._usage: dict[str, int] = {}
        self._gathered = Gathered()
        self._open: dict[int, Block] = {}

    def add(self, event: Mapping[str, Any]) -> ChatResponse | None:
        """The piece that this event brings, if it says anything.

        Raises:
            ProviderFault: the event is an error.
        """
        kind, block = event.get("type"), None
        if kind == "error":
            error = fault(None, event, "The model's answer broke off.", {})
            raise error if isinstance(error, ProviderFault) else UpstreamIncomplete(error.message)
        if kind == "message_start":
            message = fields_of(event, "message")
            self.model = words_of(message, "model") or self.model
            self._count(message.get("usage"))
        elif kind == "content_block_start":
            block = self._started(event)
        elif kind == "content_block_delta":
            block = self._grown(event)
        elif kind == "message_delta":
            self.finish = words_of(fields_of(event, "delta"), "stop_reason") or self.finish
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.ended = True
        if block is None:
            return None
        piece = ChatResponse([block], is_last=False, id=self.id, model=self.model)
        self._gathered.add(piece)
        return piece

    def whole(self, message: Mapping[str, Any]) -> ChatResponse:
        """The answer that came in one.

        Raises:
            ProviderFault: it is none.
        """
        if message.get("type") == "error":
            self.add(message)
        self.add({"type": "message_start", "message": message})
        for number, block in enumerate(dicts(message.get("content"))):
            self.add({"type": "content_block_start", "index": number, "content_block": block})
        self.finish = words_of(message, "stop_reason") or None
        if self.finish is None:
            raise UpstreamIncomplete(f"{self.model} answered with what is no answer.")
        return self.last()

    def last(self) -> ChatResponse:
        finish = FINISH.get(self.finish or "", self.finish)
        content = self._gathered.content
        for block in content:
            if isinstance(block, ToolCallBlock):
                block.input = block.input or "{}"
        return ChatResponse(content, True, self.id, self._whole_usage(), finish=finish, model=self.model)

    def _started(self, event: Mapping[str, Any]) -> Block:
        given = fields_of(event, "content_block")
        kind, block_id = given.get("type"), new_id()
        block: Block
        if kind == "text":
            block = TextBlock(words_of(given, "text"), block_id)
        elif kind == "thinking":
            kept = {"anthropic": {"signature": given["signature"]}} if given.get("signature") else {}
            block = ThinkingBlock(words_of(given, "thinking"), block_id, kept)
        elif kind == "tool_use":
            arguments = given.get("input")
            call_id = words_of(given, "id") or f"call_{block_id[:24]}"
            block = ToolCallBlock(call_id, words_of(given, "name"), json.dumps(arguments) if arguments else "")
        else:
            block = ForeignBlock("anthropic", dict(given), id=block_id)
        self._open[_place(event)] = block
        return block

    def _grown(self, event: Mapping[str, Any]) -> Block | None:
        block, delta = self._open.get(_place(event)), fields_of(event, "delta")
        if isinstance(block, TextBlock):
            return TextBlock(words_of(delta, "text"), block.id)
        if isinstance(block, ThinkingBlock):
            if delta.get("type") == "signature_delta":
                return ThinkingBlock("", block.id, {"anthropic": {"signature": words_of(delta, "signature")}})
            return ThinkingBlock(words_of(delta, "thinking"), block.id)
        if isinstance(block, ToolCallBlock):
            return ToolCallBlock(block.id, block.name, words_of(delta, "partial_json"))
        return None

    def _count(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {name: value for name, value in usage.items() if type(value) is int and value >= 0}

    def _whole_usage(self) -> ChatUsage | None:
        if not self._usage:
            return None
        read, write = self._usage.get("cache_read_input_tokens", 0), self._usage.get("cache_creation_input_tokens", 0)
        # Anthropic counts what a cache held beside the input, everybody else within it.
        return ChatUsage(self._usage.get("input_tokens", 0) + read + write, self._usage.get("output_tokens", 0), read, write)
