"""proxy/schema.py: the JSON Schema for editors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from spangate.call import rules
from spangate.proxy.document import read
from spangate.proxy.schema import json_schema
from spangate.proxy.starter import init_text

SCHEMA = json_schema()
EXAMPLE = Path(__file__).parents[2] / "spangate.example.yaml"
MINIMUM: dict[str, Any] = {"providers": {"s": {"kind": "scripted"}}, "models": {"*": {"targets": [{"provider": "s"}]}}}


def complaints(value: object) -> list[str]:
    return [error.json_path for error in Draft202012Validator(SCHEMA).iter_errors(value)]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("text", [EXAMPLE.read_text(), init_text({"OPENAI_API_KEY": "k"}, ollama=True), init_text({}, ollama=False)])
def test_it_takes_what_loads(text: str) -> None:
    assert complaints(read(text, "f", {"OPENAI_API_KEY": "k"}).plain()) == []


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"sever": {}}, "$"),
        ({"server": {"prt": 1}}, "$.server"),
        ({"server": {"port": 99999}}, "$.server.port"),
        ({"server": {"drain": "5 parsecs"}}, "$.server.drain"),
        ({"server": {"max_body": "32mib"}}, "$.server.max_body"),
        ({"providers": {"s": {"kind": "x"}}}, "$.providers.s"),
        ({"providers": {"a b": {"kind": "scripted"}}}, "$.providers"),
        ({"models": {"*": {"targets": []}}}, "$.models['*'].targets"),
        ({"defaults": {"policies": [{}]}}, "$.defaults.policies[0]"),
        ({"teams": {"a": {"keys": [{"name": "x", "hash": "y"}]}}}, "$.teams.a.keys[0].hash"),
    ],
)
def test_it_refuses_what_does_not(change: dict[str, Any], place: str) -> None:
    assert complaints(MINIMUM) == []
    assert complaints(MINIMUM | change) == [place]


def objects(place: Any) -> list[dict[str, Any]]:
    if isinstance(place, list):
        return [found for item in place for found in objects(item)]
    if not isinstance(place, dict):
        return []
    inner = [found for key, value in place.items() if key not in {"default", "examples"} for found in objects(value)]
    return [place, *inner] if isinstance(place.get("properties"), dict) else inner


def test_every_mapping_is_closed_and_every_key_explained() -> None:
    mappings = objects(SCHEMA)
    assert len(mappings) > 10
    for mapping in mappings:
        assert mapping["additionalProperties"] is False, mapping
        for name, field in mapping["properties"].items():
            target = SCHEMA["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else {}
            assert field.get("description") or target.get("description"), (mapping.get("title"), name)


def test_amounts_are_shown_as_people_write_them() -> None:
    server = SCHEMA["$defs"]["Server"]["properties"]
    assert [server[key]["default"] for key in ("max_body", "max_calls", "drain")] == ["32MiB", "1000", "30s"]
    assert "x-amount" not in str(SCHEMA)


def test_the_example_says_every_key_but_those_of_scripts() -> None:
    example = EXAMPLE.read_text()
    parts = (rules.Rule, rules.When, rules.Answer, rules.ToolCall, rules.Figures, rules.Refusal, rules.Reset, rules.Stall)
    known = {key for place in objects(SCHEMA) for key in place["properties"]}
    scripts = {key for part in parts for key in part.model_fields}
    assert {"telemetry", "usage", "prices", "inbound_trace"} <= known
    assert [key for key in sorted(known - scripts) if not re.search(rf"\b{key}:", example)] == []
