"""`when:` of a policy: CEL over what is known of a call, compiled and type-checked once, asked for each call.

    Condition.of("team == 'search' && input_tokens > 10000")(call)

The only place that knows the CEL library. It is loaded with the first condition. https://github.com/google/cel-spec
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, NamedTuple

from ..call.call import Call
from ..call.errors import shortened
from .content import content_of, tool_names

LONGEST = 4096  # characters of a condition
NAMED = "model, team, key, user, tags, op, stream, tools, input_tokens, bytes and images"


def _bytes(call: Call) -> int:
    body = call.body
    return len(body.raw) if body.raw is not None else sum([len(piece) for piece in body.pieces()])


# What each name stands for: its CEL type, and how it is found. Only what a condition names is looked for.
_READ: Mapping[str, tuple[str, Callable[[Call], Any]]] = {
    "model": ("string", lambda call: call.model),
    "team": ("string", lambda call: call.caller.team),
    "key": ("string", lambda call: call.caller.key),
    "user": ("string", lambda call: call.caller.user),
    "tags": ("map<string, string>", lambda call: dict(call.labels.tags)),
    "op": ("string", lambda call: call.op),
    "stream": ("bool", lambda call: call.head.stream),
    "tools": ("list<string>", lambda call: tool_names(call.body)),
    "input_tokens": ("int", lambda call: content_of(call).tokens(call.model)),
    "bytes": ("int", _bytes),
    "images": ("int", lambda call: content_of(call).most_images),
}

# CEL has a type called `bytes`, so that no variable may be. The library is given another name of the same length for ours.
_OURS = {"bytes": "Bytes"}
_THEIRS = {theirs: ours for ours, theirs in _OURS.items()}

_FUNCTIONS = (
    "size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "bool", "type", "has", "all", "exists",
    "exists_one", "map", "filter", "duration", "timestamp",
)  # fmt: skip

_PART = re.compile(
    r"""//[^\n]*|[rRbB]{0,2}(?:\"{3}(?s:.*?)\"{3}|'{3}(?s:.*?)'{3})|[rR][bB]?(?:"[^"\n]*"|'[^'\n]*')"""
    r"""|[bB]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<after>\.\s*)?(?P<name>[A-Za-z_]\w*)(?P<call>\s*\()?"""
)
_LEADING = re.compile(r"(?:^|[^\w\s.)\]}\"'`]|\bin)\s*\Z")
_PATTERN = re.compile(r"(?:\.\s*matches\s*\(|(?<![.\w])matches\s*\([^(),]*,)\s*\Z")
_CLOSED = re.compile(r"\s*\)")
_SIGNS = {"and": "&&", "or": "||", "not": "!"}
_ERROR = re.compile(r"ERROR: <input>:(\d+):(\d+): (.+)")
_KINDS = frozenset({"NOT_FOUND", "INVALID_ARGUMENT", "OUT_OF_RANGE", "UNKNOWN", "INTERNAL", "RESOURCE_EXHAUSTED"})
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_OVERLOAD = re.compile(r"found no matching overload for '([^']*)' applied to '(.*)'$")
_SYNTAX = re.compile(r"Syntax error: ([^{]+?)(?: expecting .*)?$")


class ConditionMistake(NamedTuple):
    """What is wrong in a condition, and where: line and column count from 1."""

    line: int
    column: int
    message: str


class ConditionMistakes(ValueError):
    """A condition that can't be used: every mistake in it that was found."""

    def __init__(self, mistakes: Sequence[ConditionMistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(f"{line}:{column}: {message}" for line, column, message in mistakes))


class ConditionFailed(Exception):
    """A condition says neither true nor false of a call. `kind` is CEL's word for why, such as NOT_FOUND; never a value."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Condition:
    """Whether something holds of a call."""

    __slots__ = ("_expression", "_names", "text")

    def __init__(self, text: str, expression: Any, names: Sequence[str]) -> None:
        self.text = text
        self._expression = expression
        self._names = [(_OURS.get(name, name), _READ[name][1]) for name in names]

    @property
    def looks(self) -> bool:
        """It asks what a call holds, which takes a while of a long one."""
        return any(name in ("input_tokens", "images") for name, _ in self._names)

    @classmethod
    @lru_cache(1024)
    def of(cls, text: str) -> Condition:
        """
        Raises:
            ConditionMistakes: it isn't CEL, names what there isn't, mixes types, or is neither true nor false.
        """
        if len(text) > LONGEST:
            raise ConditionMistakes([ConditionMistake(1, 1, f"is longer than {LONGEST} characters")])
        if not text.strip():
            raise ConditionMistakes([ConditionMistake(1, 1, "is empty; leave it out for every call")])
        if misnamed := _misnamed(text):
            raise ConditionMistakes(misnamed)
        spoken, names = _renamed(text)
        try:
            expression = _environment().compile(spoken)
        except RuntimeError as error:
            raise ConditionMistakes(_mistakes(str(error), text)) from None
        if unfit := _unfit_patterns(text):
            raise ConditionMistakes(unfit)
        kind = expression.return_type().name().lower()
        if kind not in ("bool", "dyn"):
            raise ConditionMistakes([ConditionMistake(1, 1, f"must be true or false, and this is {_a(kind)}")])
        return cls(text, expression, names)

    def __call__(self, call: Call) -> bool:
        """
        Raises:
            ConditionFailed: it can't be said: a tag that the call doesn't have, a number that is none.
        """
        try:
            said: object = self._expression.eval(data={name: read(call) for name, read in self._names}).value()
        except (RuntimeError, ValueError, TypeError):
            raise ConditionFailed("INVALID_ARGUMENT") from None
        if isinstance(said, bool):
            return said
        kind = str(said).partition(":")[0]
        raise ConditionFailed(kind if kind in _KINDS else "INVALID_ARGUMENT")

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"


@cache
def _environment() -> Any:
    from cel_expr_python import cel  # type: ignore[import-untyped]

    return cel.NewEnv(variables={_OURS.get(name, name): cel.Type(kind) for name, (kind, _) in _READ.items()})


def _renamed(text: str) -> tuple[str, list[str]]:
    """The condition in the library's names, and which of ours it uses."""
    used: dict[str, None] = {}

    def renamed(part: re.Match[str]) -> str:
        name = part["name"]
        if name is None or part["after"] or (part["call"] and name in _OURS) or name not in _READ:
            return part[0]
        used[name] = None
        return part[0].replace(name, _OURS.get(name, name))

    return _PART.sub(renamed, text), list(used)


def _misnamed(text: str) -> list[ConditionMistake]:
    """What the library would take for a name, and we don't: its own names of ours, and names from the root, which it finds nothing at."""
    bare = _bare(text)
    found = []
    for part in _PART.finditer(text):
        if part["after"] and _LEADING.search(bare, 0, part.start()):
            found.append(_at(text, part.start(), 'a name begins without "."'))
        elif not part["after"] and part["name"] in _THEIRS:
            found.append(_at(text, part.start(), _unknown(part["name"], called=False)))
    return found


def _unfit_patterns(text: str) -> list[ConditionMistake]:
    """Patterns that stand in a condition as they are, and can't be used: the library says so only when it comes to use them."""
    bare = _bare(text)
    return [
        _at(text, part.start(), "is no pattern that can be looked for")
        for part in _PART.finditer(text)
        if part["name"] is None and part[0] and _PATTERN.search(bare, 0, part.start()) and _CLOSED.match(bare, part.end())
        if not _is_pattern(part[0])
    ]


def _is_pattern(literal: str) -> bool:
    try:
        return isinstance(_environment().compile(f"''.matches({literal})").eval(data={}).value(), bool)
    except RuntimeError:  # more than the literal alone, such as bytes
        return True


def _bare(text: str) -> str:
    """Without comments, and of the same length."""
    return _PART.sub(lambda part: " " * len(part[0]) if part[0].startswith("//") else part[0], text)


def _at(text: str, at: int, message: str) -> ConditionMistake:
    return ConditionMistake(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at), message)


def _mistakes(told: str, text: str) -> list[ConditionMistake]:
    """What the library says, in our words. Of the mistakes of a grammar only the first: the others follow from it."""
    found = [(int(line), int(column), message) for line, column, message in _ERROR.findall(told)]
    if not found:
        return [ConditionMistake(1, 1, f"is not CEL: {told.partition(': ')[2] or told}")]
    syntax = [each for each in found if each[2].startswith("Syntax error")]
    return [_mistake(*each, text) for each in (syntax[:1] or sorted(found))]


def _mistake(line: int, column: int, message: str, text: str) -> ConditionMistake:
    lines = text.split("\n")
    row = lines[line - 1] if line <= len(lines) else ""
    if unknown := _UNDECLARED.match(message):
        name = unknown[1]
        called = row[: column - 1].endswith(name)  # of a function the library names the place behind
        return ConditionMistake(line, column - len(name) if called else column, _unknown(name, called=called))
    if mixed := _OVERLOAD.match(message):
        return ConditionMistake(line, column, f"{_operator(mixed[1])} doesn't go with {_types(mixed[2])}")
    if syntax := _SYNTAX.match(message):
        return ConditionMistake(line, column, f"is not CEL: {_grammar(syntax[1], row, column - 1)}")
    return ConditionMistake(line, column, f"is not CEL: {message.removesuffix(' [INVALID_ARGUMENT]')}")


def _unknown(name: str, *, called: bool) -> str:
    known = _FUNCTIONS if called else tuple(_READ)
    shown = shortened(name)
    near = get_close_matches(shown.partition(".")[0], known, n=1, cutoff=0.6)
    if near:
        return f'nothing is called "{shown}"; did you mean "{near[0]}"?'
    return f'there is no function "{shown}"' if called else f'nothing is called "{shown}"; there are {NAMED}'


def _operator(name: str) -> str:
    return f'"{name.replace("_", "")}"' if re.search(r"\W", name) else f'"{name}"'


def _types(applied: str) -> str:
    return " and ".join(applied.strip("()").split(", ")) if "(" not in applied[1:] else applied


def _grammar(said: str, row: str, at: int) -> str:
    rest = row[at:]
    if re.match(r"=(?!=)", rest):
        return 'equality is written "=="'
    if word := re.match(r"(and|or)\b", rest) or re.search(r"\b(not)\s+$", row[:at]):
        return f'"{word[1]}" is written "{_SIGNS[word[1]]}"'
    if rest.startswith(('"', "'")):
        return "a quote has no end"
    return "it ends too soon" if "<EOF>" in said and not rest.strip() else said.strip()


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
