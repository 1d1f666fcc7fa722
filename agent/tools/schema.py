"""From a function to what a model is told of it: name, description and JSON Schema, read from its signature and its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

INJECTED = ("_agent", "_agent_state")

_SECTION = re.compile(r"^(args|arguments|parameters|returns|return|yields|raises|examples?|notes?):?\s*$", re.IGNORECASE)
_GOOGLE = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[\w\[\], |.]+\s+)?(\w+)\s*:\s*(.*)$")


def described(doc: str | None) -> tuple[str, dict[str, str]]:
    """The description in a docstring, and what it says of each parameter (Google's and Sphinx's way)."""
    lines = inspect.cleandoc(doc or "").splitlines()
    said: list[str] = []
    parameters: dict[str, list[str]] = {}
    section, current, depth = "", "", 0
    for line in lines:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        sphinx = _SPHINX.match(text)
        if sphinx:
            section, current = "sphinx", sphinx[1]
            parameters[current] = [sphinx[2]]
        elif _SECTION.match(text) and indent == 0:
            section, current, depth = text.rstrip(":").lower(), "", 0
        elif text.startswith(":") and section in ("", "sphinx"):
            section = "sphinx"
            current = ""
        elif section in ("args", "arguments", "parameters"):
            depth = depth or indent
            found = _GOOGLE.match(text) if indent == depth else None
            if found:
                current = found[1].lstrip("*")
                parameters[current] = [found[2]]
            elif current and text:
                parameters[current].append(text)
        elif section == "sphinx" and current and text:
            parameters[current].append(text)
        elif not section:
            said.append(line)
    told = {name: " ".join(filter(None, words)).strip() for name, words in parameters.items()}
    return "\n".join(said).strip(), told


def arguments_model(function: Callable[..., Any], notes: Mapping[str, str]) -> Any:
    """A pydantic model of the function's arguments.

    Raises:
        TypeError: an annotation can't be read, or a parameter has no name to be called by.
    """
    from pydantic import ConfigDict, Field, create_model

    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"{function.__name__}: the annotation {error.name!r} can't be read from here; define it in the module.") from None
    field: Any = Field  # its overloads know no alias that may be absent
    fields: dict[str, Any] = {}
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in INJECTED or name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{function.__name__}: a model can't fill {name!r}; give it a name.")
        if parameter.kind is parameter.VAR_KEYWORD:
            config["extra"] = "allow"
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[_field(name)] = (hints.get(name, Any), field(default, description=notes.get(name) or None, **_alias(name)))
    return create_model(f"{function.__name__}_arguments", __config__=config, **fields)


def _field(name: str) -> str:
    # pydantic has other plans for names that start with an underscore, and for a few of its own.
    return f"field_{name}" if name.startswith(("_", "model_")) or name in ("schema", "json", "dict", "copy", "validate") else name


def _alias(name: str) -> dict[str, str]:
    return {} if _field(name) == name else {"alias": name}


def untitled(schema: Any) -> Any:
    """The schema without the titles that pydantic makes of names: they cost tokens and say nothing."""
    if isinstance(schema, list):
        return [untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            out[key] = {name: untitled(each) for name, each in value.items()}
        elif key in ("enum", "const", "default", "examples"):
            out[key] = value
        elif key != "title" or not isinstance(value, str):
            out[key] = untitled(value)
    return out


def schema_of(model: Any) -> dict[str, Any]:
    """The JSON Schema of a pydantic model, or of a schema itself."""
    if isinstance(model, Mapping):
        return dict(model)
    schema: dict[str, Any] = untitled(model.model_json_schema())
    schema.pop("description", None)
    return schema
