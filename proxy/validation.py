"""pydantic's findings as mistakes: where in the file, in words of ours, without the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..policies.terms import MISTAKE
from .document import Document, Node, Step, path_text
from .kinds import MODEL_PARTS
from .mistakes import Mistake, did_you_mean, quoted
from .settings import MODEL_PATTERN, NAME_PATTERN

# What pydantic says of these is about Python; `{…}` are from the error's context.
WORDS = {
    "missing": "is missing",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping such as {{key: value}}",
    "model_attributes_type": "must be a mapping such as {{key: value}}",
    "list_type": "must be a list",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length}, not {actual_length}",
    "too_long": "must have at most {max_length}, not {actual_length}",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_pattern_mismatch": "must match {pattern}",
    "union_tag_not_found": "`kind` is missing",
}
TAG = re.compile(r"<.*>")
PATTERNS = {
    NAME_PATTERN: "a name is made of letters, digits and . _ -, begins with a letter or digit, and has at most 64",
    MODEL_PATTERN: "a model's name has no spaces and at most 200 characters, all of ASCII",
}


def mistakes_of(error: ValidationError, document: Document, schema: Mapping[str, Any]) -> list[Mistake]:
    """One mistake for each finding; `schema` (of the class that was validated) tells which keys are known where."""
    findings = [_Finding(details, document) for details in error.errors(include_input=False, include_url=False)]
    # Of alternatives (text or a list), the one that the value tried to be has more to say than "must be text".
    deepest = [f for f in findings if not (f.of_branch and any(f.path == other.path[: len(f.path)] != other.path for other in findings))]
    alternatives: dict[tuple[Step, ...], Mistake] = {}
    told = []
    for finding in deepest:
        if finding.details["type"] == MISTAKE:
            told += finding.within(document)
            continue
        mistake = finding.mistake(document, schema)
        if not finding.of_branch:
            told.append(mistake)
        elif before := alternatives.get(finding.path):
            alternatives[finding.path] = replace(before, message=f"{before.message}, or {mistake.message.removeprefix('must be ')}")
        else:
            alternatives[finding.path] = mistake
    return [*told, *alternatives.values()]


class _Finding:
    """One of pydantic's errors, with its place in the file: without the names of alternatives that pydantic puts between.

    `steps` keeps our own tags (`<openai>`), which choose among alternatives of the schema; `of_branch`: this is one alternative's
    complaint about the whole value.
    """

    def __init__(self, details: ErrorDetails, document: Document) -> None:
        self.details = details
        loc: tuple[Step, ...] = details["loc"]
        self.of_key = loc[-1:] == ("[key]",) and details["type"] != "extra_forbidden"
        self.path: tuple[Step, ...] = ()
        self.steps: tuple[Step, ...] = ()
        loc = loc[:-1] if self.of_key else loc
        missing = details["type"] == "missing"
        for index, step in enumerate(loc):
            there = document.node((*self.path, step)) is not None or (missing and index == len(loc) - 1)
            if there or isinstance(step, int):
                self.path = (*self.path, step)
            if there or TAG.fullmatch(str(step)):
                self.steps = (*self.steps, step)
        self.of_branch = self.path[-1:] != loc[-1:] and not missing

    def mistake(self, document: Document, schema: Mapping[str, Any]) -> Mistake:
        path, kind, of_key = self.path, self.details["type"], self.of_key
        if kind == "extra_forbidden":
            of_key = True
            message = _unknown_key(self.steps, schema)
        elif kind in {"union_tag_invalid", "literal_error", "enum"}:
            path = (*path, "kind") if kind == "union_tag_invalid" else path
            message = _unknown_word(self.details, document.written(path))
        else:
            message = _words(self.details, path)
            node = document.node(path)
            if kind.endswith("_type") and node is not None and node.value is None:
                message = f"is empty; it {message}"
        return Mistake(document.file, *document.place(path, key=of_key), path_text(path), message)

    def within(self, document: Document) -> list[Mistake]:
        """The mistakes in a condition, each where it is."""
        path = path_text(self.path)
        return [
            Mistake(document.file, *_place_within(document, self.path, line, column), path, message)
            for line, column, message in self.details["ctx"]["mistakes"]
        ]


def _place_within(document: Document, path: tuple[Step, ...], line: int, column: int) -> tuple[int, int]:
    """Line and column in the file of a place in the text at `path`; of that text where it can't be told."""
    node = document.node(path)
    if node is None or not isinstance(node.value, str) or "${" in node.written:
        return document.place(path)
    return _within(node, document.lines, line, column) or (node.line, node.column)


def _within(node: Node, lines: list[str], line: int, column: int) -> tuple[int, int] | None:
    """Where in the file a place of a text is: `line` and `column` of what the text says, which begins at `node`."""
    said = node.value.split("\n")
    if line > len(said) or node.line > len(lines):
        return None
    row = said[line - 1]
    if node.style == "|":
        source = lines[node.line + line - 1] if node.line + line <= len(lines) else ""
        return node.line + line, len(source) - len(source.lstrip()) - (len(row) - len(row.lstrip())) + column
    quoted = node.style in ("'", '"')
    first = lines[node.line - 1][node.column - 1 + quoted :]
    if len(said) == 1 and node.style != ">" and len(row) <= len(first):
        doubled = sum(row.count(each, 0, column - 1) for each in {"'": "'", '"': '"\\'}.get(node.style, ""))
        return node.line, node.column + quoted + column - 1 + doubled
    # What stands in several lines is read as one, with a space between.
    offset = sum(len(each) + 1 for each in said[: line - 1]) + column - 1
    for number, source in enumerate(([] if node.style == ">" else [first]) + lines[node.line :], node.line + (node.style == ">")):
        piece = source.strip()
        if offset <= len(piece):
            begun = node.column + quoted if source is first else len(source) - len(source.lstrip()) + 1
            return number, begun + offset
        offset -= len(piece) + 1
    return None


def _unknown_key(loc: tuple[Step, ...], schema: Mapping[str, Any]) -> str:
    if loc[-1] in MODEL_PARTS and "policies" in loc:
        return f"is set under a model, as in fast: {{{loc[-1]}: {{…}}}}, and not in a list of policies"
    known = known_keys(schema, loc[:-1])
    hint = did_you_mean(str(loc[-1]), known)
    if not hint and 0 < len(known) <= 14:
        hint = f"; known here: {', '.join(sorted(known))}"
    return f"unknown key{hint}"


def _unknown_word(details: ErrorDetails, written: str) -> str:
    told = details.get("ctx", {})
    words = re.findall(r"'<?([^'>]*)>?'", str(told.get("expected") or told.get("expected_tags") or ""))
    return f"{quoted(written)} is not one of {', '.join(words)}{did_you_mean(written, words)}"


def _words(details: ErrorDetails, path: tuple[Step, ...]) -> str:
    kind, told = details["type"], details.get("ctx", {})
    if kind == "too_long" and path[-1:] == ("targets",):
        return f"a model has exactly one target for now, not {told.get('actual_length')}"
    if kind == "too_short" and path[-1:] == ("targets",):
        return "is empty: a model needs a target, as in [{provider: openai}]"
    if kind.startswith("model_") and path[-2:-1] == ("policies",):
        return "must be the name of a list of policies, or a policy such as {access: {…}}"
    if kind == "string_pattern_mismatch" and told.get("pattern") in PATTERNS:
        return PATTERNS[str(told["pattern"])]
    if kind in WORDS:
        return WORDS[kind].format(**told)
    message = details["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


def known_keys(schema: Mapping[str, Any], loc: tuple[Step, ...]) -> set[str]:
    """Every key that may stand in the mapping at `loc`, by the JSON Schema."""
    places = _branches(schema, schema)
    for step in loc:
        places = [branch for place in places for branch in _inside(place, step, schema)]
    return {key for place in places for key in place.get("properties", ())}


def _inside(place: Mapping[str, Any], step: Step, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if TAG.fullmatch(str(step)):
        # A tag chooses among the branches; one that isn't a provider's kind (<rule>) leaves them all.
        kind = place.get("properties", {}).get("kind", {}).get("const")
        return [place] if kind is None or f"<{kind}>" == step else []
    if isinstance(step, int):
        inner = [place["items"]] if isinstance(place.get("items"), dict) else []
    elif step in place.get("properties", {}):
        inner = [place["properties"][step]]
    else:
        rest = place.get("additionalProperties")
        inner = [*place.get("patternProperties", {}).values(), *([rest] if isinstance(rest, dict) else [])]
    return [branch for found in inner for branch in _branches(found, schema)]


def _branches(place: Mapping[str, Any], schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schema itself, with references followed and alternatives laid out."""
    if "$ref" in place:
        return _branches(schema["$defs"][place["$ref"].rpartition("/")[2]], schema)
    inner = [*place.get("anyOf", ()), *place.get("oneOf", ()), *place.get("allOf", ())]
    return [branch for found in inner for branch in _branches(found, schema)] if inner else [place]
