"""From a request's parts to a Call: what of the body routing reads, and what of the headers labels a call.

Everything else in the body is the provider's business and goes through untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from ..call.body import Body
from ..call.call import Call, Caller, Head, Labels, Op
from ..call.errors import CallerFault
from ..call.seen import Seen
from .callers import Headers

MAX_MODEL = 512
_CONTENT = {"chat": "messages", "completions": "prompt", "embeddings": "input"}
_READ = frozenset({"model", "stream", "n", "max_tokens", "max_completion_tokens", "stream_options"})
_TAG_KEY = re.compile(r"[a-z0-9_.-]{1,32}")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_UNPRINTABLE = re.compile(r"[^ -~]")


Given = Mapping[str, Any]
"""The fields that are read, as far as the body has them, decoded."""


def call_of(op: Op, body: Body, caller: Caller, labels: Labels, seen: Seen) -> Call:
    """One model call.

    Raises:
        CallerFault: a field that we read has the wrong type, or is missing; it names the field.
    """
    given = {name: body.get(name) for name in _READ & body.fields.keys()}
    model = _model(given)
    if op == "chat" and bytes(memoryview(body.fields.get(_CONTENT[op], b""))[:1]) != b"[":
        raise CallerFault("'messages' must be a list of messages.", param="messages")
    if _CONTENT[op] not in body:
        raise CallerFault(f"'{_CONTENT[op]}' is missing.", param=_CONTENT[op])
    head = Head(
        stream=_field(given, "stream", bool, "true or false") or False,
        n=max(_field(given, "n", int, "a whole number") or 1, 1),
        output_cap=_output_cap(given),
        usage_frame=_usage_frame(given),
    )
    seen.model, seen.stream = model, head.stream
    return Call(op=op, model=model, body=body, head=head, caller=caller, labels=labels, seen=seen)


def _model(given: Given) -> str:
    model = _field(given, "model", str, "a model's name")
    if not model:
        raise CallerFault("'model' is missing.", param="model")
    if len(model) > MAX_MODEL:
        raise CallerFault(f"'model' is longer than {MAX_MODEL} characters.", param="model")
    return str(model)


def _field(given: Given, name: str, kind: type, wanted: str) -> Any:
    """A field's value, None if it is absent or null; a bool is no number here."""
    value = given.get(name)
    if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise CallerFault(f"'{name}' must be {wanted}.", param=name)
    return value


def _output_cap(given: Given) -> int | None:
    caps = []
    for name in ("max_tokens", "max_completion_tokens"):
        cap = _field(given, name, int, "a whole number")
        if cap is not None and cap < 0:
            raise CallerFault(f"'{name}' must not be negative.", param=name)
        caps.append(cap)
    return max((cap for cap in caps if cap is not None), default=None)


def _usage_frame(given: Given) -> bool:
    options = _field(given, "stream_options", dict, "an object")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def labels_of(headers: Headers, user: Sequence[str], thread: Sequence[str]) -> tuple[str, Labels]:
    """The user that a request names, and its labels. `user` and `thread` are the headers that may name them, first one first.

    Raises:
        CallerFault: a label that nobody could keep; it names the header.
    """
    labels = Labels(
        thread=_label(headers, thread),
        reply=_label(headers, ("x-spangate-reply",)),
        tags=_tags(headers.get("x-spangate-tags") or ""),
    )
    return _label(headers, user), labels


def _label(headers: Headers, names: Iterable[str]) -> str:
    for name in names:
        value = headers.get(name)
        if value:
            if len(value) > 256 or _UNPRINTABLE.search(value):
                raise CallerFault(f"The header {name} must be at most 256 printable ASCII characters.", param=name)
            return value
    return ""


def _tags(value: str) -> dict[str, str]:
    """`k=v,k=v`, percent-encoded, at most ten."""
    tags: dict[str, str] = {}
    pairs = [pair.strip() for pair in value.split(",") if pair.strip()] if value else []
    for pair in pairs:
        key, equals, raw = pair.partition("=")
        text = unquote(raw, errors="replace")
        if not equals or not _TAG_KEY.fullmatch(key) or len(text) > 128 or not text.isprintable() or "\ufffd" in text:
            raise CallerFault(
                "The header x-spangate-tags must read k=v,k=v: keys of a-z 0-9 _ . - (at most 32), percent-encoded values (at most 128).",
                param="x-spangate-tags",
            )
        tags[key] = text
    if len(tags) > 10:
        raise CallerFault("The header x-spangate-tags holds more than 10 tags.", param="x-spangate-tags")
    return tags


def trace_of(headers: Headers) -> tuple[int, int, bool]:
    """Trace id, parent span id and sampled flag of a W3C traceparent; zeros and True where there is none that is valid.

    https://www.w3.org/TR/trace-context-2/#traceparent-header
    """
    values = headers.getall("traceparent", [])
    found = _TRACEPARENT.fullmatch(values[0].strip()) if len(values) == 1 else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return 0, 0, True
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    return (trace_id, span_id, bool(int(found[4], 16) & 1)) if trace_id and span_id else (0, 0, True)


def client_request_id(headers: Headers) -> str:
    """The caller's own x-request-id, if it is one that a log line bears."""
    value = headers.get("x-request-id") or ""
    return value if _REQUEST_ID.fullmatch(value) else ""


def header_text(value: str) -> str:
    """Any text as a header value: printable ASCII of at most 256 characters."""
    if value.isascii() and value.isprintable() and len(value) <= 256:
        return value
    return _UNPRINTABLE.sub("?", value[:256])
