"""policies/cutting.py: the end of a stream that is cut."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.call.events import Closed, Delta, Envelope, Usage
from spangate.policies.cutting import ending

from admitting import call


@pytest.mark.parametrize(("op", "said"), [("chat", {"delta": {}}), ("completions", {"text": ""})])
def test_each_choice_ends_with_length(op: Any, said: dict[str, Any]) -> None:
    delta, closed = ending(call(op=op, n=2, stream=True), Envelope("c1", "m-1", 7, "kind"), Usage(3, 4))
    assert isinstance(delta, Delta)
    assert delta.chunks == tuple(
        {"id": "c1", "object": "kind", "created": 7, "model": "m-1", "choices": [{"index": index, **said, "finish_reason": "length"}]}
        for index in range(2)
    )
    assert closed == Closed(Usage(3, 4), "length", None, cut=True)


def test_usage_is_told_where_it_was_asked_for() -> None:
    delta, _ = ending(call(stream=True, stream_options={"include_usage": True}), None, Usage(3, 4))
    assert isinstance(delta, Delta)
    first, last = delta.chunks
    assert first["usage"] is None
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert first["object"] == "chat.completion.chunk"
