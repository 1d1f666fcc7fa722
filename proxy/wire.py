"""From a request's parts to a Call: what of the body routing reads, and what of the headers labels a call.

Everything else in the body is the provider's business and goes through untouched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import msgspec

from ..call.body import Body
from ..call.call import Call, Caller, Head, Labels, Op
from ..call.errors import CallerFault
from ..call.seen import Seen
from ..policies.output_cap import FIELDS, OWN_FIELDS
from .callers import Headers

MAX_MODEL = 512
MAX_READ = 64 << 10  # bytes of a field that is read here: whatever it holds, all others wait meanwhile
MAX_COMMAS = 8 << 10  # in a list of prompts that is read
MAX_OPTIONS = 4 << 10  # bytes of stream_options: their names are looked at one by one
_CONTENT = {"chat": "messages", "completions": "prompt", "embeddings": "input"}
# What is read of a body: its type, and the type in words.
_READ: Mapping[str, tuple[type, str]] = {
    "model": (str, "a model's name"),
    "stream": (bool, "true or false"),
    "n": (int, "a whole number"),
    "best_of": (int, "a whole number"),
    "max_tokens": (int, "a whole number"),
    "max_completion_tokens": (int, "a whole number"),
    "stream_options": (dict, "an object"),
}
# What we read, or a policy does, or a server reads in place of it.
_NAMES = frozenset(_READ) | {
    "messages", "prompt", "suffix", "input", "instructions", "system", "tools", "functions", "tool_choice", "function_call",
    "parallel_tool_calls", "web_search_options", "response_format", "text", "options", *OWN_FIELDS,
}  # fmt: skip
_LONGEST_NAME = max(map(len, _NAMES))
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_TAG_KEY = re.compile(r"[a-z0-9_.-]{1,32}")
_HALF_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_UNPRINTABLE = re.compile(r"[^ -~]")


def call_of(op: Op, body: Body, caller: Caller, labels: Labels, seen: Seen) -> Call:
    """One model call.

    Raises:
        CallerFault: a field that we read has the wrong type, or is missing, or is spelt in another case; it names the field.
    """
    _check_names(body)
    given = {name: _given(body, name) for name in _READ.keys() & body.fields.keys()}
    for name, value in given.items():
        if value is not None and type(value) is not _READ[name][0]:  # not isinstance: a bool is no number here
            raise CallerFault(f"'{name}' must be {_READ[name][1]}.", param=name)
    model = _model(given)
    _check_content(op, body)
    options = given.get("stream_options") or {}
    head = Head(
        stream=given.get("stream") or False,
        n=max(given.get("n") or 1, given.get("best_of") or 1, 1) * (_prompts(body) if op == "completions" else 1),
        output_cap=_output_cap(op, given, body),
        usage_frame=options.get("include_usage") is True,
    )
    seen.model, seen.stream = model, head.stream
    return Call(op=op, model=model, body=body, head=head, caller=caller, labels=labels, seen=seen)


def _check_names(body: Body) -> None:
    """Servers written in Go read `Model` as `model`: they would get what no policy has seen."""
    for name in body.fields.keys() - _NAMES:
        if len(name) <= _LONGEST_NAME and (meant := name.casefold()) in _NAMES:
            shown = name.encode("ascii", "backslashreplace").decode("ascii")
            raise CallerFault(f"'{shown}' must be spelt '{meant}'.", param=shown)


def _given(body: Body, name: str) -> Any:
    most = MAX_OPTIONS if name == "stream_options" else MAX_READ
    if len(body.fields[name]) > most:
        raise CallerFault(f"'{name}' is longer than {most} bytes.", param=name)
    return _options(bytes(body.fields[name])) if name == "stream_options" else body.get(name)


def _options(raw: bytes) -> Any:
    """`stream_options`, in which a name that comes twice would mean one thing here and perhaps another to the provider: we would count on
    a report of usage that never comes."""
    twice = False

    def named(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        found = dict(pairs)
        twice = twice or len(found) < len(pairs)
        return found

    options = json.loads(raw, object_pairs_hook=named)
    if twice:
        raise CallerFault("'stream_options' names a field twice; say it once.", param="stream_options")
    return options


def _model(given: Mapping[str, Any]) -> str:
    model: str = given.get("model") or ""
    if not model:
        raise CallerFault("'model' is missing.", param="model")
    if len(model) > MAX_MODEL:
        raise CallerFault(f"'model' is longer than {MAX_MODEL} characters.", param="model")
    return model


def _check_content(op: Op, body: Body) -> None:
    name = _CONTENT[op]
    raw = body.fields.get(name)
    if raw is None and op != "chat":
        raise CallerFault(f"'{name}' is missing.", param=name)
    if op == "chat" and (raw is None or bytes(memoryview(raw)[:1]) != b"["):
        raise CallerFault("'messages' must be a list of messages.", param=name)


def _prompts(body: Body) -> int:
    """How many prompts stand in the list, of texts or of lists of token ids: each is answered by itself. Of a list that is long to read,
    more than there are if brackets and quotes stand in the texts."""
    raw = bytes(body.fields["prompt"])
    if raw[:1] != b"[":
        return 1
    lists, quotes = raw.count(b"[") - 1, raw.count(b'"')
    if (lists or quotes) and raw.count(b",") <= MAX_COMMAS:
        with suppress(msgspec.DecodeError):  # lone surrogates
            return max(len(_list(raw)), 1)
    return max(lists + quotes // 2, 1)


def _output_cap(op: Op, given: Mapping[str, Any], body: Body) -> int | None:
    for name in ("max_tokens", "max_completion_tokens"):
        if (given.get(name) or 0) < 0:
            raise CallerFault(f"'{name}' must not be negative.", param=name)
    if any(name in body for name in OWN_FIELDS):
        return None  # a server may go by that one
    return max([cap for name in FIELDS.get(op, ()) if (cap := given.get(name)) is not None], default=None)


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
    """`k=v,k=v`, percent-encoded, at most ten, each key once."""
    tags: dict[str, str] = {}
    for pair in value.split(",") if value else ():
        key, equals, raw = pair.strip().partition("=")
        text = unquote(raw, errors="replace")
        sound = len(text) <= 128 and text.isprintable() and "\ufffd" not in text and not _HALF_ESCAPE.search(raw)
        if not equals or not _TAG_KEY.fullmatch(key) or key in tags or not sound:
            raise CallerFault(
                "The header x-spangate-tags must read k=v,k=v: each key once, of a-z 0-9 _ . - (at most 32), values percent-encoded"
                " (at most 128).",
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


def base_of(headers: Headers) -> str:
    """Where the client has reached us, `http://host:port`; "" if it named no such place. A proxy that ends TLS before us says so."""
    host = headers.get("Host") or ""
    if not _HOST.fullmatch(host):
        return ""
    return f"{'https' if headers.get('X-Forwarded-Proto') == 'https' else 'http'}://{host}"


def client_request_id(headers: Headers) -> str:
    """The caller's own x-request-id, if it is one that a log line bears."""
    value = headers.get("x-request-id") or ""
    return value if _REQUEST_ID.fullmatch(value) else ""


def header_text(value: str) -> str:
    """Any text as a header value: printable ASCII of at most 256 characters."""
    if value.isascii() and value.isprintable() and len(value) <= 256:
        return value
    return _UNPRINTABLE.sub("?", value[:256])
