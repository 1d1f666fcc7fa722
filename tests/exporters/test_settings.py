"""exporters/settings.py: what `telemetry` may say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from spangate.exporters.settings import Slower, Telemetry


def test_all_of_it() -> None:
    telemetry = Telemetry.model_validate(
        {
            "otlp": {"endpoint": "https://collector:4318/", "headers": {"Authorization": "Bearer secret"}, "protocol": "grpc"},
            "sampling": {"ratio": 0.1, "keep": ["refused", "failed", {"slower": "10s"}]},
            "capture_content": "none",
            "genai_metrics": "v0_1",
            "http_spans": True,
        }
    )
    assert telemetry.otlp.endpoint == "https://collector:4318"
    assert telemetry.otlp.headers["authorization"].get_secret_value() == "Bearer secret"
    assert telemetry.sampling.keep == ["refused", "failed", Slower(slower=10.0)]
    assert "secret" not in repr(telemetry)


def test_nothing_of_it() -> None:
    telemetry = Telemetry()
    assert (telemetry.otlp.endpoint, telemetry.sampling.ratio, telemetry.sampling.keep) == (None, 1.0, [])
    assert (telemetry.capture_content, telemetry.genai_metrics, telemetry.http_spans) == ("none", "both", False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"otlp": {"endpoint": "collector:4318"}},
        {"otlp": {"endpoint": "ftp://collector"}},
        {"otlp": {"endpoint": "http://"}},
        {"otlp": {"endpoint": "http://user:secret@collector"}},
        {"otlp": {"endpoint": "http://collector?key=1"}},
        {"otlp": {"endpoint": "http://collector:99999"}},
        {"otlp": {"endpoint": "http://collector/a b"}},
        {"otlp": {"endpoint": "http://collector/\r\nx: y"}},
        {"otlp": {"headers": {"a b": "c"}}},
        {"otlp": {"headers": {"a": "b\r\nc: d"}}},
        {"otlp": {"headers": {"a": "é"}}},
        {"otlp": {"protocol": "http/json"}},
        {"sampling": {"ratio": 1.5}},
        {"sampling": {"keep": ["cheap"]}},
        {"sampling": {"keep": [{"slower": 0}]}},
        {"capture_content": "full"},
        {"genai_metrics": "all"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_what_it_may_not_say(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        Telemetry.model_validate(wrong)
    assert "secret" not in str(caught.value)


def test_every_key_is_told() -> None:
    schema = Telemetry.model_json_schema()
    for section in (schema, *schema["$defs"].values()):
        assert section["description"]
        for name, field in section["properties"].items():
            assert field.get("description") or "$ref" in field, name
