"""What a script may say: one class a mapping, one field a key, one docstring a field. `script.py` plays it.

- when: {model: "echo*", contains: weather, attempt: 1}
  answer: {text: "…", tool_calls: [{name: get_weather, arguments: {city: Rome}}], finish: stop, chunks: 12, every: 20ms, first: 200ms}
  usage: {input: 13, output: 20}
  fault: {status: 429, headers: {retry-after: "2"}}
  times: 2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError
from pydantic_core import ErrorDetails

from .amounts import Duration

UsageMode = Literal["omit", "late", "twice", "cumulative"]
FaultWord = Literal["truncate", "error_in_200", "empty"]
Count = Annotated[int, Field(ge=0, le=2**40)]


class Part(BaseModel):
    """A mapping of a script: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


class When(Part):
    """What a call must be for a rule to answer it; what isn't said doesn't matter."""

    model: str = "*"
    """The model's name, exact or with `*`."""
    contains: str = ""
    """A text that one of the messages holds, in either case."""
    attempt: Annotated[int, Field(ge=1)] | None = None
    """Which attempt of the call this is, from 1."""

    def fits(self, model: str, attempt: int, texts: Sequence[str]) -> bool:
        sought = self.contains.casefold()
        return (
            fits_glob(self.model, model)
            and self.attempt in (None, attempt)
            and (not sought or any(sought in text.casefold() for text in texts))
        )


def fits_glob(pattern: str, name: str) -> bool:
    """Whether `name` is meant by `pattern`, in which `*` alone is special."""
    return pattern == "*" or fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


class ToolCall(Part):
    """A tool that the answer calls."""

    name: Annotated[str, Field(min_length=1)]
    """The tool's name."""
    arguments: dict[str, Any] | str = {}
    """Its arguments: a mapping, or text that goes out as it is (so that it may be no JSON)."""
    id: str | None = None
    """The id of this tool call. Default: one made of the answer's number."""


class Answer(Part):
    """What the answer says and how it comes. One that says nothing echoes the last user message."""

    text: str | None = None
    """Its text."""
    tool_calls: list[ToolCall] = []
    """Tools that it calls."""
    reasoning: str = ""
    """Reasoning that comes before the text."""
    finish: str | None = None
    """Its finish_reason. Default: `tool_calls` if it calls tools, else `stop`."""
    chunks: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """In how many pieces the text comes as a stream; likewise the reasoning and each tool call's arguments. Default: text and
    reasoning a word at a time, arguments whole."""
    every: Duration = 0.0
    """The pause between two pieces."""
    first: Duration = 0.0
    """The pause before the first piece."""
    headers: dict[str, str] = {}
    """Headers of the answer, such as those in which providers tell their limits (`x-ratelimit-remaining-requests`, …). The gateway goes
    by them; to callers none goes on."""

    @property
    def echoes(self) -> bool:
        return self.text is None and not self.tool_calls and not self.reasoning


class Figures(Part):
    """The usage that the answer reports, in tokens. Default: one a word."""

    input: Count | None = None
    """Tokens of the request."""
    output: Count | None = None
    """Tokens of the answer, all choices together."""
    cached: Count = 0
    """The part of `input` that was read from a cache."""
    cache_write: Count = 0
    """The part of `input` that was written to a cache."""
    reasoning: Count = 0
    """The part of `output` that was reasoning."""


class Refusal(Part):
    """An error status instead of an answer."""

    status: Annotated[int, Field(ge=400, le=599)]
    """The HTTP status."""
    headers: dict[str, str] = {}
    """Headers of the answer, which the gateway goes by; as from any provider, `retry-after` and `retry-after-ms` alone go on."""
    message: str | None = None
    """What the error says."""
    type: str | None = None
    """The error's `type`. Default: the one that OpenAI sends with this status."""
    code: str | None = None
    """The error's `code`. Default: the one that OpenAI sends with this status."""
    param: str | None = None
    """The error's `param`."""


class Reset(Part):
    """A connection that breaks in the middle of the answer."""

    reset_after: Annotated[int, Field(ge=0)]
    """After how many pieces; 0: before any. A whole answer never comes."""


class Stall(Part):
    """An answer that falls silent for ever."""

    stall_after: Annotated[int, Field(ge=0)]
    """After how many pieces; 0: before any. A whole answer never comes."""


def _usage_tag(value: Any) -> str:
    return "<figures>" if isinstance(value, dict | Figures) else "<word>"


def _fault_tag(value: Any) -> str:
    if isinstance(value, str):
        return "<word>"
    named = value if isinstance(value, dict) else getattr(value, "model_fields_set", ())
    return "<reset>" if "reset_after" in named else "<stall>" if "stall_after" in named else "<status>"


Usages = Annotated[Union[Annotated[Figures, Tag("<figures>")], Annotated[UsageMode, Tag("<word>")]], Discriminator(_usage_tag)]
Faults = Annotated[
    Union[
        Annotated[Refusal, Tag("<status>")],
        Annotated[Reset, Tag("<reset>")],
        Annotated[Stall, Tag("<stall>")],
        Annotated[FaultWord, Tag("<word>")],
    ],
    Discriminator(_fault_tag),
]


class Rule(Part):
    """One rule of a script: the first whose `when` fits a call answers it."""

    when: When = When()
    """Which calls it answers. Default: all."""
    answer: Answer = Answer()
    """What it answers. Default: an echo of the last user message."""
    usage: Usages = Figures()
    """The usage it reports: figures, or how they come: `omit` (never), `late` (after a pause, last of all), `twice`, or
    `cumulative` (on every chunk, growing)."""
    fault: Faults | None = None
    """What goes wrong: an error status, `reset_after`, `stall_after`, `truncate` (it ends without a finish_reason),
    `error_in_200` (an error where the first content was due) or `empty` (nothing at all)."""
    times: Annotated[int, Field(ge=1)] | None = None
    """How often it answers; then the next rule that fits does. Default: for ever."""


class ScriptMistakes(ValueError):
    """A script that can't be used: a line for every mistake in it."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(problems))


def problems_of(error: ValidationError, number: int) -> list[str]:
    """What is wrong with the rule of this number, a line each: `rule 2: fault.stats: unknown key; did you mean "status"?`"""
    found = error.errors(include_input=False, include_url=False)
    # A misspelt key is told once, not also as the one that is missing.
    misspelt = {details["loc"][:-1] for details in found if details["type"] == "extra_forbidden"}
    told = [each for each in found if each["type"] != "missing" or each["loc"][:-1] not in misspelt]
    return [": ".join(filter(None, (f"rule {number}", _path(details), _words(details)))) for details in told]


_PLACES: Mapping[tuple[str, ...], tuple[type[Part], ...]] = {
    (): (Rule,),
    ("when",): (When,),
    ("answer",): (Answer,),
    ("answer", "tool_calls"): (ToolCall,),
    ("usage",): (Figures,),
    ("fault",): (Refusal, Reset, Stall),
}


def _steps(details: ErrorDetails) -> list[str | int]:
    """Where in the rule, without pydantic's tags of unions."""
    return [step for step in details["loc"] if isinstance(step, int) or not step.startswith("<")]


def _path(details: ErrorDetails) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in _steps(details)).lstrip(".")


def _words(details: ErrorDetails) -> str:
    kind = details["type"]
    if kind == "extra_forbidden":
        *place, key = _steps(details)
        parts = _PLACES[tuple(step for step in place if isinstance(step, str))]
        known = [name for part in parts for name in part.model_fields]
        return f"unknown key{_near(str(key), known)}"
    if kind == "missing":
        return "is missing"
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]


def _near(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word[:200], known, n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else f"; known here: {', '.join(known)}" if known else ""
