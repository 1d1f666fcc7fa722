"""agent/models/labels.py: what a gateway is told, and a vendor is not."""

from __future__ import annotations

import pytest
from opentelemetry import context as otel
from opentelemetry import trace

from spangate.agent.asking import Asking, asking
from spangate.agent.models.labels import is_vendor, label, reply_headers, trace_parent


@pytest.mark.parametrize(
    ("address", "vendor"),
    [
        ("https://api.openai.com/v1", True),
        ("https://x.openai.azure.com", True),
        ("https://api.anthropic.com", True),
        ("http://127.0.0.1:8484/v1", False),
        ("https://openai.com.example.org", False),
        ("https://notopenai.com", False),
    ],
)
def test_whose_address_it_is(address: str, vendor: bool) -> None:
    assert is_vendor(address) is vendor


def test_only_what_is_known_is_told() -> None:
    assert "x-spangate-reply" not in reply_headers()
    token = asking.set(Asking(reply="r", thread="t"))
    assert {"x-spangate-reply": "r", "x-spangate-thread": "t"}.items() <= reply_headers().items()
    asking.reset(token)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("thread-9", "thread-9"),
        ("a b%c", "a b%c"),
        ("Gespräch 7", "Gespr%C3%A4ch 7"),
        ("x\r\nevil: 1", "x%0D%0Aevil%3A 1"),
        (" padded ", "padded"),
        ("\ud800", "%ED%A0%80"),
        ("x" * 256, "x" * 256),
    ],
)
def test_a_name_is_said_as_a_header_can_hold_it(name: str, said: str) -> None:
    assert label(name) == said


def test_long_names_stay_apart() -> None:
    said = {label("x" * 300 + end) for end in "abc"}
    assert len(said) == 3
    assert {len(each) for each in said} == {256}


def test_the_trace_that_is_going_on() -> None:
    assert trace_parent() == (0, 0, True)
    context = trace.SpanContext(5, 7, is_remote=False, trace_flags=trace.TraceFlags(0))
    token = otel.attach(trace.set_span_in_context(trace.NonRecordingSpan(context)))
    assert trace_parent() == (5, 7, False)
    otel.detach(token)
