"""The proxy's policies in an agent: `PolicyMiddleware` puts them, unchanged, around each model call.

A model call becomes a `Call`, goes through the policies as in a gateway, and what comes out of them is the answer. Policies that stand in
one PolicyMiddleware share one conversion, and are sorted by stage as a gateway sorts them: access, limits, redaction, context, route,
fallback, retry, time limits.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..call.call import Call, Caller, Target
from ..call.chain import Next, Policy, chain, in_order, pulling
from ..call.clock import SYSTEM
from ..call.events import Closed, Delta, Event, Opened
from .asking import Asking
from .deltas import Retold, Source
from .errors import MiddlewareFault
from .hooks import MiddlewareBase, NextCall, blame
from .messages.msg import Msg
from .models.base import ChatModelBase, Tools
from .models.response import Answer, ChatResponse, ModelStream
from .settings import ToolChoice
from .translation import UnreadBody, call_of, changed_fields, chat_body, messages_of, tool_choice_of

if TYPE_CHECKING:
    from .view import ReplyView

HOOK = "on_model_call"
NOT_SETTINGS = frozenset({"model", "stream", "stream_options", "messages", "tools", "tool_choice"})
OF_THE_CLIENT = frozenset({"extra_headers", "extra_query", "extra_body", "timeout"})


class PolicyMiddleware(MiddlewareBase):
    """Policies of a gateway around the model calls of an agent.

        Agent(…, middlewares=[PolicyMiddleware(Access(models=("gpt-*",)), TimeLimit(total=30))])

    `caller`: whose calls they are. `targets`: the models that a policy may choose, by the name of the target's model, or by
    `provider/model`; `call.to(Target("openai", "gpt-5"))` then asks `targets["openai/gpt-5"]` or `targets["gpt-5"]`.
    """

    def __init__(
        self,
        *policies: Any,
        caller: Caller | None = None,
        ledger: None = None,
        targets: Mapping[str, ChatModelBase] | None = None,
    ) -> None:
        """
        Raises:
            TypeError: something given is no policy, or no model.
            ValueError: a policy needs what it was not given, or there is none.
        """
        if not policies:
            raise ValueError("PolicyMiddleware needs at least one policy.")
        if ledger is not None:
            raise ValueError("ledger: no policy of this version keeps accounts in an agent; put budgets and rate limits into the gateway.")
        self.caller = caller or Caller()
        self.targets = dict(targets or {})
        for name, model in self.targets.items():
            if isinstance(model, type) or not callable(model):
                raise TypeError(f"targets[{name!r}] is no model: give a ChatModelBase.")
        for policy in policies:
            self._check(policy)
        self.policies: tuple[Policy, ...] = tuple(in_order([_layer(policy) for policy in policies]))
        self._codes = {code: _name(policy) for policy in self.policies if (code := _code(policy)) is not None}
        self._chained = [partial(_checked, policy) for policy in self.policies]

    def _check(self, policy: Any) -> None:
        name = _name(policy)
        if isinstance(policy, type) or not (callable(policy) or hasattr(policy, "build")):
            raise TypeError(f"{name} is no policy: give an instance that is called with (call, next).")
        given = {"targets"} if self.targets else set()
        missing = sorted(set(getattr(policy, "needs", ())) - given)
        if missing:
            hint = "targets={'name': ChatModel}" if missing == ["targets"] else "a gateway, where it has all that"
            raise ValueError(f"{name} needs {' and '.join(missing)}: give it {hint}.")

    async def on_model_call(self, agent: ReplyView, input_kwargs: dict[str, Any], next_handler: NextCall) -> Answer:  # type: ignore[override]
        crossing = Crossing(self.targets, input_kwargs, next_handler)
        call = crossing.call(self.caller, Asking.of(agent))
        pieces = crossing.pieces(chain(self._chained, crossing.answer), call, self._codes)
        # Its first pull waits for Opened: what goes wrong before that is raised here, and what is open then is the generator's to close.
        await anext(pieces)
        answer = ModelStream(pieces)
        agent.open_streams.append(answer)
        return answer if call.head.stream else await answer.response()


def _layer(policy: Any) -> Policy:
    build: Callable[[Any], Policy] | None = getattr(policy, "build", None)
    return build(SYSTEM) if build is not None else policy


def _name(policy: Any) -> str:
    return str(getattr(policy, "__name__", type(policy).__name__))


def _checked(policy: Policy, call: Call, next: Next) -> AsyncIterator[Event]:
    events: Any = policy(call, next)
    if not isinstance(events, AsyncIterator):
        if inspect.iscoroutine(events):
            events.close()
        given = "None" if events is None else f"a {type(events).__name__}"
        raise MiddlewareFault(_name(policy), "__call__", f"gave {given}; a policy yields events, or returns next(call)")
    return events


def _code(policy: Any) -> CodeType | None:
    called = policy if hasattr(policy, "__code__") else type(policy).__call__
    return getattr(called, "__code__", None)


class Crossing:
    """One model call on its way through policies and back. They may call the inside more than once."""

    def __init__(self, targets: Mapping[str, ChatModelBase], given: Mapping[str, Any], inside: NextCall) -> None:
        self._targets = targets
        self._inside = inside
        self._messages: Sequence[Msg] = given["messages"]
        self._tools: Tools = given["tools"] or ()
        self._tool_choice: ToolChoice | None = given["tool_choice"]
        self._model: Any = given["current_model"]
        self._settings = _plain(getattr(self._model, "settings", {}))
        self._name = getattr(self._model, "model", "") or type(self._model).__name__
        self._stream = bool(getattr(self._model, "stream", True))
        self._body = UnreadBody(self._written)
        self._sources: dict[str, Source] = {}

    def _written(self) -> dict[str, Any]:
        body = chat_body(self._messages, self._tools, self._tool_choice, self._settings)
        return {**body, "model": self._name, "stream": self._stream}

    def call(self, caller: Caller, now: Asking) -> Call:
        cap = self._settings.get("max_completion_tokens") or self._settings.get("max_tokens")
        return call_of(self._body, model=self._name, stream=self._stream, caller=caller, output_cap=cap, now=now)

    async def answer(self, call: Call) -> AsyncIterator[Event]:
        """The innermost: ask what is inside of the middleware."""
        changed = self._changed(call)
        model = changed.get("current_model", self._model)
        answer = await self._inside(**changed)
        source = Source(getattr(model, "model", "") or self._name, getattr(model, "provider", ""))
        self._sources[source.envelope.id] = source
        async with pulling(source.events(answer, stream=call.head.stream)) as events:
            async for event in events:
                yield event

    async def pieces(self, next: Next, call: Call, codes: Mapping[CodeType, str]) -> AsyncGenerator[Any, None]:
        """First the `Opened`, then the pieces of the answer, the last of which is the whole. `codes`: whose code each policy's is.

        Raises:
            MiddlewareFault: the policies gave no answer, or one without an end.
        """
        tell = _teller(call)
        try:
            async with pulling(next(call)) as events:
                opened = await anext(events, None)
                if not isinstance(opened, Opened):
                    raise _no_answer(codes, "no answer", "an answer begins with Opened")
                retold = Retold(opened, self._sources.get(opened.envelope.id) if opened.envelope is not None else None)
                yield opened
                closed: Closed | None = None
                async for event in events:
                    piece = retold.add(event) if isinstance(event, Delta) else None
                    if piece is not None:
                        yield piece
                    if isinstance(event, Closed):
                        closed = event
            if closed is None:
                raise _no_answer(codes, "an answer without an end", "one that ends an answer yields a Closed")
        except Exception as error:
            blame(error, codes)
            raise
        finally:
            tell()
        yield retold.last(closed)

    def _changed(self, call: Call) -> dict[str, Any]:
        """What the policies changed of the model call."""
        changed: dict[str, Any] = {}
        fields = changed_fields(self._body, call.body)
        if "messages" in fields:
            changed["messages"] = messages_of(fields["messages"] or (), self._messages)
        if "tools" in fields:
            changed["tools"] = fields["tools"] or []
        if "tool_choice" in fields:
            changed["tool_choice"] = tool_choice_of(fields["tool_choice"])
        model = self._model if call.target is None else self._target(call.target)
        settings = {name: value for name, value in fields.items() if name not in NOT_SETTINGS}
        if settings:
            model = Adjusted(model, settings)
        if model is not self._model:
            changed["current_model"] = model
        return changed

    def _target(self, target: Target) -> ChatModelBase:
        found = self._targets.get(f"{target.provider}/{target.model}") or self._targets.get(target.model)
        if found is None:
            known = ", ".join(sorted(self._targets)) or "none"
            said = f"was sent to {target.provider}/{target.model} by a policy, and has no such target (it has {known})"
            raise MiddlewareFault("PolicyMiddleware", HOOK, said)
        return found


def _no_answer(codes: Mapping[CodeType, str], got: str, hint: str) -> MiddlewareFault:
    return MiddlewareFault("PolicyMiddleware", HOOK, f"got {got} from its policies ({', '.join(codes.values())}); {hint}")


class Adjusted(ChatModelBase):
    """A model under settings that a policy changed. None takes one away."""

    def __init__(self, model: Any, settings: Mapping[str, Any]) -> None:
        merged = {**getattr(model, "settings", {}), **settings}
        merged = {name: value for name, value in merged.items() if value is not None}
        name, stream = getattr(model, "model", ""), getattr(model, "stream", True)
        super().__init__(name, stream=stream, context_size=getattr(model, "context_size", None), settings=merged)
        self.adjusted = model
        self.provider = getattr(model, "provider", "")

    @property
    def takes_reply_labels(self) -> bool:
        return bool(getattr(self.adjusted, "takes_reply_labels", False))

    @property
    def is_counted(self) -> bool:
        return bool(getattr(self.adjusted, "is_counted", False))

    @property
    def address(self) -> str:
        return str(getattr(self.adjusted, "address", ""))

    async def __call__(self, messages: Any, tools: Tools | None = None, tool_choice: ToolChoice | None = None, **settings: Any) -> Answer:
        if isinstance(self.adjusted, ChatModelBase) and type(self.adjusted).__call__ is ChatModelBase.__call__:
            return await super().__call__(messages, tools, tool_choice, **settings)
        answer: Answer = await self.adjusted(messages, tools, tool_choice, **{**self.settings, **settings})
        return answer

    def pieces(
        self, messages: Sequence[Msg], tools: Tools, tool_choice: ToolChoice | None, settings: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponse]:
        given: AsyncIterator[ChatResponse] = self.adjusted.pieces(messages, tools, tool_choice, settings)
        return given

    def __getattr__(self, name: str) -> Any:
        if name == "adjusted":  # not there yet: a copy in the making
            raise AttributeError(name)
        return getattr(self.adjusted, name)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are part of a request's body: no header of the client's, which may be a secret."""
    return {name: value for name, value in settings.items() if name not in OF_THE_CLIENT}


def _teller(call: Call) -> Callable[[], None]:
    """Tells what the policies noted, as events of the span that is current now; nothing where nobody traces."""
    if "opentelemetry.trace" not in sys.modules:
        return _nothing
    from opentelemetry.trace import get_current_span

    span = get_current_span()

    def tell() -> None:
        if not len(call.notes) or not span.is_recording():
            return
        from ..exporters.traces.decisions import events_of

        for event in events_of(call.seen, time.time_ns()):
            span.add_event(event.name, dict(event.attributes), event.at)

    return tell


def _nothing() -> None:
    """Nobody listens."""
