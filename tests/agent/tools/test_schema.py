"""agent/tools/schema.py: what a model is told, from a signature and a docstring."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from spangate.agent.tools.schema import arguments_model, described, schema_of


class Place(BaseModel):
    """A place."""

    city: str
    country: str = "it"


def weather(
    place: Place,
    days: Annotated[int, Field(ge=1)] = 1,
    unit: Literal["c", "f"] = "c",
    schema: str = "",
    _private: str = "",
    _agent_state: Any = None,
) -> str:
    """The weather.

    For several days.

    Args:
        place (Place): Where; a city
            and a country.
        days: How many days.

    Returns:
        A text.
    """
    return f"{place}{days}{unit}{schema}{_private}{_agent_state}"


def test_a_docstring_in_googles_way() -> None:
    assert described(weather.__doc__) == (
        "The weather.\n\nFor several days.",
        {"place": "Where; a city and a country.", "days": "How many days."},
    )


def test_a_docstring_in_sphinxs_way() -> None:
    assert described("Do.\n\n:param a: the first\n    one\n:param int b: the second\n:returns: x") == (
        "Do.",
        {"a": "the first one", "b": "the second"},
    )
    assert described(None) == ("", {})


def test_a_schema_from_a_signature() -> None:
    schema = schema_of(arguments_model(weather, described(weather.__doc__)[1]))
    assert schema["properties"]["days"] == {"default": 1, "description": "How many days.", "minimum": 1, "type": "integer"}
    assert schema["properties"]["unit"] == {"default": "c", "enum": ["c", "f"], "type": "string"}
    assert set(schema["properties"]) == {"place", "days", "unit", "schema", "_private"}
    assert schema["$defs"]["Place"]["properties"] == {"city": {"type": "string"}, "country": {"default": "it", "type": "string"}}
    assert (schema["required"], schema["additionalProperties"]) == (["place"], False)


def test_a_property_called_title_stays() -> None:
    class Book(BaseModel):
        title: str

    assert schema_of(Book)["properties"] == {"title": {"type": "string"}}
    assert schema_of({"type": "object"}) == {"type": "object"}


def test_what_a_model_cannot_fill_is_said_at_once() -> None:
    def many(*things: str) -> None:
        """Many."""

    def positional(a: int, /) -> None:
        """Positional."""

    def unknown(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Unknown."""

    for function, words in ((many, "'things'; give it a name"), (positional, "'a'; give it a name"), (unknown, "'Nowhere' can't be read")):
        with pytest.raises(TypeError, match=words):
            arguments_model(function, {})
