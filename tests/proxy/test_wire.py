"""proxy/wire.py: from a request's parts to a Call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Labels, Op
from spangate.call.errors import CallerFault
from spangate.call.seen import Seen
from spangate.proxy import wire

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CHAT: dict[str, Any] = {"model": "m", "messages": []}


def call_of(op: Op = "chat", **body: Any) -> Call:
    fields = {name: json.dumps(value).encode() for name, value in body.items()}
    return wire.call_of(op, Body(fields), Caller(), Labels(), Seen.open())


def headers(**named: str) -> CIMultiDict[str]:
    return CIMultiDict({name.replace("_", "-"): value for name, value in named.items()})


@pytest.mark.parametrize(
    ("named", "base"),
    [
        ({"Host": "127.0.0.1:8484"}, "http://127.0.0.1:8484"),
        ({"Host": "[::1]:8484"}, "http://[::1]:8484"),
        ({"Host": "gateway.example", "X_Forwarded_Proto": "https"}, "https://gateway.example"),
        ({"Host": "gateway.example", "X_Forwarded_Proto": "javascript"}, "http://gateway.example"),
        ({}, ""),
        ({"Host": "user:pw@gateway"}, ""),
        ({"Host": "gateway/..?x"}, ""),
        ({"Host": "h" * 300}, ""),
        ({"Host": "gateway\n"}, ""),
    ],
)
def test_where_a_client_has_reached_us(named: dict[str, str], base: str) -> None:
    assert wire.base_of(headers(**named)) == base


def test_what_routing_reads() -> None:
    call = call_of(**CHAT, stream=True, n=3, max_tokens=10, max_completion_tokens=20, stream_options={"include_usage": True})
    assert (call.model, call.op) == ("m", "chat")
    assert (call.head.stream, call.head.n, call.head.output_cap, call.head.usage_frame) == (True, 3, 20, True)
    assert (call.seen.model, call.seen.stream) == ("m", True)


def test_what_is_left_out_or_null_has_its_default() -> None:
    for call in (call_of(**CHAT), call_of(**CHAT, stream=None, n=None, max_tokens=None, stream_options=None)):
        assert (call.head.stream, call.head.n, call.head.output_cap, call.head.usage_frame) == (False, 1, None, False)


@pytest.mark.parametrize(("op", "content"), [("chat", {"messages": []}), ("completions", {"prompt": None}), ("embeddings", {"input": [1]})])
def test_each_operation_has_its_content(op: Op, content: dict[str, Any]) -> None:
    assert call_of(op, model="m", **content).op == op
    with pytest.raises(CallerFault) as fault:
        call_of(op, model="m")
    assert fault.value.param == next(iter(content))


UNREADABLE = [
    ("model", 5),
    ("model", ""),
    ("model", "x" * 513),
    ("messages", "hi"),
    ("stream", 1),
    ("n", 1.5),
    ("n", True),
    ("best_of", "9"),
]
UNREADABLE += [("max_tokens", -1), ("max_completion_tokens", "9"), ("stream_options", [])]
UNREADABLE += [("stream_options", {"include_usage": True, "x": ["[],"] * 1000}), ("model", "x" * 70_000)]


@pytest.mark.parametrize(("field", "value"), UNREADABLE)
def test_a_field_that_cannot_be_read_is_named(field: str, value: Any) -> None:
    with pytest.raises(CallerFault) as fault:
        call_of(**CHAT | {field: value})
    assert (fault.value.param, fault.value.code) == (field, "invalid_request")
    assert field in fault.value.message


@pytest.mark.parametrize("field", ["n_predict", "num_predict", "max_output_tokens", "max_new_tokens"])
def test_a_cap_counts_that_the_server_will_read(field: str) -> None:
    assert call_of("completions", model="m", prompt="x", max_completion_tokens=5).head.output_cap is None
    assert call_of("completions", model="m", prompt="x", max_completion_tokens=5, max_tokens=9).head.output_cap == 9
    assert call_of(**CHAT, max_tokens=5, **{field: 100_000}).head.output_cap is None


@pytest.mark.parametrize(
    ("body", "n"),
    [
        ({"prompt": "x"}, 1),
        ({"prompt": "[", "n": 2}, 2),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": []}, 1),
        ({"prompt": None, "best_of": None}, 1),
        ({"prompt": "x", "best_of": 100}, 100),
        ({"prompt": ["x"] * 6}, 6),
        ({"prompt": ['"[', "\\", "], [", '\\"']}, 4),
        ({"prompt": ["x", "y"], "n": 3, "best_of": 2}, 6),
        ({"prompt": [[1, 2], [3]], "best_of": 2}, 4),
        ({"prompt": ["x", [1], [2]]}, 3),
        ({"prompt": ["x"] * (wire.MAX_COMMAS + 2)}, wire.MAX_COMMAS + 2),
        ({"prompt": [[1]] * (wire.MAX_COMMAS + 2)}, wire.MAX_COMMAS + 2),
        ({"prompt": [1] * (wire.MAX_COMMAS + 2)}, 1),
        ({"prompt": ["\ud800", "x"]}, 2),
        ({"prompt": ['"' * 9000]}, 1),
        ({"prompt": ["\\" * 9000, "x"]}, 2),
    ],
)
def test_answers_are_made_of_each_prompt(body: dict[str, Any], n: int) -> None:
    assert call_of("completions", model="m", **body).head.n == n


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Model", "model"), ("TOOLS", "tools"), ("Max_Tokens", "max_tokens"), ("\u017ftream", "stream"), ("max_to\u212aens", "max_tokens")],
)
def test_a_field_in_another_case_is_none_of_ours(name: str, meant: str) -> None:
    with pytest.raises(CallerFault) as fault:
        call_of(**CHAT, **{name: "secret"})
    assert fault.value.message == f"'{fault.value.param}' must be spelt '{meant}'."
    assert fault.value.param == name.encode("ascii", "backslashreplace").decode()
    assert call_of(**CHAT, Models="x", messag="y", Temperature=1).model == "m"


def test_labels() -> None:
    user, labels = wire.labels_of(
        headers(
            x_other_user="ann@example.org",
            x_spangate_user="bob",
            x_thread="t1",
            x_spangate_reply="r1",
            x_spangate_tags="a=1, b.c=%C3%A9,d=",
        ),
        ["x-other-user", "x-spangate-user"],
        ["x-spangate-thread", "x-thread"],
    )
    assert user == "ann@example.org"
    assert (labels.thread, labels.reply, dict(labels.tags)) == ("t1", "r1", {"a": "1", "b.c": "é", "d": ""})
    assert wire.labels_of(headers(), ["x-user"], []) == ("", Labels())


@pytest.mark.parametrize(
    "tags",
    [
        "a=%",
        "a=1,a=2",
        ",,,",
        "a=1,",
        "a",
        "=1",
        "A=1",
        "a b=1",
        "a" * 33 + "=1",
        "a=" + "x" * 129,
        "a=%0a",
        "a=%00",
        "a=%ff",
        ",".join(f"t{i}=1" for i in range(11)),
        "é=1",
    ],
)
def test_tags_that_nobody_could_keep(tags: str) -> None:
    with pytest.raises(CallerFault) as fault:
        wire.labels_of(headers(x_spangate_tags=tags), [], [])
    assert fault.value.param == "x-spangate-tags"


@pytest.mark.parametrize("value", ["x" * 257, "caf\xe9", "a\tb", "\udcff"])
def test_labels_that_nobody_could_keep(value: str) -> None:
    for name in ("x-spangate-user", "x-spangate-thread", "x-spangate-reply"):
        with pytest.raises(CallerFault) as fault:
            wire.labels_of(CIMultiDict({name: value}), ["x-spangate-user"], ["x-spangate-thread"])
        assert fault.value.param == name


def test_a_trace_goes_on() -> None:
    assert wire.trace_of(headers(traceparent=f"00-{TRACE}-{PARENT}-01")) == (int(TRACE, 16), int(PARENT, 16), True)
    assert wire.trace_of(headers(traceparent=f" 00-{TRACE}-{PARENT}-02 ")) == (int(TRACE, 16), int(PARENT, 16), False)
    assert wire.trace_of(headers(traceparent=f"cc-{TRACE}-{PARENT}-01-later")) == (int(TRACE, 16), int(PARENT, 16), True)


NO_TRACE = ["", "x", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-x", f"00-{TRACE.upper()}-{PARENT}-01", "0" * 9000]
NO_TRACE += [f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{PARENT}-0g", f"00-{TRACE}-{PARENT}-1"]


@pytest.mark.parametrize("value", NO_TRACE)
def test_a_trace_that_is_none_begins_anew(value: str) -> None:
    assert wire.trace_of(headers(traceparent=value)) == (0, 0, True)


def test_two_traces_are_none() -> None:
    twice = CIMultiDict([("traceparent", f"00-{TRACE}-{PARENT}-01")] * 2)
    assert wire.trace_of(twice) == (0, 0, True)


@given(st.text())
def test_whatever_stands_there_makes_ids_or_none(value: str) -> None:
    trace, parent, _ = wire.trace_of(headers(traceparent=value))
    assert 0 <= trace < 2**128
    assert 0 <= parent < 2**64
    kept = wire.client_request_id(headers(x_request_id=value))
    assert kept in {"", value}
    assert all("!" <= c <= "~" for c in kept)


@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_can_be_a_header(value: str) -> None:
    text = wire.header_text(value)
    assert len(text) <= 256
    assert all(" " <= c <= "~" for c in text)
    assert [c for c in text if c != "?"] == [c for c in value[:256] if " " <= c <= "~" and c != "?"]
