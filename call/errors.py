"""Every way a call can fail, as one tree that says who erred.

    SpangateError
    ├── Refused                 we said no: a key, a limit, a budget, a drain
    ├── CallerFault             the caller sent what nobody can use
    ├── ProviderFault           the provider failed us
    │   ├── UpstreamUnreachable   no connection: nothing was sent
    │   ├── UpstreamTimeout       it took too long
    │   ├── UpstreamIncomplete    it stopped before the end of its answer
    │   └── UpstreamError         it answered, and not with an answer
    └── OurFault                a defect or a lost resource of ours

Policies and providers raise; `proxy/errors.py` alone turns an error into HTTP. `message` is what a caller may read:
one line that says what to do, without a secret, a path of ours or a piece of a prompt. `code` is one of product's codes and
decides the status. `detail` is for the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Literal

Source = Literal["gateway", "policy", "provider"]


class SpangateError(Exception):
    """What every failure carries.

    `code` is a word of the error table, `param` the field that erred, `headers` go out with the answer (lower-case names),
    `facts` is merged into the error object (such as `{"limit": {…}}`), `source` says whose word it is.
    """

    code = "internal_error"
    source: Source = "gateway"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.param = param
        self.headers = dict(headers or {})
        self.facts = dict(facts or {})
        self.detail = detail


class Refused(SpangateError):
    """A rule of ours said no."""

    code = "invalid_api_key"


class CallerFault(SpangateError):
    """The request can't be used as it is; the message names the field."""

    code = "invalid_request"


class OurFault(SpangateError):
    """A defect of ours: the caller reads that and nothing more, the log reads `detail`."""


class ProviderFault(SpangateError):
    """The provider failed. `retryable`: another try, here or elsewhere, may go well."""

    code = "upstream_error"
    source: Source = "provider"
    retryable = True


class UpstreamUnreachable(ProviderFault):
    """No connection could be made; the provider has seen nothing of the call."""

    code = "upstream_unreachable"


class UpstreamTimeout(ProviderFault):
    """The provider took longer than a time limit allows; `limit` names it: connect, first, silence or total."""

    code = "upstream_timeout"

    def __init__(self, message: str, *, limit: str, detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.limit = limit


class UpstreamIncomplete(ProviderFault):
    """The answer stopped before its end: a reset, a short body, a stream without a finish_reason."""

    code = "upstream_incomplete"


class UpstreamError(ProviderFault):
    """The provider answered with an error, or with something that is no answer.

    `status` is its HTTP status (None: an error inside a stream or a 200). `kind` is its own `type` and `own_code` its own
    `code`, kept for callers whose clients switch on them.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        kind: str | None = None,
        own_code: str | int | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        retryable: bool = True,
        detail: str = "",
    ) -> None:
        super().__init__(message, param=param, headers=headers, detail=detail)
        self.status = status
        self.kind = kind
        self.own_code = own_code
        self.retryable = retryable


def may_have_worked(fault: ProviderFault) -> bool:
    """Whether a provider that failed so may have used tokens: not if it was never asked, or answered with an error."""
    if isinstance(fault, UpstreamUnreachable):
        return False
    if isinstance(fault, UpstreamTimeout):
        return fault.limit != "connect"
    return not isinstance(fault, UpstreamError)


def shortened(name: str) -> str:
    """A name that somebody else chose, as words about it have room for it."""
    return name if len(name) <= 64 else f"{name[:61]}..."


def model_not_found(asked: str, allowed: Iterable[str], *, call: bool = False) -> Refused:
    """One answer for a model that doesn't exist and one that this caller may not use, so that neither can be told apart. `call`: the
    caller may use it otherwise, and `allowed` are those for this call."""
    names = sorted(name for name in allowed if "*" not in name and name != asked)
    near = get_close_matches(asked[:200], names, n=1, cutoff=0.6)
    shown = shortened(asked)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    for_this = " for this call" if call else ""
    known = f" It may use{for_this}: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}." if names else ""
    return Refused(f"The model {shown!r} is not one that this key may use{for_this}.{hint}{known}", code="model_not_found", param="model")
