"""The hooks: what a middleware may implement, how those of a stack are sorted, and the onions that they make.

Onion hooks get `(self, agent, input_kwargs, next_handler)`; `next_handler()` passes everything through, `next_handler(name=value)` changes
it. The first middleware of a list is the outermost. Of each middleware only the hooks that it implements are ever looked at again.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar

from .errors import MiddlewareFault

if TYPE_CHECKING:
    from .agent import Agent
    from .events import ReplyEndEvent
    from .models.response import ChatResponse
    from .tools.tool import ToolBase

NextEvents = Callable[..., AsyncGenerator[Any, None]]
NextCall = Callable[..., Awaitable[Any]]

_PACKAGE = __name__.rpartition(".")[0]

STREAMING = ("on_reply", "on_reasoning", "on_acting")
CALLING = ("on_model_call", "on_compress_context", "on_tool_calls", "on_check_permission", "on_tool_search")
HOOKS = (*STREAMING, *CALLING, "on_system_prompt")
AROUND: Mapping[str, tuple[str, str]] = {"on_reply": ("before_reply", "after_reply"), "on_reasoning": ("before_model", "after_model")}
SUGAR = tuple(name for names in AROUND.values() for name in names)
PARTS: Mapping[str, frozenset[str]] = {
    "model": frozenset({"on_reasoning", "on_model_call", "on_compress_context", "on_system_prompt"}),
    "tools": frozenset({"on_acting", "on_tool_calls", "on_check_permission", "on_tool_search"}),
}


class MiddlewareBase:
    """A middleware: implement the hooks you need. One instance may serve many agents and replies at once, so what belongs to a reply
    goes into `agent.state.of(self)`, never on the instance.

    `agent` is the reply's view of the agent (`ReplyView`); the samples' annotation is kept, for it has everything that they use.
    """

    key: str = ""
    """The name under which its state is kept. Default: its class's."""
    innermost: ClassVar[frozenset[str]] = frozenset()
    """Hooks in which it stands inside of all others, wherever it is in the list: next to the model, so that it sees each request."""

    def is_implemented(self, hook_name: str) -> bool:
        return implements(self, hook_name)

    def takes_part(self) -> bool:
        """Whether it has anything to do now; asked at the beginning of each reply. Where it hasn't, it costs that reply nothing."""
        return True

    async def get_middleware_key(self) -> str:
        return self.key or type(self).__name__

    def on_reply(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextEvents) -> AsyncIterator[Any]:
        """Around a whole reply: `inputs`, `structured_schema`. Yields events, and at the very end the reply's message."""
        raise NotImplementedError

    def on_reasoning(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextEvents) -> AsyncIterator[Any]:
        """Around one step of reasoning: `tool_choice`. Yields events."""
        raise NotImplementedError

    def on_acting(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextEvents) -> AsyncIterator[Any]:
        """Around the run of one tool: `tool_call`. Yields `ToolChunk`s and at last a `ToolResponse`; a tool's exception passes through."""
        raise NotImplementedError

    async def on_model_call(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextCall) -> Any:
        """Around one call of a model: `messages`, `tools`, `tool_choice`, `current_model`. Returns the answer, of which the first content
        has arrived when `await next_handler()` returns."""
        raise NotImplementedError

    async def on_compress_context(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextCall) -> None:
        """Around compression, before each step of reasoning: `context_config`, `instructions`."""
        raise NotImplementedError

    async def on_tool_calls(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextCall) -> Any:
        """Around the decision on all calls of one answer: `tool_calls`. Returns a `BatchPlan`, no looser than the inside's."""
        raise NotImplementedError

    async def on_check_permission(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextCall) -> Any:
        """Around the permission of one call: copies of `tool_call`, `tool`, `tool_input`. Returns a `PermissionDecision`."""
        raise NotImplementedError

    async def on_tool_search(self, agent: Agent, input_kwargs: dict[str, Any], next_handler: NextCall) -> Any:
        """Around a search for tools: `query`. Returns what was found."""
        raise NotImplementedError

    async def on_system_prompt(self, agent: Agent, current_prompt: str) -> str | None:
        """The system prompt, changed; each middleware gets what the one before it made. Runs more than once a round."""
        raise NotImplementedError

    async def before_reply(self, agent: Agent) -> Any:
        """Before a reply: returns None, or a dict that goes into `agent.state.of(self)`."""
        raise NotImplementedError

    async def before_model(self, agent: Agent) -> Any:
        """Before each step: returns None, such a dict, or a `Jump`."""
        raise NotImplementedError

    async def after_model(self, agent: Agent, response: ChatResponse | None) -> Any:
        """After each step and before its tools, the innermost first: returns None, such a dict, or a `Jump`."""
        raise NotImplementedError

    async def after_reply(self, agent: Agent, end: ReplyEndEvent) -> Any:
        """When the reply is about to end, the innermost first: returns None, such a dict, or `Jump.MODEL` to go on."""
        raise NotImplementedError

    async def list_tools(self) -> list[ToolBase]:
        """Tools that it offers. Nobody registers them by themselves: `collect_tools(middlewares)` gives them to a Toolkit."""
        return []


def implements(middleware: object, hook: str) -> bool:
    found = getattr(type(middleware), hook, None)
    return found is not None and found is not getattr(MiddlewareBase, hook, None)


class Hooks:
    """The hooks of one stack, sorted once. `stacks[hook]` holds `(middleware, bound method)`, the outermost first."""

    def __init__(self, middlewares: Any = None, global_middlewares: Iterable[Any] = ()) -> None:
        """
        Raises:
            TypeError: something in it is no middleware.
            ValueError: it is attached to a part that isn't there.
        """
        attached: list[tuple[Any, frozenset[str] | None]] = [(each, None) for each in global_middlewares]
        if isinstance(middlewares, Mapping):
            unknown = sorted(set(middlewares) - set(PARTS))
            if unknown:
                raise ValueError(f"Middlewares attach to {' or '.join(PARTS)}, not to {unknown[0]!r}.")
            attached += [(each, PARTS[part]) for part, listed in middlewares.items() for each in listed]
        else:
            attached += [(each, None) for each in (middlewares or ())]
        self.middlewares: tuple[Any, ...] = tuple(each for each, _ in attached)
        self.stacks: dict[str, tuple[tuple[Any, Callable[..., Any]], ...]] = {}
        for hook in HOOKS:
            kept = [each for each, only in attached if only is None or hook in only]
            kept.sort(key=lambda each: hook in getattr(each, "innermost", ()))
            self.stacks[hook] = tuple((each, layer) for each in kept for layer in _layers(each, hook))
        for each in self.middlewares:
            if isinstance(each, type) or not (isinstance(each, MiddlewareBase) or any(implements(each, hook) for hook in (*HOOKS, *SUGAR))):
                given = each.__name__ if isinstance(each, type) else type(each).__name__
                raise TypeError(f"{given} is no middleware: give an instance that implements one of {', '.join(HOOKS)}")
        self._asked = tuple(each for each in self.middlewares if implements(each, "takes_part"))
        self._rests: dict[int, Hooks] = {}
        self.keys = _keys(self.middlewares)
        self.codes = {
            code: f"{type(each).__name__}.{hook}"
            for hook, stack in self.stacks.items()
            for each, method in stack
            if (code := _code(method)) is not None
        }
        for each in self.middlewares:
            self.codes |= {
                code: f"{type(each).__name__}.{name}"
                for name in SUGAR
                if implements(each, name) and (code := _code(getattr(each, name))) is not None
            }

    def taking_part(self) -> Hooks:
        """The same stack without those who have nothing to do in the reply that begins."""
        left = self
        for each in self._asked:
            if not each.takes_part():
                known = left._rests.get(id(each))
                if known is None:
                    known = left._rests[id(each)] = left.without(each)
                left = known
        return left

    def without(self, middleware: object) -> Hooks:
        """The same stack without this one: what it asks of a model doesn't come back to it."""
        rest = Hooks.__new__(Hooks)
        rest.middlewares, rest.keys, rest.codes = self.middlewares, self.keys, self.codes
        rest._asked, rest._rests = self._asked, {}
        rest.stacks = {hook: tuple(pair for pair in stack if pair[0] is not middleware) for hook, stack in self.stacks.items()}
        return rest

    def blame(self, error: BaseException) -> None:
        """Add to an error that a middleware of this stack raised by itself a note that names it."""
        blame(error, self.codes)


def blame(error: BaseException, codes: Mapping[CodeType, str]) -> None:
    """Add to an error that one of these layers raised by itself a note that names it: not to one that passed through it only."""
    culprit, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code in codes:
            culprit = codes[code]
        elif str(trace.tb_frame.f_globals.get("__name__")).startswith(_PACKAGE):
            culprit = ""
        trace = trace.tb_next
    if culprit and not any(culprit in note for note in getattr(error, "__notes__", ())):
        error.add_note(f"raised in {culprit}")


def _layers(middleware: Any, hook: str) -> list[Callable[..., Any]]:
    """What this middleware puts around a hook: the hook itself, and inside it what its before and after mean."""
    layers = [getattr(middleware, hook)] if implements(middleware, hook) else []
    if hook in AROUND and any(implements(middleware, each) for each in AROUND[hook]):
        from .sugar import LAYERS

        layers.append(partial(LAYERS[hook], middleware))
    return layers


def _code(method: Callable[..., Any]) -> CodeType | None:
    return getattr(inspect.unwrap(getattr(method, "__func__", method)), "__code__", None)


def _keys(middlewares: Sequence[Any]) -> dict[int, str]:
    """A key for the state of each: the second of one class has a number."""
    keys: dict[int, str] = {}
    used: dict[str, int] = {}
    for each in middlewares:
        if id(each) not in keys:
            name = getattr(each, "key", "") or type(each).__name__
            used[name] = used.get(name, 0) + 1
            keys[id(each)] = name if used[name] == 1 else f"{name}#{used[name]}"
    return keys


def events_through(hooks: Hooks, hook: str, view: Any, given: dict[str, Any], core: NextEvents) -> AsyncGenerator[Any, None]:
    """The events of `core` through the layers of a streaming hook; without layers they are the core's own."""
    stack = hooks.stacks[hook]
    return _onion(stack, hook, view, given, core) if stack else core(**given)


async def _onion(
    stack: Sequence[tuple[Any, Callable[..., Any]]], hook: str, view: Any, given: dict[str, Any], core: NextEvents
) -> AsyncGenerator[Any, None]:
    # The layers are other people's and may forget to close what they leave early, so each is known here and closed, the innermost first.
    async with AsyncExitStack() as opened:

        def layer(number: int, given: dict[str, Any]) -> Any:
            if number == len(stack):
                events: Any = core(**given)
            else:
                middleware, method = stack[number]
                events = method(view, dict(given), _following(layer, number + 1, given, middleware, hook))
                if not isinstance(events, AsyncIterator):
                    if inspect.iscoroutine(events):
                        events.close()
                    said = f"gave {_a(events)}; it must be an async generator (yield events)"
                    raise MiddlewareFault(type(middleware).__name__, hook, said)
            if hasattr(events, "aclose"):
                opened.push_async_callback(events.aclose)
            return events

        async for event in layer(0, given):
            yield event


def _following(layer: Callable[..., Any], number: int, given: dict[str, Any], middleware: object, hook: str) -> NextEvents:
    def following(**changed: Any) -> Any:
        return layer(number, _with(given, changed, middleware, hook) if changed else given)

    return following


def _with(given: dict[str, Any], changed: dict[str, Any], middleware: object, hook: str) -> dict[str, Any]:
    unknown = changed.keys() - given.keys()
    if unknown:
        said = f"passed on {', '.join(sorted(unknown))}, which this hook hasn't; it has {', '.join(given)}"
        raise MiddlewareFault(type(middleware).__name__, hook, said)
    return {**given, **changed}


def _a(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


Check = Callable[[Any, Any], Any]


async def call_through(
    hooks: Hooks, hook: str, view: Any, given: dict[str, Any], core: NextCall, *, check: Check | None = None, wants: str = ""
) -> Any:
    """What `core` returns, through the layers of a calling hook. `check(returned, inner)` gives what a layer's word becomes, None if it is
    nothing that the hook can return."""
    stack = hooks.stacks[hook]
    if not stack:
        return await core(**given)

    async def layer(number: int, given: dict[str, Any]) -> Any:
        if number == len(stack):
            return await core(**given)
        middleware, method = stack[number]
        inner: list[Any] = []

        async def following(**changed: Any) -> Any:
            got = await layer(number + 1, _with(given, changed, middleware, hook) if changed else given)
            inner.append(got)
            return got

        returned = method(view, dict(given), following)
        if inspect.isawaitable(returned):
            returned = await returned
        if check is None:
            return returned
        kept = check(returned, inner[-1] if inner else None)
        if kept is None:
            raise MiddlewareFault(type(middleware).__name__, hook, f"returned {_a(returned)}; it must return {wants}")
        return kept

    return await layer(0, given)


async def prompt_through(hooks: Hooks, view: Any, prompt: str | None) -> str | None:
    """The system prompt after each transformer, left to right."""
    for middleware, method in hooks.stacks["on_system_prompt"]:
        changed = method(view, prompt)
        prompt = await changed if inspect.isawaitable(changed) else changed
        if prompt is not None and not isinstance(prompt, str):
            raise MiddlewareFault(type(middleware).__name__, "on_system_prompt", f"returned {_a(prompt)}; it must return a text or None")
    return prompt
