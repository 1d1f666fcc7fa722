"""What OpenAI's answer objects say, read with distrust: finish reasons, content, errors (usage: call/usage.py). Pure.

Providers differ and lie; whatever has the wrong type is as good as absent, and nothing here raises on what a provider sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..call.errors import ProviderFault, UpstreamError
from .errors import PASSED_ON

_TAG = re.compile(r"<[^>]{0,500}>")
# Line and paragraph separators, C1 controls and lone surrogates end a line or an encoder as surely as LF does.
_SPACE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
MAX_MESSAGE = 500
_ACCOUNT = frozenset({401, 402, 403})  # statuses about the gateway's own account


def finish_of(choice: Mapping[str, Any]) -> str | None:
    """The finish_reason; an empty one is none."""
    finish = choice.get("finish_reason")
    return finish if isinstance(finish, str) and finish else None


def has_content(choice: Mapping[str, Any]) -> bool:
    """Text, reasoning, a tool call, a refusal, audio or an image, or the end: anything but a role-only or empty delta."""
    if finish_of(choice) or choice.get("text"):
        return True
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(part for name, part in delta.items() if name != "role")


def error_in(answer: Mapping[str, Any]) -> Any:
    """The error that an answer or a chunk carries: under `error`, or the whole of it (as vLLM sends it)."""
    return answer.get("error") or (answer if answer.get("object") == "error" else None)


def provider_error(value: Any, status: int | None = None, headers: Mapping[str, str] | None = None) -> UpstreamError:
    """An UpstreamError from what stands under `error`: an object in OpenAI's shape, a string, anything.

    The caller reads the provider's words where they concern its own request (and of errors inside a 200, which have no status);
    of any other failure, whose words may hold anything, it reads ours.
    """
    fields = value if isinstance(value, dict) else {"message": value}
    code = fields.get("code")
    words = safe_text(fields.get("message"))
    told = status is None or status == 429 or status in PASSED_ON
    return UpstreamError(
        (words if told else "") or _worded(status),
        detail="" if told else words,
        status=status,
        kind=_word(fields.get("type")),
        own_code=code if isinstance(code, int) and not isinstance(code, bool) else _word(code),
        param=_word(fields.get("param")),
        headers=headers,
        retryable=status is None or status in (408, 409, 429) or status >= 500,
    )


def keep_secret(fault: ProviderFault, secret: str) -> None:
    """Take a key of ours out of what the provider says: some quote it."""
    if not secret:
        return
    fault.message, fault.detail = _without(fault.message, secret), _without(fault.detail, secret)
    fault.param = fault.param and _without(fault.param, secret)
    fault.headers = {name: _without(value, secret) for name, value in fault.headers.items()}
    if isinstance(fault, UpstreamError):
        fault.kind = fault.kind and _without(fault.kind, secret)
        fault.own_code = _without(fault.own_code, secret) if isinstance(fault.own_code, str) else fault.own_code


def _without(text: str, secret: str) -> str:
    text = text.replace(secret, "***")
    begun = next((n for n in range(len(secret) - 1, 7, -1) if text.removesuffix("…").endswith(secret[:n])), 0)  # left by a cut
    return text.removesuffix("…")[:-begun] + "***" if begun else text


def _worded(status: int | None) -> str:
    if status in _ACCOUNT:
        return f"The provider refused the gateway's own key (status {status})."
    return "The provider reported an error." if status is None else f"The provider answered with status {status}."


def _word(value: Any) -> str | None:
    return safe_text(value)[:200] or None


def safe_text(value: Any) -> str:
    """A provider's words as one line of at most 500 characters, without markup or control characters."""
    if not isinstance(value, str):
        return ""
    # White space first, so that none can stretch a tag beyond its pattern.
    text = _SPACE.sub(" ", _TAG.sub(" ", _SPACE.sub(" ", value[: 20 * MAX_MESSAGE]))).strip()
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"
