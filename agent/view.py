"""What a hook is given as `agent`: the agent as one reply sees it.

Name, model, toolkit and limits are this reply's own and may be changed for it; the state is this reply's; nothing reaches another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..call.call import Purpose
from .messages.blocks import DataBlock, HintBlock, TextBlock
from .messages.msg import ChatUsage, Msg
from .settings import ContextConfig, Jump, ReActConfig, ToolChoice, copied
from .state import AgentState
from .steps import Attempt, PendingStep, Step, total
from .tools.tool import ToolBase

if TYPE_CHECKING:
    from .agent import Agent
    from .events import AgentEvent
    from .models.base import ChatModelBase
    from .models.response import Answer, ChatResponse


class ReplyView:
    """One reply's agent. `purpose` is `main`, or what a call is for that the agent makes for itself."""

    purpose: Purpose = "main"

    def __init__(self, agent: Agent, state: AgentState, *, has_thread: bool) -> None:
        """`agent` as it is when the reply begins: what is changed of it later concerns the next one."""
        self.name = agent.name
        self.description = agent.description
        self.tenant = agent.tenant
        """Whose conversations these are; namespaces of the store begin with it."""
        self.system_prompt = agent.system_prompt
        self.model = agent.model
        self.toolkit = agent.toolkit
        self.hooks = agent.hooks.taking_part()
        self.state = state
        self.has_thread = has_thread
        """The caller named the thread; else its id is made up and stands for this reply alone."""
        self.store = agent.store
        self.react_config: ReActConfig = copied(agent.react_config)
        self.context_config: ContextConfig = copied(agent.context_config)
        self.deadline: float | None = None
        """On the loop's clock; None: as long as it takes."""
        self.interrupt: Callable[[], None] = _nothing
        """End the reply as soon as it can be: open calls get a result that says so."""
        self.answer: ChatResponse | None = None
        """What the model answered last."""
        self.jump: Jump | None = None
        """Where the loop goes on after this step of reasoning, instead of where it would."""
        self.steps: list[Step] = []
        self.attempts: list[Attempt] = []
        """Every request to a model in this reply, internal ones and failed ones too."""
        self.labels: dict[str, Any] = {}
        """What layers want told on the spans of this reply's model calls, by the names of telemetry."""
        self.extra_tools: dict[str, ToolBase] = {}
        """Tools of this reply alone, offered beside the toolkit's."""
        self.pending_events: list[AgentEvent] = []
        self.open_streams: list[Answer] = []
        """Answers that were begun; the reply closes those that a layer left."""

    @property
    def reply_id(self) -> str:
        return self.state.reply_id

    @property
    def thread_id(self) -> str:
        return self.state.session_id

    @property
    def middlewares(self) -> tuple[Any, ...]:
        return self.hooks.middlewares

    @property
    def step(self) -> PendingStep:
        """The step that is about to begin, or is being made."""
        is_final = self.state.cur_iter >= self.react_config.max_iters
        return PendingStep(len(self.steps), is_final, total(self.steps), tuple(self.steps))

    @property
    def usage(self) -> ChatUsage:
        """Of the completed steps."""
        return total(self.steps)

    def find_tool(self, name: str) -> ToolBase | None:
        return self.extra_tools.get(name) or self.toolkit.get(name)

    def tool_definitions(self) -> list[dict[str, Any]]:
        """What a model is told of the tools of this reply."""
        return [*self.toolkit.definitions(), *(tool.definition() for tool in self.extra_tools.values())]

    def hint(self, hint: str | list[TextBlock | DataBlock], *, source: str | None = None) -> HintBlock:
        """Put a word to the model into the context; its event goes out with the next one."""
        from .events import HintBlockEvent

        block = HintBlock(hint, source)
        self.state.append_context(self.name, [block])
        self.emit(HintBlockEvent.of(block, self.reply_id))
        return block

    def emit(self, event: AgentEvent) -> None:
        """Let an event go out with the next one: for hooks that yield none."""
        self.pending_events.append(event)

    async def ask(
        self,
        messages: str | Msg | Sequence[Msg],
        *,
        purpose: Purpose,
        by: object = None,
        model: ChatModelBase | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: ToolChoice | None = None,
    ) -> ChatResponse:
        """Ask a model for the agent's own ends. It passes the `on_model_call` layers of the stack, but for `by`, the middleware that
        asks; nobody outside sees its events; its usage is recorded under its purpose."""
        from .messages.msg import as_messages
        from .reasoning import ask_model

        asking = copy.copy(self)
        asking.purpose = purpose
        asking.hooks = self.hooks.without(by) if by is not None else self.hooks
        asking.open_streams = []
        try:
            answer = await ask_model(asking, as_messages(messages), list(tools), tool_choice, model or self.model)
            return await answer.response()
        finally:
            for stream in asking.open_streams:
                await stream.aclose()

    async def ask_structured(
        self,
        messages: str | Msg | Sequence[Msg],
        schema: Any,
        *,
        purpose: Purpose,
        by: object = None,
        model: ChatModelBase | None = None,
    ) -> dict[str, Any]:
        """The same for an answer in a form: `schema` is a pydantic model or a JSON Schema.

        Raises:
            BadArguments: the answer doesn't fit it.
        """
        from .structured import STRUCTURED, output_of, structured_tool

        form = structured_tool(schema)
        tools, choice = [form.definition()], ToolChoice(STRUCTURED)
        answer = await self.ask(messages, purpose=purpose, by=by, model=model, tools=tools, tool_choice=choice)
        return output_of(answer, form)

    def __repr__(self) -> str:
        return f"ReplyView({self.name!r}, reply={self.reply_id[:8]})"


def _nothing() -> None:
    """An interrupt before the reply has begun."""
