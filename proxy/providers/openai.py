"""OpenAI's API, and every server that speaks it. What differs between them is a row of FLAVORS."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator, model_validator

from ... import __version__
from ...call.body import Body
from ...call.call import Call, Target
from ...call.chain import pulling
from ...call.errors import ProviderFault, UpstreamError
from ...call.events import Event, Opened, dicts
from ...call.seen import Place
from ...policies.told_limits import passed_on
from .. import answers
from ..coding import plain_body, whole
from ..reading import MAX_WHOLE, form_of, streamed_events, whole_events
from ..upstream import Origin, Reply
from .provider import Parts, Provider

Flavor = Literal["openai", "ollama", "vllm", "llamacpp", "mistral", "compatible"]


@dataclass(frozen=True, slots=True)
class Traits:
    """How a server differs from OpenAI's: where it lives by default, whether it wants a key, whether it knows stream_options, and in which
    field of a chat it reads how long an answer may be; None: that isn't known."""

    base_url: str | None
    needs_key: bool
    system: str
    stream_options: bool = True
    cap: str | None = "max_tokens"


FLAVORS: Mapping[str, Traits] = {
    "openai": Traits("https://api.openai.com/v1", needs_key=True, system="openai", cap="max_completion_tokens"),
    "ollama": Traits("http://127.0.0.1:11434/v1", needs_key=False, system="ollama"),
    "vllm": Traits("http://127.0.0.1:8000/v1", needs_key=False, system="vllm"),
    "llamacpp": Traits("http://127.0.0.1:8080/v1", needs_key=False, system="llamacpp"),
    "mistral": Traits("https://api.mistral.ai/v1", needs_key=True, system="mistral_ai", stream_options=False),
    "compatible": Traits(None, needs_key=False, system="", cap=None),
}

PATHS = {"chat": "/chat/completions", "completions": "/completions", "embeddings": "/embeddings"}
MAX_ERROR = 64 << 10
_PASSED_HEADERS = (b"openai-processing-ms", b"openai-version")


class OpenAI(BaseModel):
    """A server that speaks OpenAI's API."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    kind: Literal["openai"]
    """What the provider speaks."""
    api_key: SecretStr | None = None
    """The key that the gateway calls it with; local servers need none."""
    base_url: str | None = None
    """Where it lives, up to and with `/v1`. Default: the flavor's own."""
    flavor: Flavor = "openai"
    """Which server it is, as far as that makes a difference. `compatible` is any other."""

    @field_validator("base_url")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is not None:
            Origin.parse(value)
        return value

    @model_validator(mode="after")
    def _complete(self) -> OpenAI:
        traits = FLAVORS[self.flavor]
        if self.base_url is None and traits.base_url is None:
            raise ValueError(f"flavor {self.flavor} has no address of its own: say base_url")
        if self.api_key is None and traits.needs_key and self.base_url is None:
            raise ValueError("api_key is missing")
        return self

    def build(self, parts: Parts) -> Provider:
        return OpenAIProvider(self, parts)


class OpenAIProvider:
    """Asks one server."""

    def __init__(self, settings: OpenAI, parts: Parts) -> None:
        traits = FLAVORS[settings.flavor]
        self.name = parts.name
        system = parts.name.lower() if settings.flavor == "compatible" else traits.system
        self._client = parts.client
        self._clock = parts.clock
        self._origin = Origin.parse(settings.base_url or traits.base_url or "")
        self._asks_usage = traits.stream_options
        self._cap = traits.cap
        self._key = settings.api_key.get_secret_value() if settings.api_key else ""
        self.place = Place(system, self._origin.host, self._origin.port, _urls(self._origin, self._key))
        self._headers = _headers(self._key)
        self.lines = parts.heard.of(f"{self.place.urls['chat']} {sha256(self._key.encode()).hexdigest()}", parts.clock)

    async def answer(self, call: Call) -> AsyncGenerator[Event, None]:
        assert call.target is not None
        asks_usage = self._asks_usage and call.head.stream and not call.head.usage_frame
        # A cap that a rule holds goes out in the field that most servers read, a caller's own as it came.
        old_cap = call.op == "chat" and (self._cap or ("max_tokens" if call.head.capped else None)) == "max_tokens"
        body = outgoing(call.body, call.model, call.target, asks_usage=asks_usage, old_cap=old_cap)
        trace = (b"traceparent", traceparent(call))
        answer = await self._client.send(
            b"POST", self._origin, PATHS[call.op], self._headers, body.pieces(), connect=call.connect, more=(trace,)
        )
        try:
            self.lines.heard(call.target.model, answer.status, answer.headers, call.turn)
            if answer.status != 200:
                raise await refusal(answer, self._clock.wall())
            form, opened = await form_of(answer), self._opened(answer)
            if not form.streamed:
                for event in await whole_events(call, form.body, opened):
                    yield event
                return
            async with pulling(streamed_events(call, answer, form, opened, hide_usage=asks_usage)) as events:
                async for event in events:
                    yield event
        except ProviderFault as fault:
            answers.keep_secret(fault, self._key)
            raise
        finally:
            answer.close()

    def _opened(self, answer: Reply) -> Opened:
        passed: dict[str, str] = {}
        request_id = ""
        for name, value in answer.headers:
            if name == b"x-request-id":
                request_id = self._told(value)
            elif name in _PASSED_HEADERS:
                passed[name.decode()] = self._told(value)
        return Opened(provider=self.name, headers=passed, request_id=request_id)

    def _told(self, value: bytes) -> str:
        text = _text(value)
        return text.replace(self._key, "***") if self._key else text

    async def models(self) -> list[str]:
        try:
            answer = await self._client.send(b"GET", self._origin, "/models", self._headers, (), connect=5.0)
        except ProviderFault:
            return []
        try:
            listed = json.loads(await whole(plain_body(answer), MAX_WHOLE)) if answer.status == 200 else {}
            data = listed.get("data") if isinstance(listed, dict) else None
            return [model["id"] for model in dicts(data) if isinstance(model.get("id"), str)]
        except (ProviderFault, ValueError, RecursionError):
            return []
        finally:
            answer.close()


def _urls(origin: Origin, key: str) -> Mapping[str, str]:
    """Where each operation is asked, for telemetry: some gateways want their key in the path."""
    base = f"{origin.scheme}://{origin.authority.decode()}{origin.path}"
    told = base.replace(key, "***") if key else base
    return {op: told + path for op, path in PATHS.items()}


def _headers(key: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"accept-encoding", b"identity"),
        (b"user-agent", b"spangate/" + __version__.encode()),
        *([(b"authorization", b"Bearer " + key.encode())] if key else []),
    )


def traceparent(call: Call) -> bytes:
    """The caller's trace goes on with the attempt's span. https://www.w3.org/TR/trace-context-2/#traceparent-header"""
    seen = call.seen
    span_id = seen.attempts[-1].span_id if seen.attempts else seen.span_id
    return b"00-%032x-%016x-%02x" % (seen.trace_id, span_id, seen.sampled)


def outgoing(body: Body, model: str, target: Target, *, asks_usage: bool, old_cap: bool = False) -> Body:
    """The body as the target gets it: its own model name, and the wish for a usage frame if only we have it. `old_cap`: it reads no
    `max_completion_tokens`, so that these go out as `max_tokens`."""
    changes: dict[str, Any] = {}
    if target.model != model:
        changes["model"] = target.model
    if asks_usage:
        given = body.get("stream_options")
        changes["stream_options"] = {**(given if isinstance(given, dict) else {}), "include_usage": True}
    if old_cap and "max_completion_tokens" in body:
        given = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
        changes |= {"max_completion_tokens": None, "max_tokens": min([cap for cap in given if cap is not None], default=None)}
    return body.changed(**changes) if changes else body


async def refusal(answer: Reply, now: int) -> UpstreamError:
    """The error that an answer with another status than 200 tells of, at the wall time `now` in nanoseconds."""
    headers = passed_on(answer.headers, now)
    try:
        said = await whole(plain_body(answer), MAX_ERROR)
    except ProviderFault:
        said = b""
    try:
        parsed = json.loads(said)
    except (ValueError, RecursionError):
        parsed = None
    parsed = parsed[0] if isinstance(parsed, list) and parsed else parsed  # Gemini's way
    told: Any = said.decode("utf-8", "replace")
    if isinstance(parsed, dict):
        told = next((parsed[name] for name in ("error", "detail", "message") if parsed.get(name)), None)
    return answers.provider_error(told, answer.status, headers)


def _text(value: bytes) -> str:
    return value.decode("latin-1")
