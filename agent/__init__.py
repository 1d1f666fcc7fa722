"""The agent SDK: every public name, each loaded when it is first used, so that importing the package costs next to nothing.

A name stands twice: in the imports, for type checkers, and in `_HOME`, which tells where it is loaded from; a test compares them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent as Agent
    from .asking import Asking as Asking
    from .bridge import PolicyMiddleware as PolicyMiddleware
    from .decisions import BatchPlan as BatchPlan
    from .decisions import PermissionBehavior as PermissionBehavior
    from .decisions import PermissionDecision as PermissionDecision
    from .decisions import Planned as Planned
    from .errors import Conflict as Conflict
    from .errors import DeadlineExceeded as DeadlineExceeded
    from .errors import InvalidInput as InvalidInput
    from .errors import LimitReached as LimitReached
    from .errors import MiddlewareFault as MiddlewareFault
    from .errors import NoAnswer as NoAnswer
    from .errors import NoProgress as NoProgress
    from .errors import NotJSON as NotJSON
    from .events import AgentEvent as AgentEvent
    from .events import ConfirmResult as ConfirmResult
    from .events import CustomEvent as CustomEvent
    from .events import DataBlockDeltaEvent as DataBlockDeltaEvent
    from .events import DataBlockEndEvent as DataBlockEndEvent
    from .events import DataBlockStartEvent as DataBlockStartEvent
    from .events import ExternalExecutionResultEvent as ExternalExecutionResultEvent
    from .events import HintBlockEvent as HintBlockEvent
    from .events import ModelCallEndEvent as ModelCallEndEvent
    from .events import ModelCallStartEvent as ModelCallStartEvent
    from .events import ReplyEndEvent as ReplyEndEvent
    from .events import ReplyStartEvent as ReplyStartEvent
    from .events import RequireExternalExecutionEvent as RequireExternalExecutionEvent
    from .events import RequireUserConfirmEvent as RequireUserConfirmEvent
    from .events import TextBlockDeltaEvent as TextBlockDeltaEvent
    from .events import TextBlockEndEvent as TextBlockEndEvent
    from .events import TextBlockStartEvent as TextBlockStartEvent
    from .events import ThinkingBlockDeltaEvent as ThinkingBlockDeltaEvent
    from .events import ThinkingBlockEndEvent as ThinkingBlockEndEvent
    from .events import ThinkingBlockStartEvent as ThinkingBlockStartEvent
    from .events import ToolCallDeltaEvent as ToolCallDeltaEvent
    from .events import ToolCallEndEvent as ToolCallEndEvent
    from .events import ToolCallStartEvent as ToolCallStartEvent
    from .events import ToolResultDataDeltaEvent as ToolResultDataDeltaEvent
    from .events import ToolResultEndEvent as ToolResultEndEvent
    from .events import ToolResultStartEvent as ToolResultStartEvent
    from .events import ToolResultTextDeltaEvent as ToolResultTextDeltaEvent
    from .events import UserConfirmResultEvent as UserConfirmResultEvent
    from .events import UserInterruptEvent as UserInterruptEvent
    from .hooks import MiddlewareBase as MiddlewareBase
    from .messages.blocks import Base64Source as Base64Source
    from .messages.blocks import Block as Block
    from .messages.blocks import DataBlock as DataBlock
    from .messages.blocks import ForeignBlock as ForeignBlock
    from .messages.blocks import HintBlock as HintBlock
    from .messages.blocks import TextBlock as TextBlock
    from .messages.blocks import ThinkingBlock as ThinkingBlock
    from .messages.blocks import ToolCallBlock as ToolCallBlock
    from .messages.blocks import ToolCallState as ToolCallState
    from .messages.blocks import ToolResultBlock as ToolResultBlock
    from .messages.blocks import ToolResultState as ToolResultState
    from .messages.blocks import URLSource as URLSource
    from .messages.msg import AssistantMsg as AssistantMsg
    from .messages.msg import ChatUsage as ChatUsage
    from .messages.msg import Msg as Msg
    from .messages.msg import SystemMsg as SystemMsg
    from .messages.msg import UserMsg as UserMsg
    from .middlewares.continue_once import ContinueOnceMiddleware as ContinueOnceMiddleware
    from .middlewares.dynamic_system_prompt import DynamicSystemPromptMiddleware as DynamicSystemPromptMiddleware
    from .middlewares.model_fallback import ModelFallbackMiddleware as ModelFallbackMiddleware
    from .middlewares.model_router import ChatModelCandidate as ChatModelCandidate
    from .middlewares.model_router import ModelRouterMiddleware as ModelRouterMiddleware
    from .middlewares.rate_limit import RateLimitExceeded as RateLimitExceeded
    from .middlewares.rate_limit import RateLimitMiddleware as RateLimitMiddleware
    from .middlewares.reply_budget_control import ReplyBudgetControlMiddleware as ReplyBudgetControlMiddleware
    from .middlewares.stop import StepResult as StepResult
    from .middlewares.stop import Stop as Stop
    from .middlewares.timing import Timed as Timed
    from .middlewares.timing import TimingMiddleware as TimingMiddleware
    from .middlewares.tracing import TracingMiddleware as TracingMiddleware
    from .models.anthropic import AnthropicChatModel as AnthropicChatModel
    from .models.base import ChatModelBase as ChatModelBase
    from .models.classifier import BM25Classifier as BM25Classifier
    from .models.classifier import ClassifierModelBase as ClassifierModelBase
    from .models.classifier import SingleChoice as SingleChoice
    from .models.gateway import GatewayModel as GatewayModel
    from .models.openai import OpenAIChatModel as OpenAIChatModel
    from .models.response import ChatResponse as ChatResponse
    from .models.response import ModelStream as ModelStream
    from .models.scripted import ScriptedModel as ScriptedModel
    from .models.scripted import calls as calls
    from .settings import ContextConfig as ContextConfig
    from .settings import ErrorInfo as ErrorInfo
    from .settings import FinishedReason as FinishedReason
    from .settings import Jump as Jump
    from .settings import ReActConfig as ReActConfig
    from .settings import ReplyFinishedReason as ReplyFinishedReason
    from .settings import ToolChoice as ToolChoice
    from .state import AgentState as AgentState
    from .steps import PendingStep as PendingStep
    from .steps import Step as Step
    from .stores.base import Store as Store
    from .stores.file import FileStore as FileStore
    from .stores.memory import MemoryStore as MemoryStore
    from .stores.sqlite import SQLiteStore as SQLiteStore
    from .stream import ReplyStream as ReplyStream
    from .tools.chunks import ToolChunk as ToolChunk
    from .tools.chunks import ToolResponse as ToolResponse
    from .tools.tool import FunctionTool as FunctionTool
    from .tools.tool import ToolBase as ToolBase
    from .tools.tool import ToolMiddlewareBase as ToolMiddlewareBase
    from .tools.tool import tool as tool
    from .tools.toolkit import Toolkit as Toolkit
    from .tools.toolkit import collect_tools as collect_tools
    from .view import ReplyView as ReplyView

_HOME = {
    "agent": ("Agent",),
    "asking": ("Asking",),
    "bridge": ("PolicyMiddleware",),
    "decisions": (
        "BatchPlan",
        "PermissionBehavior",
        "PermissionDecision",
        "Planned",
    ),
    "errors": (
        "Conflict",
        "DeadlineExceeded",
        "InvalidInput",
        "LimitReached",
        "MiddlewareFault",
        "NoAnswer",
        "NoProgress",
        "NotJSON",
    ),
    "events": (
        "AgentEvent",
        "ConfirmResult",
        "CustomEvent",
        "DataBlockDeltaEvent",
        "DataBlockEndEvent",
        "DataBlockStartEvent",
        "ExternalExecutionResultEvent",
        "HintBlockEvent",
        "ModelCallEndEvent",
        "ModelCallStartEvent",
        "ReplyEndEvent",
        "ReplyStartEvent",
        "RequireExternalExecutionEvent",
        "RequireUserConfirmEvent",
        "TextBlockDeltaEvent",
        "TextBlockEndEvent",
        "TextBlockStartEvent",
        "ThinkingBlockDeltaEvent",
        "ThinkingBlockEndEvent",
        "ThinkingBlockStartEvent",
        "ToolCallDeltaEvent",
        "ToolCallEndEvent",
        "ToolCallStartEvent",
        "ToolResultDataDeltaEvent",
        "ToolResultEndEvent",
        "ToolResultStartEvent",
        "ToolResultTextDeltaEvent",
        "UserConfirmResultEvent",
        "UserInterruptEvent",
    ),
    "hooks": ("MiddlewareBase",),
    "messages.blocks": (
        "Base64Source",
        "Block",
        "DataBlock",
        "ForeignBlock",
        "HintBlock",
        "TextBlock",
        "ThinkingBlock",
        "ToolCallBlock",
        "ToolCallState",
        "ToolResultBlock",
        "ToolResultState",
        "URLSource",
    ),
    "messages.msg": (
        "AssistantMsg",
        "ChatUsage",
        "Msg",
        "SystemMsg",
        "UserMsg",
    ),
    "middlewares.continue_once": ("ContinueOnceMiddleware",),
    "middlewares.dynamic_system_prompt": ("DynamicSystemPromptMiddleware",),
    "middlewares.model_fallback": ("ModelFallbackMiddleware",),
    "middlewares.model_router": (
        "ChatModelCandidate",
        "ModelRouterMiddleware",
    ),
    "middlewares.rate_limit": (
        "RateLimitExceeded",
        "RateLimitMiddleware",
    ),
    "middlewares.reply_budget_control": ("ReplyBudgetControlMiddleware",),
    "middlewares.stop": (
        "StepResult",
        "Stop",
    ),
    "middlewares.timing": (
        "Timed",
        "TimingMiddleware",
    ),
    "middlewares.tracing": ("TracingMiddleware",),
    "models.anthropic": ("AnthropicChatModel",),
    "models.base": ("ChatModelBase",),
    "models.classifier": (
        "BM25Classifier",
        "ClassifierModelBase",
        "SingleChoice",
    ),
    "models.gateway": ("GatewayModel",),
    "models.openai": ("OpenAIChatModel",),
    "models.response": (
        "ChatResponse",
        "ModelStream",
    ),
    "models.scripted": (
        "ScriptedModel",
        "calls",
    ),
    "settings": (
        "ContextConfig",
        "ErrorInfo",
        "FinishedReason",
        "Jump",
        "ReActConfig",
        "ReplyFinishedReason",
        "ToolChoice",
    ),
    "state": ("AgentState",),
    "steps": (
        "PendingStep",
        "Step",
    ),
    "stores.base": ("Store",),
    "stores.file": ("FileStore",),
    "stores.memory": ("MemoryStore",),
    "stores.sqlite": ("SQLiteStore",),
    "stream": ("ReplyStream",),
    "tools.chunks": (
        "ToolChunk",
        "ToolResponse",
    ),
    "tools.tool": (
        "FunctionTool",
        "ToolBase",
        "ToolMiddlewareBase",
        "tool",
    ),
    "tools.toolkit": (
        "Toolkit",
        "collect_tools",
    ),
    "view": ("ReplyView",),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_WHERE)  # noqa: PLE0605 - made of the table above


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
