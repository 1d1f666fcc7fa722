"""The tools of an agent, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from .tool import FunctionTool, ToolBase

_LONGEST_NAME = 100


class Toolkit:
    """Tools, by name. Plain functions are made tools.

    A toolkit is not changed by a reply: what a middleware adds for one reply, it adds to `agent.extra_tools`.
    """

    def __init__(self, tools: Iterable[ToolBase | Callable[..., Any]] = (), *, middlewares: Sequence[Any] = ()) -> None:
        """`middlewares`: their `list_tools` are asked for more before the first reply.

        Raises:
            ValueError: two tools have one name.
        """
        self._tools: dict[str, ToolBase] = {}
        for each in tools:
            self.add(each)
        self._sources = tuple(middlewares)

    async def ready(self) -> None:
        """Have the tools that its middlewares offer."""
        if self._sources:
            found = await collect_tools(self._sources)
            if self._sources:  # another reply may have been quicker meanwhile
                for each in found:
                    self.add(each)
                self._sources = ()

    def add(self, tool: ToolBase | Callable[..., Any]) -> ToolBase:
        """One tool more.

        Raises:
            TypeError: it is no tool.
            ValueError: there is one of this name.
        """
        if isinstance(tool, type) or not (isinstance(tool, ToolBase) or callable(tool)):
            raise TypeError(f"{tool!r:.80} is no tool: give a function, or an instance of ToolBase.")
        made = tool if isinstance(tool, ToolBase) else FunctionTool(tool)
        if not made.name:
            raise ValueError(f"{type(made).__name__} has no name; set `name`.")
        if made.name in self._tools:
            raise ValueError(f"There are two tools called {made.name!r}; give one of them another name.")
        self._tools[made.name] = made
        return made

    def get(self, name: str) -> ToolBase | None:
        return self._tools.get(name)

    def definitions(self) -> list[dict[str, Any]]:
        """What a model is told of them."""
        return [tool.definition() for tool in self._tools.values()]

    def unknown(self, name: str) -> str:
        """What a model is told when it calls a tool that isn't there."""
        shown = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
        near = get_close_matches(shown, self._tools, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return f"There is no tool called {shown!r}.{hint} There are: {', '.join(self._tools) or 'none'}."

    def __iter__(self) -> Iterator[ToolBase]:
        return iter(self._tools.values())

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)


async def collect_tools(middlewares: Sequence[Any]) -> list[ToolBase]:
    """The tools that these middlewares offer (`list_tools`), in order."""
    return [tool for middleware in middlewares for tool in await middleware.list_tools()]
