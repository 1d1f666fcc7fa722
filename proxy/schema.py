"""The JSON Schema of spangate.yaml, for editors: pydantic's own, made fit for people who write YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..call.amounts import show_number, show_quantity, show_seconds, show_share, show_size
from .kinds import Kinds

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SHOW: Mapping[str, Callable[[Any], str]] = {
    "time": show_seconds,
    "size": show_size,
    "number": show_number,
    "quantity": show_quantity,
    "share": show_share,
}


def json_schema(kinds: Kinds | None = None) -> dict[str, Any]:
    """What `spangate schema` prints."""
    made: dict[str, Any] = _fitted((kinds or Kinds()).schema)
    return {"$schema": DIALECT, "title": "spangate.yaml", **{key: value for key, value in made.items() if key != "title"}}


def _fitted(place: Any) -> Any:
    if isinstance(place, list):
        return [_fitted(item) for item in place]
    if not isinstance(place, dict):
        return place
    fitted = {key: value if key == "default" else _fitted(value) for key, value in place.items()}
    if isinstance(fitted.get("items"), dict):
        fitted["items"] = {key: value for key, value in fitted["items"].items() if key != "x-amount"}
    if isinstance(fitted.get("properties"), dict):
        fitted["properties"] = {name: _field(field) for name, field in fitted["properties"].items()}
    return _named(fitted)


def _field(field: dict[str, Any]) -> dict[str, Any]:
    """One key: amounts as people write them, no default that only says "nothing", no name in another spelling as its title."""
    kept = {key: value for key, value in field.items() if key != "x-amount" and not (key == "title" and isinstance(value, str))}
    if "anyOf" in kept:
        kept["anyOf"] = [{key: value for key, value in choice.items() if key != "x-amount"} for choice in kept["anyOf"]]
    if kept.get("default", 0) is None:
        del kept["default"]
    if "default" in kept and "x-amount" in field:
        kept["default"] = _SHOW[field["x-amount"]](kept["default"])
    return kept


def _named(place: dict[str, Any]) -> dict[str, Any]:
    """patternProperties alone would let any other name pass."""
    if "patternProperties" in place and "additionalProperties" not in place:
        return place | {"additionalProperties": False}
    return place
