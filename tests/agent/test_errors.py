"""agent/errors.py: who erred, as in a call's errors."""

from __future__ import annotations

from spangate.agent import DeadlineExceeded, InvalidInput, LimitReached, MiddlewareFault, NoAnswer, NoProgress, NotJSON
from spangate.call.errors import CallerFault, OurFault, ProviderFault, Refused, SpangateError


def test_who_erred() -> None:
    assert issubclass(LimitReached, Refused)
    assert issubclass(InvalidInput, CallerFault)
    assert all(issubclass(each, OurFault) for each in (MiddlewareFault, NoProgress, NotJSON))
    assert issubclass(NoAnswer, ProviderFault)
    assert NoAnswer.retryable
    assert not issubclass(DeadlineExceeded, ProviderFault)
    assert issubclass(DeadlineExceeded, SpangateError)


def test_a_fault_names_the_layer() -> None:
    fault = MiddlewareFault("Odd", "on_reply", "gave None")
    assert (fault.message, fault.middleware, fault.hook, fault.code) == ("Odd.on_reply gave None", "Odd", "on_reply", "middleware_fault")
