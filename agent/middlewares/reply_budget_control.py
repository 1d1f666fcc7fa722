"""`ReplyBudgetControlMiddleware`: how many tokens one reply may cost before its model is told to come to an end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

from msgspec.structs import replace

from ..errors import LimitReached
from ..hooks import MiddlewareBase
from ..messages.msg import ChatUsage
from ..models.response import ChatResponse
from ..settings import ToolChoice
from ..structured import STRUCTURED
from .given import number
from .portable import estimated_tokens, tokens_in
from .watched import watched

HINT = (
    "The token budget of this reply is used up. Give your final answer now, from what you know already, and say what is left undone. "
    "Call no tool."
)
STRUCTURED_HINT = (
    f"The token budget of this reply is used up. Call {STRUCTURED} now, with the best answer that you can give from what you know already. "
    "Call no other tool."
)
_HARD = 2  # times the budget


class ReplyBudgetControlMiddleware(MiddlewareBase):
    """Counts what a reply's model calls cost, `input_token_weight · input + output_token_weight · output`. From `token_budget` on the
    model gets one hint and no tool, save the one that gives a structured output which is still owed.

    The call that runs is never cut, and the last answer costs too: a budget is no hard limit. With `hard` a step that would begin at
    twice the budget is refused (`LimitReached`). `cache_read_weight` and `cache_creation_weight` weigh those parts of the input
    (default: as input). Calls that the agent makes for itself count, unless `count_internal` is false. Where a model tells no usage it
    is estimated.
    """

    innermost: ClassVar[frozenset[str]] = frozenset({"on_model_call"})

    def __init__(
        self,
        token_budget: float,
        input_token_weight: float = 1.0,
        output_token_weight: float = 1.0,
        hint_message: str = HINT,
        *,
        cache_read_weight: float | None = None,
        cache_creation_weight: float | None = None,
        structured_hint_message: str = STRUCTURED_HINT,
        count_internal: bool = True,
        hard: bool = False,
    ) -> None:
        """
        Raises:
            ValueError: a number is none, or too small.
        """
        self._budget = number("token_budget", token_budget, above=True)
        self._input = number("input_token_weight", input_token_weight)
        self._output = number("output_token_weight", output_token_weight)
        self._cache_read = self._input if cache_read_weight is None else number("cache_read_weight", cache_read_weight)
        self._cache_creation = self._input if cache_creation_weight is None else number("cache_creation_weight", cache_creation_weight)
        self._hints = (hint_message, structured_hint_message)
        self._count_internal = count_internal
        self._hard = hard

    def on_reasoning(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> AsyncIterator[Any]:
        kept = agent.state.of(self)
        used = kept.get("used", 0.0)
        if used < self._budget:
            events: AsyncIterator[Any] = next_handler()
            return events
        if self._hard and used >= _HARD * self._budget:
            raise LimitReached(f"This reply has used {used:g} tokens, {_HARD} times its budget of {self._budget:g}. Ask for less at once.")
        owes = _owes(agent)
        if not kept.get("hinted"):
            kept["hinted"] = True
            agent.hint(self._hints[owes], source="reply_budget_control")
        # A forced choice stays one; where none was forced, the model may still think first.
        ended: AsyncIterator[Any] = next_handler() if owes else next_handler(tool_choice=ToolChoice("none"))
        return ended

    async def on_model_call(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        kept, main = agent.state.of(self), agent.purpose == "main"
        changed: dict[str, Any] = {}
        if main and kept.get("hinted") and _owes(agent):
            changed["tools"] = [tool for tool in input_kwargs["tools"] if tool.get("function", {}).get("name") == STRUCTURED]
        if not main and not self._count_internal:
            return await next_handler()
        return await watched(agent, next_handler, _Count(self, kept, input_kwargs), **changed)

    def cost(self, usage: ChatUsage) -> float:
        """What this usage weighs."""
        plain = max(0, usage.input_tokens - usage.cache_input_tokens - usage.cache_creation_input_tokens)
        read = self._cache_read * usage.cache_input_tokens
        created = self._cache_creation * usage.cache_creation_input_tokens
        return self._input * plain + read + created + self._output * usage.output_tokens


def _owes(agent: Any) -> bool:
    return agent.state.structured_schema is not None and agent.state.structured_output is None


class _Count:
    def __init__(self, budget: ReplyBudgetControlMiddleware, kept: dict[str, Any], asked: dict[str, Any]) -> None:
        self._budget, self._kept, self._asked = budget, kept, asked
        self._usage: ChatUsage | None = None
        self._said = 0

    def piece(self, piece: ChatResponse) -> None:
        self._usage = piece.usage or self._usage
        if not piece.is_last or not self._said:
            self._said += len(piece.text) + sum(len(call.input) for call in piece.tool_calls)

    async def ended(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        usage = self._usage
        if (whole is not None and whole.stop) or (usage is None and whole is None and not self._said):
            return  # nobody has answered anything
        if usage is None or usage.source == "none" or usage.unknown:
            usage = self._estimated(usage)
            self._kept["usage_estimated"] = True
        self._kept["used"] = self._kept.get("used", 0.0) + self._budget.cost(usage)

    def _estimated(self, usage: ChatUsage | None) -> ChatUsage:
        """What nobody told, in place of it."""
        if usage is not None and usage.unknown == "output":
            return replace(usage, output_tokens=tokens_in(self._said), source="estimated", unknown="")
        asked = estimated_tokens(self._asked["messages"], self._asked["tools"])
        if usage is not None and usage.unknown == "input":
            return replace(usage, input_tokens=asked, source="estimated", unknown="")
        return ChatUsage(asked, tokens_in(self._said), source="estimated")
