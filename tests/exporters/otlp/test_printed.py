"""exporters/otlp/printed.py: spans and log events to look at."""

from __future__ import annotations

import json
from io import StringIO

from spangate.exporters.otlp.printed import Printed, line_of
from spangate.exporters.record import Link, LogRecord, Span, SpanEvent
from spangate.exporters.traces.spans import spans_of

from finished import whole_call


def test_a_line_each() -> None:
    out = StringIO()
    Printed(out).print([*spans_of(whole_call()), LogRecord("spangate.policy.decision", 5, {"a": 1}, trace_id=3)])
    server, first, _, log = map(json.loads, out.getvalue().splitlines())
    assert server["trace_id"] == first["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert (server["parent_id"], first["parent_id"]) == ("b7ad6b7169203331", server["span_id"])
    assert server["attributes"]["http.route"] == "/v1/chat/completions"
    assert log == {"event": "spangate.policy.decision", "at": 5, "attributes": {"a": 1}, "severity": 9, "trace_id": f"{3:032x}"}


def test_bad_values_too() -> None:
    span = Span(1, 2, "\ud800", 2, 3, 4, {"\udc00": ["\0", b"\xff", float("nan")]}, events=[SpanEvent("e", 1, {"k": 2**70})])
    said = json.loads(line_of(span))
    assert said["name"] == "\ufffd"
    assert said["attributes"]["\ufffd"] == ["\ufffd", "/w==", None]
    assert said["events"] == [{"name": "e", "at": 1, "attributes": {"k": 2**70}}]


def test_an_attribute_may_be_called_like_an_id() -> None:
    """Callers name their tags, and policies their figures: none of that is a number of ours."""
    named = {"spangate.tag.user_id": "u-1", "trace_id": "mine", "span_id": 7}
    span = Span(1, 2, "x", 2, 3, 4, named, events=[SpanEvent("e", 1, {"order_id": 1.5})], links=[Link(5, 6, {"parent_id": True})])
    said = json.loads(line_of(span))
    assert (said["trace_id"], said["span_id"], said["attributes"]) == (f"{1:032x}", f"{2:016x}", named)
    assert said["events"][0]["attributes"] == {"order_id": 1.5}
    [link] = said["links"]
    assert (link["trace_id"], link["span_id"], link["attributes"]) == (f"{5:032x}", f"{6:016x}", {"parent_id": True})


def test_a_terminal_that_is_gone_costs_nothing() -> None:
    out = StringIO()
    out.close()
    Printed(out).print(spans_of(whole_call()))
    Printed(out).print([])
