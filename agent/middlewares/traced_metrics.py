"""What an agent measures: its requests to models, its tools, its replies. Through the OpenTelemetry API, by whichever provider the process
has. What stands on a metric is bounded: no id, no user, no name that a model made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram, Meter

from ...exporters import semconv
from ...exporters.semconv import GenaiNames, Instrument
from ..messages.msg import ChatUsage
from .harmless import harmless

Labels = Mapping[str, Any]
_KEY = otel.create_key("spangate-measures")


class Measures:
    """The instruments of one meter. `names`: which names of requests to models are told."""

    def __init__(self, meter: Meter, names: GenaiNames = "both") -> None:
        self._meter = meter
        self._older, self._newer = names != "v0_1", names != "legacy"
        self._durations = self._two(semconv.CLIENT_OPERATION_DURATION, semconv.INFERENCE_DURATION)
        self._firsts = self._two(semconv.CLIENT_OPERATION_FIRST_CHUNK, semconv.INFERENCE_FIRST_CHUNK)
        self._per_chunk = self._two(semconv.CLIENT_OPERATION_PER_CHUNK, semconv.INFERENCE_PER_CHUNK)
        self._tokens = self._histogram(semconv.CLIENT_TOKEN_USAGE) if self._older else None
        self._inputs, self._outputs = self._of_one(semconv.INFERENCE_OPERATION_INPUT), self._of_one(semconv.INFERENCE_OPERATION_OUTPUT)
        self._counters = [self._counter(each) for each in USAGE] if self._newer else []
        self._tool = self._histogram(semconv.EXECUTE_TOOL_DURATION)
        self._reply = self._histogram(semconv.INVOKE_AGENT_DURATION)
        self._inference_calls = self._histogram(semconv.INVOKE_AGENT_INFERENCE_CALLS)
        self._tool_calls = self._histogram(semconv.INVOKE_AGENT_TOOL_CALLS)
        self._waits = self._histogram(semconv.RATE_LIMIT_WAIT)

    # requests to models: `labels` are OpenTelemetry's for all of them

    def request(self, labels: Labels, seconds: float, error: str) -> None:
        for each in self._durations:
            each.record(seconds, {**labels, **_failed(error)})

    def first_chunk(self, labels: Labels, seconds: float) -> None:
        for each in self._firsts:
            each.record(seconds, labels)

    def chunk(self, labels: Labels, seconds: float) -> None:
        """One more, so long after the one before."""
        for each in self._per_chunk:
            each.record(seconds, labels)

    def usage(self, labels: Labels, usage: ChatUsage | None, error: str) -> None:
        """What one request used; None: nobody told."""
        if usage is not None and usage.source != "none":
            totals = (
                (semconv.TOKEN_INPUT, self._inputs, usage.input_tokens),
                (semconv.TOKEN_OUTPUT, self._outputs, usage.output_tokens),
            )
            for kind, instrument, tokens in totals:
                if kind == usage.unknown:
                    continue
                if self._tokens is not None:
                    self._tokens.record(tokens, {**labels, semconv.GEN_AI_TOKEN_TYPE: kind})
                if instrument is not None:
                    instrument.record(tokens, {**labels, **_failed(error)})
        for number, (counter, tokens) in enumerate(zip(self._counters, _figures(usage), strict=False)):
            # The first two begin at 0: requests that failed belong there too.
            if number < 2 or tokens:
                counter.add(tokens, {**labels, semconv.GEN_AI_TOKEN_MODALITY: semconv.MODALITY})

    # the agent's own

    def tool(self, name: str, agent: str, seconds: float, error: str) -> None:
        labels = {semconv.GEN_AI_TOOL_NAME: name, semconv.GEN_AI_TOOL_TYPE: semconv.FUNCTION, semconv.GEN_AI_AGENT_NAME: agent}
        self._tool.record(seconds, labels | _failed(error))

    def reply(self, agent: str, model: str, seconds: float, error: str, *, requests: int, tools: int) -> None:
        labels = {semconv.GEN_AI_AGENT_NAME: agent}
        self._reply.record(seconds, labels | {semconv.GEN_AI_REQUEST_MODEL: model} | _failed(error))
        self._inference_calls.record(requests, labels)
        self._tool_calls.record(tools, labels)

    @harmless
    def waited(self, seconds: float) -> None:
        """For a rate limit."""
        self._waits.record(seconds)

    # how they are made

    def _two(self, old: Instrument, new: Instrument) -> list[Histogram]:
        return [self._histogram(each) for each, told in ((old, self._older), (new, self._newer)) if told]

    def _of_one(self, new: Instrument) -> Histogram | None:
        return self._histogram(new) if self._newer else None

    def _histogram(self, told: Instrument) -> Histogram:
        return self._meter.create_histogram(told.name, told.unit, told.about, explicit_bucket_boundaries_advisory=told.buckets)

    def _counter(self, told: Instrument) -> Counter:
        return self._meter.create_counter(told.name, told.unit, told.about)


def measuring(inside: Context, measures: Measures | None) -> Context:
    """The context in which these measure."""
    return inside if measures is None else otel.set_value(_KEY, measures, inside)


def measures_now() -> Measures | None:
    """Those of the reply that is being made; None where nobody measures."""
    found = otel.get_value(_KEY)
    return found if isinstance(found, Measures) else None


USAGE = (
    semconv.INFERENCE_INPUT,
    semconv.INFERENCE_OUTPUT,
    semconv.INFERENCE_CACHE_READ,
    semconv.INFERENCE_CACHE_WRITE,
    semconv.INFERENCE_REASONING,
)


def _figures(usage: ChatUsage | None) -> tuple[int, int, int, int, int]:
    """In the order of `USAGE`."""
    if usage is None:
        return 0, 0, 0, 0, 0
    return usage.input_tokens, usage.output_tokens, usage.cache_input_tokens, usage.cache_creation_input_tokens, usage.reasoning_tokens


def _failed(error: str) -> dict[str, str]:
    return {semconv.ERROR_TYPE: error} if error else {}
