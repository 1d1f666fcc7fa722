"""agent/middlewares/traced_metrics.py: what an agent measures, as OpenTelemetry's own SDK reads it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.trace import NoOpTracerProvider

from spangate.agent import (
    ChatUsage,
    MiddlewareBase,
    ModelFallbackMiddleware,
    RateLimitMiddleware,
    ScriptedModel,
    ToolResponse,
    TracingMiddleware,
    calls,
    tool,
)
from spangate.agent.middlewares.traced_metrics import Measures
from spangate.call.errors import UpstreamError
from spangate.exporters import semconv

from acceptance.lines import Half, Spans, agent, cancelled_amid, look, said, stepping, told

Point = tuple[dict[str, Any], Any]


class Meters:
    """What is measured, by name: each point's attributes, and its sum and count, or its value."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracing = TracingMiddleware(NoOpTracerProvider(), meter_provider=self.provider, **options)

    def points(self) -> dict[str, list[Point]]:
        data = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data is not None else []
        assert {scope.scope.name for scope in scopes} <= {"spangate.agent"}
        found = {metric.name: [point(each) for each in metric.data.data_points] for scope in scopes for metric in scope.metrics}
        return {name: sorted(points, key=str) for name, points in found.items()}

    def counts(self) -> dict[str, int]:
        """How often each name that the conventions of the agent's own have was recorded."""
        return {name: sum(value[1] for _, value in points) for name, points in self.points().items() if isinstance(points[0][1], tuple)}


def point(each: Any) -> Point:
    if isinstance(each, HistogramDataPoint):
        return dict(each.attributes or {}), (each.sum, each.count)
    assert isinstance(each, NumberDataPoint)
    return dict(each.attributes or {}), each.value


REQUEST = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "scripted",
    "gen_ai.request.model": "scripted",
    "gen_ai.response.model": "scripted",
}
UNSPLIT = REQUEST | {"gen_ai.token.modality": "unknown"}


async def test_a_reply_its_requests_and_its_tools() -> None:
    meters = Meters()
    await agent(stepping(1, usage={"input": 10, "output": 4, "cached": 3}), meters.tracing)("go")
    points = meters.points()
    for name in ("gen_ai.client.operation", "gen_ai.client.inference"):
        [(attributes, (seconds, count))] = points[f"{name}.duration"]
        assert (attributes, count) == (REQUEST, 2)
        assert seconds > 0
        assert points[f"{name}.time_to_first_chunk"][0][1][1] == 2
    typed = [(attributes["gen_ai.token.type"], value) for attributes, value in points["gen_ai.client.token.usage"]]
    assert typed == [("input", (20, 2)), ("output", (8, 2))]
    assert points["gen_ai.client.inference.operation.input_tokens"] == [(REQUEST, (20, 2))]
    assert points["gen_ai.client.inference.operation.output_tokens"] == [(REQUEST, (8, 2))]
    assert points["gen_ai.client.inference.usage.input_tokens"] == [(UNSPLIT, 20)]
    assert points["gen_ai.client.inference.usage.output_tokens"] == [(UNSPLIT, 8)]
    assert points["gen_ai.client.inference.usage.cache_read.input_tokens"] == [(UNSPLIT, 6)]
    assert "gen_ai.client.inference.usage.reasoning.output_tokens" not in points
    own = {"gen_ai.agent.name": "a"}
    [(attributes, (_, count))] = points["gen_ai.execute_tool.duration"]
    assert (attributes, count) == (own | {"gen_ai.tool.name": "look", "gen_ai.tool.type": "function"}, 1)
    [(attributes, (_, count))] = points["gen_ai.invoke_agent.duration"]
    assert (attributes, count) == (own | {"gen_ai.request.model": "scripted"}, 1)
    assert points["gen_ai.invoke_agent.inference_calls"] == [(own, (2, 1))]
    assert points["gen_ai.invoke_agent.tool_calls"] == [(own, (1, 1))]


@pytest.mark.fault("USE-12")
async def test_a_total_that_was_left_out_is_not_measured() -> None:
    meters = Meters()
    await agent(Half(), meters.tracing)("go")
    points = meters.points()
    assert [(attributes["gen_ai.token.type"], value) for attributes, value in points["gen_ai.client.token.usage"]] == [("input", (7, 1))]
    assert points["gen_ai.client.inference.operation.input_tokens"] == [(REQUEST, (7, 1))]
    assert "gen_ai.client.inference.operation.output_tokens" not in points


async def test_each_chunk_after_the_first_is_measured_and_a_whole_answer_has_none() -> None:
    rule = {"answer": {"text": "one two three four", "chunks": 4, "every": 0.002}}
    meters = Meters()
    await agent(ScriptedModel([rule]), meters.tracing)("go")
    for name in ("gen_ai.client.operation.time_per_output_chunk", "gen_ai.client.inference.time_per_output_chunk"):
        [(attributes, (seconds, count))] = meters.points()[name]
        assert (attributes, count) == (REQUEST, 3)
        assert seconds > 0
    meters = Meters()
    await agent(ScriptedModel([rule], stream=False), meters.tracing)("go")
    assert not [name for name in meters.points() if "chunk" in name]


@pytest.mark.parametrize(("names", "some", "none"), [
    ("legacy", {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}, "inference."),
    ("v0_1", {"gen_ai.client.inference.duration", "gen_ai.client.inference.usage.input_tokens"}, ".client.operation."),
])  # fmt: skip
async def test_which_names_are_told(names: Any, some: set[str], none: str) -> None:
    meters = Meters(genai_metrics=names)
    await agent(stepping(1), meters.tracing)("go")
    assert some <= set(meters.points())
    assert [name for name in meters.points() if name.startswith("gen_ai.client") and none in name] == []
    with pytest.raises(ValueError, match="genai_metrics must be one of legacy, v0_1, both, not 'new'"):
        TracingMiddleware(genai_metrics="new")  # type: ignore[arg-type]


async def test_what_failed_says_so_and_used_nothing() -> None:
    meters = Meters()
    broken, spare = ScriptedModel([{"fault": {"status": 503}}], model="broken"), ScriptedModel.saying("saved", model="spare")
    await agent(broken, meters.tracing, ModelFallbackMiddleware(spare))("go")
    with pytest.raises(UpstreamError):
        await agent(broken, meters.tracing)("go")
    points = meters.points()
    told = {(at["gen_ai.request.model"], at.get("error.type")): value[1] for at, value in points["gen_ai.client.inference.duration"]}
    assert told == {("broken", "server_error"): 2, ("spare", None): 1}
    inputs = {at["gen_ai.request.model"]: value for at, value in points["gen_ai.client.inference.usage.input_tokens"]}
    assert inputs == {"broken": 0, "spare": 1}
    assert {at.get("error.type"): value[1] for at, value in points["gen_ai.invoke_agent.duration"]} == {None: 1, "server_error": 1}
    assert meters.counts()["gen_ai.invoke_agent.inference_calls"] == 2


async def test_tools_that_failed_are_told_apart_and_made_up_names_are_one() -> None:
    @tool
    def refuses() -> ToolResponse:
        """Say no."""
        return ToolResponse.error("no")

    meters = Meters()
    asked = [{"name": "look"}, {"name": "refuses"}, *({"name": f"made up {number}"} for number in range(3))]
    await agent(ScriptedModel.saying({"tool_calls": asked}, "done"), meters.tracing, tools=[look, refuses])("go")
    found = {(at["gen_ai.tool.name"], at.get("error.type")): value[1] for at, value in meters.points()["gen_ai.execute_tool.duration"]}
    assert found == {("look", None): 1, ("refuses", "tool_error"): 1, ("_OTHER", "unknown_tool"): 3}
    assert meters.points()["gen_ai.invoke_agent.tool_calls"][0][1] == (5, 1)


async def test_a_gateway_counts_tokens_by_itself() -> None:
    class Gateway(ScriptedModel):
        takes_reply_labels = True  # type: ignore[assignment]

    meters = Meters()
    await agent(Gateway.saying("hi"), meters.tracing)("go")
    points = meters.points()
    assert not [name for name in points if "token" in name and "chunk" not in name]
    assert points["gen_ai.client.inference.duration"][0][0]["gen_ai.provider.name"] == "spangate"


async def test_a_cancelled_request_is_measured_without_an_error() -> None:
    meters = Meters()
    await cancelled_amid(meters.tracing)
    assert "gen_ai.client.inference.time_to_first_chunk" in meters.points()
    assert ["error.type" in at for at, _ in meters.points()["gen_ai.client.inference.duration"]] == [False]


async def test_a_wait_for_a_rate_limit_is_measured() -> None:
    meters = Meters()
    bot = agent(ScriptedModel(), meters.tracing, RateLimitMiddleware(0.3))
    await asyncio.gather(bot("one"), bot("two"))
    [(attributes, (seconds, count))] = meters.points()["spangate.rate_limit.wait.duration"]
    assert (attributes, count) == ({}, 1)
    assert seconds > 0


async def test_spans_and_metrics_come_together_and_each_alone() -> None:
    spans, meters = Spans(), Meters()
    both = TracingMiddleware(spans.provider, meter_provider=meters.provider)
    await agent(stepping(1), both)("go")
    assert len(spans.ended) == 4
    assert said(spans.one("execute_tool"))["gen_ai.tool.name"] == "look"
    assert meters.counts()["gen_ai.client.operation.duration"] == 2
    alone = Spans()
    await agent(stepping(1), TracingMiddleware(alone.provider))("go")
    assert len(alone.ended) == 4
    assert meters.counts()["gen_ai.client.operation.duration"] == 2
    without = TracingMiddleware(NoOpTracerProvider())
    assert not without.takes_part()


async def test_an_instrument_that_fails_fails_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def record(self, *given: Any) -> None:
            raise OSError("full")

        add = record

    class Meter:
        def create_histogram(self, *given: Any, **more: Any) -> Any:
            return Broken()

        create_counter = create_histogram

    class Provider:
        def get_meter(self, *given: Any) -> Any:
            return Meter()

    tracing = TracingMiddleware(NoOpTracerProvider(), meter_provider=Provider())  # type: ignore[arg-type]
    events = await told(agent(stepping(1), tracing, RateLimitMiddleware(0.02)).stream("go"))
    assert events[-1].type == "REPLY_END"
    assert set(caplog.messages) == {"a span lacks what could not be written: OSError"}


def test_the_buckets_are_the_conventions() -> None:
    made: dict[str, Any] = {}

    class Meter:
        def create_histogram(self, name: str, unit: str, about: str, *, explicit_bucket_boundaries_advisory: Any) -> Any:
            made[name] = (unit, explicit_bucket_boundaries_advisory)

        def create_counter(self, name: str, unit: str, about: str) -> Any:
            made[name] = (unit, ())

    Measures(Meter())  # type: ignore[arg-type]
    known = {each.name: (each.unit, each.buckets) for each in vars(semconv).values() if isinstance(each, semconv.Instrument)}
    assert made == {name: known[name] for name in made}
    assert len(made) == 19


async def test_a_layer_that_asks_for_its_own_ends_is_measured_too() -> None:
    class Asks(MiddlewareBase):
        async def before_model(self, agent: Any) -> None:
            await agent.ask("?", purpose="guard", by=self)

    meters = Meters()
    model = ScriptedModel([{"answer": calls("look"), "times": 1}, {"answer": {"text": "x"}, "usage": {"input": 1, "output": 1}}])
    stream = agent(model, meters.tracing, Asks()).stream("go")
    answer = await stream.result()
    requests = len(stream.view.attempts)
    assert meters.counts()["gen_ai.client.inference.duration"] == requests
    assert meters.points()["gen_ai.invoke_agent.inference_calls"][0][1] == (requests, 1)
    assert isinstance(answer.usage, ChatUsage)
