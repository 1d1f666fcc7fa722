"""exporters/semconv.py: its names are OpenTelemetry's wherever OpenTelemetry has them, each stands there once, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import (
    GenAiOperationNameValues,
    GenAiOutputTypeValues,
)

from spangate.call.errors import ProviderFault, SpangateError
from spangate.exporters import semconv
from spangate.exporters.semconv import Instrument
from spangate.proxy.errors import STATUS

from house.source import files, tree

PUBLISHED = (
    "opentelemetry.semconv.attributes",
    "opentelemetry.semconv.metrics",
    "opentelemetry.semconv._incubating.attributes",
    "opentelemetry.semconv._incubating.metrics",
)

# Names of the GenAI conventions v0.1.0, which has no package, and one of viewers.
NEWER = {
    "gen_ai.client.inference.duration",
    "gen_ai.client.inference.exception",
    "gen_ai.client.inference.operation.input_tokens",
    "gen_ai.client.inference.operation.output_tokens",
    "gen_ai.client.inference.time_per_output_chunk",
    "gen_ai.client.inference.time_to_first_chunk",
    "gen_ai.client.inference.usage.cache_read.input_tokens",
    "gen_ai.client.inference.usage.cache_write.input_tokens",
    "gen_ai.client.inference.usage.input_tokens",
    "gen_ai.client.inference.usage.output_tokens",
    "gen_ai.client.inference.usage.reasoning.output_tokens",
    "gen_ai.execute_tool.duration",
    "gen_ai.invoke_agent.duration",
    "gen_ai.invoke_agent.inference_calls",
    "gen_ai.invoke_agent.tool_calls",
    "gen_ai.request.reasoning.level",
    "gen_ai.token.modality",
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cost",
}

TELLING = re.compile(r"^(gen_ai|openai|http|url|server|client|network|error|exception|user_agent|service|deployment|spangate)\.[a-z_.]+$")


def names() -> dict[str, str]:
    """Every name, by its constant."""
    found = {name: value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str) and TELLING.match(value)}
    return found | {each.name: each.name for each in instruments()}


def instruments() -> list[Instrument]:
    return [value for value in vars(semconv).values() if isinstance(value, Instrument)]


def published() -> set[str]:
    modules = [import_module(f"{package}.{found.name}") for package in PUBLISHED for found in iter_modules(import_module(package).__path__)]
    return {value for module in modules for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def test_names_are_opentelemetrys() -> None:
    foreign = {value for value in names().values() if not value.startswith("spangate.")}
    assert foreign - published() == NEWER


def test_metrics_are_opentelemetrys() -> None:
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

    made: dict[str, tuple[str, str]] = {}

    class Meter:
        def create_histogram(self, name: str, unit: str, description: str) -> None:
            made[name] = ("histogram", unit)

        def create_counter(self, name: str, unit: str, description: str) -> None:
            made[name] = ("counter", unit)

    for name, create in vars(gen_ai_metrics).items():
        if name.startswith("create_"):
            create(Meter())
    ours = {each.name: (each.kind, each.unit) for each in instruments()}
    assert {name: ours[name] for name in made.keys() & ours.keys()} == {name: made[name] for name in made.keys() & ours.keys()}
    assert {"gen_ai.client.token.usage", "gen_ai.server.request.duration"} <= made.keys() & ours.keys()


def test_each_stands_there_once() -> None:
    constants = [value for name, value in names().items() if name != value]
    twice = {value for value, count in Counter(constants).items() if count > 1}
    assert twice == set()
    assert len({each.name for each in instruments()}) == len(instruments())


@pytest.mark.parametrize("path", [path for path in files("exporters") if path.name != "semconv.py"], ids=str)
def test_no_other_module_writes_one_out(path: Path) -> None:
    strings = {each.value for each in ast.walk(tree(path)) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    known = set(names().values())
    assert {each for each in strings if each in known or (TELLING.match(each) and not each.startswith("spangate."))} == set()


def test_values_are_opentelemetrys() -> None:
    assert set(semconv.OPERATIONS.values()) <= {each.value for each in GenAiOperationNameValues}
    assert set(semconv.OUTPUT_TYPES.values()) <= {each.value for each in GenAiOutputTypeValues}


def test_buckets_rise() -> None:
    for each in instruments():
        assert (each.kind == "histogram") == bool(each.buckets)
        assert list(each.buckets) == sorted(set(each.buckets))
    assert semconv.TOKENS[0] == 1
    assert semconv.TOKENS[-1] == 67108864


def test_each_error_has_a_word() -> None:
    assert semconv.REFUSALS.keys() <= STATUS.keys()
    assert semconv.FAILURES.keys() <= STATUS.keys()
    faults = {each.code for each in [ProviderFault, *ProviderFault.__subclasses__()] if issubclass(each, SpangateError)}
    assert faults == semconv.FAILURES.keys()
