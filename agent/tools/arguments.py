"""Arguments as a model wrote them: read, repaired where there is one way to mean them, and checked against a schema.

Text that breaks off is never completed: half a command is not a command.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from string import ascii_letters
from typing import Any

_FENCE = "```"
_LONGEST_LITERAL = 100_000  # characters; Python's own parser is not made for what strangers write
_TRAILING = re.compile(r",(\s*[}\]])")


class BadArguments(ValueError):
    """The arguments can't be used; the message tells the model what to mend."""


def read(text: str) -> tuple[dict[str, Any], bool]:
    """The arguments in this JSON text, and whether they had to be repaired.

    Raises:
        BadArguments: nobody can tell what was meant.
    """
    if not text.strip():
        return {}, False
    value, repaired = _loaded(text)
    if isinstance(value, str):  # encoded twice
        value, repaired = _loaded(value)[0], True
    if value is None:
        return {}, True
    if not isinstance(value, dict):
        raise BadArguments(f"The arguments must be one JSON object, not {_kind(value)}.")
    return value, repaired


def _loaded(text: str) -> tuple[Any, bool]:
    try:
        return json.loads(text), False
    except (ValueError, RecursionError) as error:
        first = error
    bare = _unfenced(text.strip())
    for attempt in (bare, _TRAILING.sub(r"\1", bare)):
        try:
            return json.loads(attempt, strict=False), True
        except (ValueError, RecursionError):
            continue
    if len(bare) <= _LONGEST_LITERAL:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return ast.literal_eval(bare), True  # a Python dict: single quotes, True, None
    raise BadArguments(f"The arguments are no JSON: {first}. Send one complete JSON object.")


def _unfenced(text: str) -> str:
    """What stands in a block of code, if it is one. By hand: what a model writes is no text to let a pattern search its way through."""
    inner = text.removeprefix(_FENCE)
    if not text.startswith(_FENCE) or not inner.endswith(_FENCE):
        return text
    return inner.removesuffix(_FENCE).lstrip(ascii_letters).strip()  # the letters name a language


_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


def _kind(value: Any) -> str:
    return next((name for name in ("null", "boolean", "integer", "number", "string", "array", "object") if _is(value, name)), "?")


def _is(value: Any, name: str) -> bool:
    if name in ("integer", "number") and isinstance(value, bool):
        return False
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, object))


def mistakes(value: Any, schema: Any, path: str = "", root: Any = None) -> list[str]:
    """What is wrong with `value` by this JSON Schema, a line each. The words that tools use are known; others are let pass."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping):
        return [f"{path or 'it'}: not allowed"] if schema is False else []
    if isinstance(schema.get("$ref"), str):
        return mistakes(value, _resolved(schema["$ref"], root), path, root)
    at = path or "it"
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds or []
    if wanted and not any(_is(value, name) for name in wanted):
        return [f"{at}: must be {' or '.join(wanted)}, not {_kind(value)}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: must be one of {json.dumps(schema['enum'], ensure_ascii=False)}"]
    if "const" in schema and value != schema["const"]:
        return [f"{at}: must be {json.dumps(schema['const'], ensure_ascii=False)}"]
    found = [line for each in schema.get("allOf", ()) for line in mistakes(value, each, path, root)]
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if options and all(mistakes(value, each, path, root) for each in options):
            found.append(f"{at}: fits none of its {len(options)} forms")
    if isinstance(value, dict):
        found += _object_mistakes(value, schema, path, root)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        found += [line for number, each in enumerate(value) for line in mistakes(each, schema["items"], f"{path}[{number}]", root)]
    return found + _bounds(value, schema, at)


def _object_mistakes(value: dict[str, Any], schema: Mapping[str, Any], path: str, root: Any) -> list[str]:
    dot = f"{path}." if path else ""
    known = schema.get("properties", {})
    found = [f"{dot}{name}: is missing" for name in schema.get("required", ()) if name not in value]
    for name, each in value.items():
        if name in known:
            found += mistakes(each, known[name], f"{dot}{name}", root)
        elif schema.get("additionalProperties") is False:
            found.append(f"{dot}{name}: unknown; known are {', '.join(known) or 'none'}")
        elif isinstance(schema.get("additionalProperties"), Mapping):
            found += mistakes(each, schema["additionalProperties"], f"{dot}{name}", root)
    return found


def _bounds(value: Any, schema: Mapping[str, Any], at: str) -> list[str]:
    found = []
    if isinstance(value, int | float) and not isinstance(value, bool):
        checks = (
            ("minimum", value.__ge__),
            ("maximum", value.__le__),
            ("exclusiveMinimum", value.__gt__),
            ("exclusiveMaximum", value.__lt__),
        )
        found += [f"{at}: breaks {word} {schema[word]}" for word, holds in checks if word in schema and holds(schema[word]) is False]
    if isinstance(value, str | list):
        sizes = ("minLength", "maxLength") if isinstance(value, str) else ("minItems", "maxItems")
        least, most = schema.get(sizes[0], 0), schema.get(sizes[1], float("inf"))
        if not least <= len(value) <= most:
            found.append(f"{at}: its length must be {least} to {most}")
    if isinstance(value, str) and isinstance(schema.get("pattern"), str) and not re.search(schema["pattern"], value):
        found.append(f"{at}: must match {schema['pattern']}")
    return found


def _resolved(reference: str, root: Any) -> Any:
    here = root
    for step in reference.removeprefix("#/").split("/"):
        here = here.get(step, {}) if isinstance(here, Mapping) else {}
    return here
