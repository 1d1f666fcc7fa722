"""One trace and one row for every call that a client can make and a provider can answer or fail: scenes.py lists them. That a call's
spans and rows tell the same is looked at in tests/told.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from journeys.scenes import SCENES, Scene, gateway_of

from otlp_sink import attributes
from told import Call, Told, told
from upstream import Misbehaving

OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}
LATE = 1_000  # traces of the calls that the tests make beside their scenes begin here


@contextmanager
def named(scene: str) -> Iterator[None]:
    """What fails in here says in which scene."""
    try:
        yield
    except BaseException as wrong:
        wrong.add_note(f"scene: {scene}")
        raise


async def play_scene(it: Told, scene: Scene, trace: int) -> None:
    it.it.up.script = scene.script
    it.it.rows += 1
    assert await scene.way(it.it, scene.request(it.it, trace)) == scene.status
    await it.it.running.kept.count(it.it.rows)


def check(call: Call, scene: Scene, trace: int) -> None:
    row, said = call.row, call.said
    assert (int.from_bytes(call.span.trace_id, "big"), int.from_bytes(call.span.parent_span_id, "big")) == (trace, trace)
    assert (row["outcome"], row["status"], row["error_code"]) == (scene.outcome, scene.status or 499, scene.code)
    assert (said["http.route"], said.get("error.type", "")) == (scene.path, scene.error)
    assert said.get("spangate.refusal.reason") == scene.refusal
    assert row["team"] == ("" if scene.refusal == "unauthenticated" else "search")
    tried = [(each["outcome"], each["status"], each["error_type"]) for each in call.tried]
    assert tried == [(each.outcome, each.status, each.error) for each in scene.tried]
    asked = [attributes(span) for span in call.attempts]
    said = {span.span_id.hex(): attributes(span).get("error.type", "") for span in call.attempts}
    assert {each["span_id"]: each["error_type"] for each in call.tried} == said, "a row and its span say the same word"
    assert [each.get("gen_ai.response.finish_reasons") for each in asked] == [each.finish and [each.finish] for each in scene.tried]
    assert {each["gen_ai.operation.name"] for each in asked} <= {OPERATIONS[scene.path]}
    check_tokens(call, scene)


def check_tokens(call: Call, scene: Scene) -> None:
    """The rows have what the provider told, to the token, or an estimate that says so; a span has the former or nothing."""
    input, output, source = call.tokens
    asked = [attributes(span) for span in call.attempts]
    if scene.tokens is None:
        assert (input, output, source) == (None, None, "none")
    elif scene.tokens == "estimated":
        assert source == "estimated"
        assert (input or 0) > 0
        assert (output or 0) > 0 or scene.outcome != "completed"
        assert all("gen_ai.usage.output_tokens" not in each for each in asked)
    else:
        assert (input, output, source) == (*scene.tokens, "provider")
        assert [(each["gen_ai.usage.input_tokens"], each.get("gen_ai.usage.output_tokens", 0)) for each in asked] == [scene.tokens]
    assert [(each["input_tokens"], each["output_tokens"]) for each in call.tried] == [(input, output)] * len(call.tried)


def check_sent(it: Told, calls: list[Call]) -> None:
    """Each request that the provider saw belongs to one attempt, and says so. One that is sent again because its connection had been
    closed is the same attempt."""
    sent = {request.header(b"traceparent") for request in it.it.up.requests}
    spans = [span for call in calls for span in call.attempts]
    here = {f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01".encode() for span in spans if deployment(span) == "up"}
    assert sent == here
    assert {deployment(span) for span in spans} <= {"up", "nowhere"}


def deployment(span: object) -> str:
    return str(attributes(span)["spangate.deployment.name"])


@pytest.mark.fault("SSE-14", "SSE-15", "SSE-17", "SSE-19", "SSE-22", "SSE-23")
@pytest.mark.fault("USE-01", "USE-02", "USE-10", "USE-11", "USE-12", "CAN-01", "CAN-04", "RES-09")
@pytest.mark.parametrize("kind", SCENES)
async def test_each_call_is_one_trace_and_one_row(tmp_path: Path, kind: str) -> None:
    scenes = SCENES[kind]
    async with Misbehaving() as up, told(tmp_path, up, **gateway_of(up)) as it:
        for trace, (name, scene) in enumerate(scenes.items(), 1):
            with named(name):
                await play_scene(it, scene, trace)
        calls = await it.calls()
        for trace, (name, call) in enumerate(zip(scenes, calls, strict=True), 1):
            with named(name):
                check(call, scenes[name], trace)
        check_sent(it, calls)
