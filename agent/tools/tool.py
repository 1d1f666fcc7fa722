"""Tools: `ToolBase`, what every tool is; `@tool`, which makes one of a function; `use`, an onion around one of them.

A tool is run through `stream`, in an agent and outside of one, so that its own layers always stand around it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any, Self, overload

from .arguments import BadArguments, mistakes
from .chunks import ToolChunk, ToolResponse, as_chunk, joined
from .schema import INJECTED, arguments_model, described, schema_of
from .threads import in_thread, iterated_in_thread

NextTool = Callable[..., AsyncGenerator[ToolChunk, None]]


class ToolMiddlewareBase:
    """A layer around one tool: yields its pieces, or others. `next_handler(**changed)` runs the inside."""

    async def on_tool_call(self, tool: ToolBase, input_kwargs: dict[str, Any], next_handler: NextTool) -> AsyncGenerator[ToolChunk, None]:
        async with aclosing(next_handler(**input_kwargs)) as pieces:
            async for piece in pieces:
                yield piece


class ToolBase:
    """A tool. A subclass sets the fields and implements `call`."""

    name: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}
    is_concurrency_safe: bool = True
    """It may run beside others. Calls of tools that may not run one after another."""
    is_read_only: bool = False
    is_idempotent: bool = False
    """Running it twice does no more than running it once, so a retry is safe."""
    is_external_tool: bool = False
    is_state_injected: bool = False
    """Its `call` wants `_agent_state`, the state of the reply."""
    time_limit: float | None = None
    """Seconds it may take; then its result is an error."""
    result_limit: int | None = None
    """Characters of its result that go to the model. Default: the agent's `context_config.tool_result_limit`."""

    def __init__(self, middlewares: list[Any] | None = None) -> None:
        self._middlewares: list[Any] = list(middlewares or ())

    async def call(self, **kwargs: Any) -> Any:
        """Do it. May also be an async generator of pieces."""
        raise NotImplementedError(f"{type(self).__name__} implements call().")

    def use(self, *middlewares: Any) -> Self:
        """Put layers around this tool, the first outermost, inside those it has; gives the tool itself."""
        for middleware in middlewares:
            if not callable(getattr(middleware, "on_tool_call", None)):
                raise TypeError(f"{type(middleware).__name__} has no on_tool_call(tool, input_kwargs, next_handler)")
        self.__dict__.setdefault("_middlewares", []).extend(middlewares)
        return self

    def definition(self) -> dict[str, Any]:
        """What a model is told of it, as OpenAI writes it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.input_schema)}
        return {"type": "function", "function": function}

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as `call` takes them.

        Raises:
            BadArguments: they break the schema.
        """
        found = mistakes(arguments, self.input_schema)
        if found:
            raise BadArguments("; ".join(found[:5]))
        return arguments

    def stream(self, **kwargs: Any) -> AsyncGenerator[ToolChunk, None]:
        """Run it, layers and all; its pieces as they come."""
        layers = self.__dict__.get("_middlewares") or ()
        if not layers:
            return self._pieces(**kwargs)
        return self._layered(layers, kwargs)

    async def _layered(self, layers: Any, kwargs: dict[str, Any]) -> AsyncGenerator[ToolChunk, None]:
        async with AsyncExitStack() as opened:

            def layer(number: int, given: dict[str, Any]) -> AsyncGenerator[ToolChunk, None]:
                if number == len(layers):
                    events = self._pieces(**given)
                else:
                    events = layers[number].on_tool_call(self, dict(given), lambda **changed: layer(number + 1, {**given, **changed}))
                opened.push_async_callback(events.aclose)
                return events

            async for piece in layer(0, kwargs):
                yield as_chunk(piece)

    async def _pieces(self, **kwargs: Any) -> AsyncGenerator[ToolChunk, None]:
        made: Any = self.call(**kwargs)
        if inspect.isawaitable(made):
            made = await made
        if inspect.isgenerator(made):
            made = iterated_in_thread(made)
        if not isinstance(made, AsyncIterator):
            yield as_chunk(made)
            return
        try:
            async for piece in made:
                yield as_chunk(piece)
        finally:
            if hasattr(made, "aclose"):
                await made.aclose()

    async def __call__(self, **kwargs: Any) -> ToolResponse:
        """Run it and wait for the whole."""
        async with aclosing(self.stream(**self.checked(kwargs))) as pieces:
            return joined([piece async for piece in pieces])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class FunctionTool(ToolBase):
    """A function as a tool. A plain one runs in a thread, so that it holds nobody up; a generator's pieces are passed on as they come."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        schema: Mapping[str, Any] | None = None,
        is_concurrency_safe: bool = True,
        is_read_only: bool = False,
        is_idempotent: bool = False,
        time_limit: float | None = None,
        result_limit: int | None = None,
        middlewares: list[Any] | None = None,
    ) -> None:
        super().__init__(middlewares)
        said, notes = described(function.__doc__)
        self.function = function
        self.name = name or function.__name__
        self.description = said if description is None else description
        self._arguments = None if schema is not None else arguments_model(function, notes)
        self.input_schema = schema if schema is not None else schema_of(self._arguments)
        self.is_concurrency_safe, self.is_read_only, self.is_idempotent = is_concurrency_safe, is_read_only, is_idempotent
        self.time_limit, self.result_limit = time_limit, result_limit
        self.is_state_injected = any(each in inspect.signature(function).parameters for each in INJECTED)
        self._plain = not (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function))
        self._generator = inspect.isgeneratorfunction(function)
        self.__doc__ = function.__doc__

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._arguments is None:
            return super().checked(arguments)
        from pydantic import ValidationError

        try:
            read = self._arguments.model_validate(arguments)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            lines = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in found[:5]]
            raise BadArguments("; ".join(lines)) from None
        fields = type(read).model_fields
        extra = read.model_extra or {}
        return {fields[name].alias or name: getattr(read, name) for name in fields if name in read.model_fields_set} | extra

    def call(self, **kwargs: Any) -> Any:
        if self._plain and not self._generator:
            return in_thread(self.function, **kwargs)
        return self.function(**kwargs)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(**settings: Any) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(name=…, time_limit=5, is_read_only=True)`."""
    if function is not None:
        return FunctionTool(function)
    return lambda decorated: FunctionTool(decorated, **settings)
