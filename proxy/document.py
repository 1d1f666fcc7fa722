"""YAML as a tree that knows where everything stands, with `${NAME}` filled in from the environment.

What belongs here: text → `Document`. Nothing knows what the keys mean. Built from the parser's events rather than PyYAML's
constructors, because these keep no place for keys, let the second of two equal keys win, read `no` and `1:30` as YAML 1.1 did,
and build objects from tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from .mistakes import Mistake, quoted

Step = str | int
Scalar = str | int | float | bool | None

MAX_DEPTH = 50
# Aliases may repeat a part, but not so often that a small file becomes a large tree ("billion laughs").
MAX_NODES = 100_000

INTEGER = re.compile(r"[-+]?[0-9]{1,30}", re.ASCII)
FLOAT = re.compile(r"[-+]?(?:[0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
WORDS: Mapping[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
TAB = re.compile(r" *\t")
VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{[^}]*\}?", re.ASCII)

# Until the mistake is mended nothing sees this value: a document with mistakes never becomes a Config.
UNSET = "unset"


@dataclass(slots=True)
class Node:
    """A value and where it begins. `size` counts the values in it; `written` is a string as the file has it, `${NAME}` and all, `style` how
    it is written there: plain, or after `'`, `"`, `|` or `>`."""

    line: int
    column: int
    value: Any
    size: int = 1
    written: str = ""
    unset: bool = False
    style: str = ""


@dataclass(slots=True)
class Entry:
    """A key and where it begins, with its value."""

    line: int
    column: int
    node: Node


@dataclass(slots=True)
class Document:
    """The tree of one file, what was wrong while it was read, and what came from the environment (for `masked`)."""

    file: str
    root: Node
    mistakes: list[Mistake] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list, repr=False)

    def plain(self) -> Any:
        """The tree as dictionaries, lists and scalars."""
        return _plain(self.root)

    def node(self, path: tuple[Step, ...]) -> Node | None:
        """What stands at `path`; None where nothing does."""
        found = self.root
        for step in path:
            inside = _step(found, step)
            if inside is None:
                return None
            found = inside.node if isinstance(inside, Entry) else inside
        return found

    def place(self, path: tuple[Step, ...], *, key: bool = False) -> tuple[int, int]:
        """Line and column of the value at `path` (of its key if asked); of the nearest thing around it where it is missing."""
        here: Node | Entry = self.root
        for step in path:
            node = here.node if isinstance(here, Entry) else here
            inside = _step(node, step)
            if inside is None:
                return here.line, here.column
            here = inside
        if isinstance(here, Entry) and not key:
            here = here.node
        return here.line, here.column

    def written(self, path: tuple[Step, ...]) -> str:
        """The string at `path` as the file has it, so that a message never shows what a variable holds."""
        found = self.node(path)
        return found.written if found is not None else ""

    def known_bad(self, path: tuple[Step, ...]) -> bool:
        """Whether the value at `path` is already a mistake: an unset variable says nothing about the rest."""
        found = self.node(path)
        return found is not None and found.unset


def read(text: str, file: str, environ: Mapping[str, str]) -> Document:
    """Parse `text`. Never raises for what stands in it: see `Document.mistakes`."""
    builder = _Builder(file, environ)
    root = Node(1, 1, None)
    try:
        events = yaml.parse(text, Loader=yaml.CSafeLoader)
        root = builder.document(events)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        builder.wrong(mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, _sentence(error, text, mark))
    except yaml.reader.ReaderError as error:
        builder.wrong(*_position(text, error.position), f"holds a character that YAML doesn't allow (U+{_code(error.character):04X})")
    except _Stop:
        pass
    return Document(file, root, builder.mistakes, builder.variables, text.split("\n"))


def path_text(path: tuple[Step, ...]) -> str:
    """`teams.search.keys[0].hash`; a key with a dot or a space in it is quoted."""
    shown = ""
    for step in path:
        if isinstance(step, int):
            shown += f"[{step}]"
        else:
            word = step if re.fullmatch(r"[\w*/:@+-]{1,64}", step) else quoted(step)
            shown += f".{word}" if shown else word
    return shown


class _Stop(Exception):
    """Nothing more can be read; the mistake is noted."""


class _Builder:
    """Events in, nodes out."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.mistakes: list[Mistake] = []
        self.variables: dict[str, str] = {}
        self.anchors: dict[str, Node] = {}
        self.total = 0

    def wrong(self, line: int, column: int, message: str, path: tuple[Step, ...] = ()) -> None:
        self.mistakes.append(Mistake(self.file, line, column, path_text(path), message))

    def stop(self, event: yaml.Event, message: str, path: tuple[Step, ...] = ()) -> _Stop:
        self.wrong(*_mark(event), message, path)
        return _Stop()

    def document(self, events: Iterator[yaml.Event]) -> Node:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise self.stop(event, "a second document begins here: a configuration is one document")
                root = self.build(next(events), events, ())
        return root if root is not None else Node(1, 1, None)

    def build(self, event: yaml.Event, events: Iterator[yaml.Event], path: tuple[Step, ...]) -> Node:
        if len(path) > MAX_DEPTH:
            raise self.stop(event, f"is nested deeper than {MAX_DEPTH} levels", path[:3])
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path)
        if getattr(event, "tag", None) not in (None, "!"):
            self.wrong(*_mark(event), "tags such as !!str or !include are not used here", path)
        if isinstance(event, yaml.ScalarEvent):
            node = self.scalar(event, path)
        elif isinstance(event, yaml.MappingStartEvent):
            node = self.mapping(event, events, path)
        else:
            node = self.sequence(event, events, path)
        self.count(event, 1, path)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            self.anchors[event.anchor] = node
        return node

    def count(self, event: yaml.Event, size: int, path: tuple[Step, ...]) -> None:
        self.total += size
        if self.total > MAX_NODES:
            raise self.stop(event, f"holds more than {MAX_NODES:,} values, aliases included", path)

    def alias(self, event: yaml.AliasEvent, path: tuple[Step, ...]) -> Node:
        # An anchor is known once its value is complete, so a value that holds itself ends here too.
        anchored = self.anchors.get(event.anchor or "")
        if anchored is None:
            raise self.stop(event, f"*{event.anchor} has no anchor &{event.anchor} before it", path)
        self.count(event, anchored.size, path)
        return anchored

    def mapping(self, start: yaml.Event, events: Iterator[yaml.Event], path: tuple[Step, ...]) -> Node:
        entries: dict[str, Entry] = {}
        size = 1
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self.key(event, path)
            if key in entries:
                first = entries[key].line
                self.wrong(*_mark(event), f"stands here twice: first in line {first}", (*path, key))
            node = self.build(next(events), events, (*path, key))
            size += node.size
            entries.setdefault(key, Entry(*_mark(event), node))
        return Node(*_mark(start), entries, size)

    def key(self, event: yaml.Event, path: tuple[Step, ...]) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self.stop(event, "a key must be text", path)
        if event.implicit[0] and not isinstance(_resolve(event.value), str):
            self.wrong(*_mark(event), f'the key {event.value or "(empty)"} must be text: write it as "{event.value}"', path)
        return str(event.value)

    def sequence(self, start: yaml.Event, events: Iterator[yaml.Event], path: tuple[Step, ...]) -> Node:
        items: list[Node] = []
        size = 1
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self.build(event, events, (*path, len(items))))
            size += items[-1].size
        return Node(*_mark(start), items, size)

    def scalar(self, event: yaml.ScalarEvent, path: tuple[Step, ...]) -> Node:
        written = str(event.value)
        # Plain text may be a number or a word of YAML; quoted text is text.
        value = _resolve(written) if event.implicit[0] else written
        node = Node(*_mark(event), value, written=written, style=event.style or "")
        if isinstance(value, str) and "${" in value:
            before = len(self.mistakes)
            node.value = VARIABLE.sub(lambda match: self.variable(match, node, path), value)
            node.unset = len(self.mistakes) > before
        return node

    def variable(self, match: re.Match[str], node: Node, path: tuple[Step, ...]) -> str:
        if match[0] == "$${":
            return "${"
        name = match[1]
        if name is None:
            self.wrong(node.line, node.column, "a variable is written ${NAME}; write $${ for a plain ${", path)
            return UNSET
        value = self.environ.get(name, "")
        if not value.strip():
            state = "is empty" if name in self.environ else "is not set"
            self.wrong(node.line, node.column, f"the environment variable {name} {state}", path)
            return UNSET
        self.variables[name] = value
        return value


def _mark(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _resolve(text: str) -> Scalar:
    """A plain scalar by the core schema of YAML 1.2: `no`, `on` and `1:30` are text, as they are in JSON's world."""
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    return float(text) if FLOAT.fullmatch(text) else text


def _plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: _plain(entry.node) for key, entry in node.value.items()}
    if isinstance(node.value, list):
        return [_plain(item) for item in node.value]
    return node.value


def _step(node: Node, step: Step) -> Entry | Node | None:
    if isinstance(node.value, dict):
        entry: Entry | None = node.value.get(step)
        return entry
    if isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
        item: Node = node.value[step]
        return item
    return None


def _sentence(error: yaml.MarkedYAMLError, text: str, mark: Any) -> str:
    """What the parser says, or better what people do wrong most often."""
    problem = (error.problem or "can't be read").replace("did not find expected", "expected")
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    before, unquoted, _ = line.partition("${")
    if unquoted and not before.endswith(("'", '"')) and ("{" in before or "[" in before):
        return 'is not YAML: inside {…} and […] write "${NAME}" with quotes'
    if "cannot start any token" in problem:
        return f"is not YAML: {problem}{'; indent with spaces, not tabs' if TAB.match(line) else '; put the text in quotes'}"
    return f"is not YAML: {problem}{f' {error.context}' if error.context else ''}"


def _position(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def _code(character: object) -> int:
    return character if isinstance(character, int) else ord(str(character)[:1] or "?")
