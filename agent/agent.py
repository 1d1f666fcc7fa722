"""`Agent`: a name, a prompt, a model, tools and middlewares. It is built once, holds nothing of a reply, and serves many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from .hooks import Hooks
from .messages.blocks import new_id
from .messages.msg import Msg
from .models.base import ChatModelBase
from .settings import ContextConfig, ReActConfig
from .state import AgentState, Thread
from .stores.base import Store
from .stores.memory import MemoryStore
from .stream import ReplyStream
from .tools.tool import ToolBase
from .tools.toolkit import Toolkit
from .view import ReplyView


class Agent:
    """An agent.

        agent = Agent("assistant", "You are helpful.", OpenAIChatModel("gpt-5-mini"), Toolkit([get_weather]))
        answer = await agent("What's the weather in Rome?")

    Nothing is remembered from one reply to the next unless they are of one `thread`.
    """

    def __init__(
        self,
        name: str,
        system_prompt: str | None = None,
        model: ChatModelBase | None = None,
        toolkit: Toolkit | Iterable[ToolBase | Callable[..., Any]] | None = None,
        middlewares: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
        *,
        global_middlewares: Sequence[Any] = (),
        react_config: ReActConfig | None = None,
        context_config: ContextConfig | None = None,
        store: Store | None = None,
        thread: str | None = None,
        tenant: str = "default",
        deadline: float | None = None,
        description: str = "",
    ) -> None:
        """`middlewares`: the first is the outermost; or by part, `{"model": […], "tools": […]}`. `global_middlewares` stand around
        those. `thread`: the conversation that replies belong to where a call names none. `deadline`: seconds that a reply may take.

        Raises:
            TypeError, ValueError: something given is not what it must be.
        """
        if model is None:
            raise TypeError(f"The agent {name!r} needs a model.")
        if not tenant.strip():
            raise ValueError(f"The agent {name!r} needs a tenant, or none given: then it is 'default'.")
        self.name = name
        self.description = description
        self.system_prompt = system_prompt
        self.model = model
        self.toolkit = toolkit if isinstance(toolkit, Toolkit) else Toolkit(toolkit or ())
        self.hooks = Hooks(middlewares, global_middlewares)
        self.react_config = react_config or ReActConfig()
        self.context_config = context_config or ContextConfig()
        self.store: Store = MemoryStore() if store is None else store
        self.thread = thread
        self.tenant = tenant
        # Quoted, so that no tenant can be called what another's agents are kept under.
        self._namespace = f"{quote(tenant, safe='')}/threads/{name}"
        self.deadline = _seconds(deadline)
        self._running: WeakSet[ReplyStream] = WeakSet()

    @property
    def middlewares(self) -> tuple[Any, ...]:
        return self.hooks.middlewares

    async def __call__(
        self, inputs: Any = None, structured_schema: Any = None, *, thread: str | None = None, deadline: float | None = None
    ) -> Msg:
        """One reply to this text, message or messages. `structured_schema`: a pydantic model or a JSON Schema; the answer's
        `structured_output` then fits it.

        Raises:
            SpangateError: the model, a limit or a middleware said no.
            DeadlineExceeded: it took longer than it may.
        """
        return await self.stream(inputs, structured_schema, thread=thread, deadline=deadline).result()

    def stream(
        self, inputs: Any = None, structured_schema: Any = None, *, thread: str | None = None, deadline: float | None = None
    ) -> ReplyStream:
        """The same as events: `async for event in agent.stream("Hello")`.

        Raises:
            ValueError: the deadline is no time.
        """
        thread_id = thread or self.thread
        kept = Thread(self.store, self._namespace, thread_id) if thread_id else None
        state = AgentState(thread_id or new_id(), keys=self.hooks.keys)
        view = ReplyView(self, state, has_thread=kept is not None)
        seconds = self.deadline if deadline is None else _seconds(deadline)
        return ReplyStream(view, inputs, structured_schema, thread=kept, seconds=seconds, running=self._running)

    reply_stream = stream

    def interrupt(self, *, thread: str | None = None, reply_id: str | None = None) -> int:
        """End the replies that run, all or those of one thread or id; gives how many."""
        meant = [
            each
            for each in self._running
            if (thread is None or each.thread_id == thread) and (reply_id is None or each.reply_id == reply_id)
        ]
        for each in meant:
            each.interrupt()
        return len(meant)

    async def history(self, thread: str) -> list[Msg]:
        """What was said in a thread."""
        state = AgentState(thread)
        await Thread(self.store, self._namespace, thread).begin(state)
        return state.context

    async def forget(self, thread: str) -> bool:
        """Forget a thread; whether there was one."""
        return await self.store.delete(self._namespace, thread)

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, {self.model!r})"


def _seconds(deadline: float | None) -> float | None:
    if deadline is not None and not deadline > 0:
        raise ValueError(f"deadline must be more than 0 seconds, not {deadline!r}")
    return deadline
