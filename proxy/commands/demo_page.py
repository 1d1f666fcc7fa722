"""How the demo looks: in colour on a terminal, plain in a pipe, within 80 columns. Nothing here calls anybody."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ...call.seen import Attempt, Seen
from ...exporters.console import text_after_status

INDENT = "  "
_COLORS = {"completed": "green", "refused": "yellow", "failed": "red"}


def console() -> Console:
    """Standard output as it is: a terminal or not, as wide as it is, and without a style where NO_COLOR says so."""
    plain = bool(os.environ.get("NO_COLOR"))
    return Console(highlight=False, no_color=plain or None, color_system=None if plain else "auto")


class Page:
    """What the demo prints, from top to bottom."""

    def __init__(self, out: Console | None = None) -> None:
        self.out = out or console()
        self.steps = 0
        self._column = 0

    def title(self, url: str, told: str) -> None:
        self._line(Text.assemble(("spangate demo", "bold"), "  a gateway at ", (url, "cyan")))
        self._line(Text(told, "dim"))

    def step(self, told: str) -> None:
        self.steps += 1
        self._line()
        self._line(Text.assemble((f"{self.steps}  ", "bold cyan"), (told, "bold")))

    def code(self, line: str) -> None:
        self._indented(Text(line, "blue"))

    def said(self, text: str) -> None:
        self._indented(Text(text))

    def word(self, text: str) -> None:
        """A piece of a streamed answer, as soon as it is there; the line breaks where the terminal ends."""
        if not self._column or self._column + len(text.rstrip()) > self.out.width:
            self._write(("\n" if self._column else "") + INDENT)
            self._column, text = len(INDENT), text.lstrip()
        self._write(text)
        self._column += len(text)

    def end_of_words(self) -> None:
        self._write("\n")
        self._column = 0

    def call(self, seen: Seen) -> None:
        """The line that `spangate serve` prints for a call. What doesn't fit is cut from the request's id, which is last."""
        line = Text(_fitted(f"{INDENT}{seen.status} {text_after_status(seen)}", seen.id, self.out.width), "dim")
        line.stylize(f"not dim {_COLORS.get(seen.outcome or '', 'magenta')}", len(INDENT), len(INDENT) + 3)
        self._line(line)

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        grid = Table.grid(padding=(0, 2))
        for name, value in pairs:
            grid.add_row(Text(name, "dim"), Text(value))
        self._indented(grid)

    def excerpt(self, text: str, number: int, note: str) -> None:
        """The line of a file that decided, below the one that it belongs to."""
        before, line = text.splitlines()[number - 2 : number]
        self._indented(Text(f"  {number - 1:>3}  {before}", "dim"))
        self._indented(Text.assemble((f"> {number:>3}  {line}", "yellow"), f"   ({note})"))

    def usage(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under their names; the last is what they come to."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", show_footer=True, footer_style="bold")
        *teams, whole = rows
        for number, name in enumerate(names):
            table.add_column(name, whole[number], justify="right" if number else "left")
        for row in teams:
            table.add_row(*row)
        self._indented(table)

    def trace(self, seen: Seen) -> None:
        """One call as a tree: what came in, and below it each request that was sent upstream for it."""
        color = _COLORS.get(seen.outcome or "", "magenta")
        root = Tree(_span(f"{seen.method} {seen.path}", seen.duration, f"{seen.status} {seen.outcome}", color), guide_style="dim")
        root.add(Text(f"team {seen.team}, key {seen.key}, asked for {seen.model}", "dim"))
        for attempt in seen.attempts:
            color = "green" if attempt.outcome == "success" else "red"
            root.add(_span(f"{seen.op} {attempt.target_model}", attempt.ended - attempt.started, _sent(seen, attempt), color))
        self._indented(root)
        self._indented(Text(f"trace {seen.trace_hex}", "dim"))

    def end(self, seconds: float, lines: Iterable[tuple[str, str]], told: str = " and left nothing behind.") -> None:
        """What to do next, one thing a line, and how long it took."""
        self._line()
        grid = Table.grid(padding=(0, 2))
        for command, what in lines:
            grid.add_row(Text(command, "bold cyan"), Text(what))
        self._indented(grid)
        self._line()
        self._line(Text(f"Took {seconds:.1f} s{told}", "dim"))

    def say(self, told: str) -> None:
        self._line()
        self._line(Text(told, "dim"))

    def kept(self, url: str, keys: Mapping[str, str], file: str, program: str) -> None:
        """What a gateway that goes on can be asked for. Its keys are good for as long as it runs, so they may be seen."""
        self.step(f"It goes on at {url}/v1: try it from another terminal")
        self.facts([(team, key) for team, key in keys.items()])
        key = next(iter(keys.values()))
        body = '{"model": "fast", "messages": [{"role": "user", "content": "What is a gateway for?"}]}'
        ask = f"curl {url}/v1/chat/completions -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{body}'"
        self.paste("a call (ask for the weather in Rome, a refund, or an incident, which fails)", ask)
        self.paste("the same from any OpenAI client", f"export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}")
        query = "SELECT * FROM usage_by_team"
        self.paste("usage with SQL, and calls as they end", f'{program} sql -c {file} "{query}"\n{program} tail -c {file}')
        self.paste("metrics", f"curl {url}/metrics")

    def paste(self, told: str, command: str) -> None:
        """A command to paste: it stays whole, however narrow the terminal is."""
        self._line()
        self._indented(Text(told, "dim"))
        self.out.print(Text(command, "cyan"), soft_wrap=True)

    def _indented(self, what: Text | Table | Tree) -> None:
        """Without the blanks that fill a table's last column."""
        narrower = self.out.options.update(max_width=max(self.out.width - len(INDENT), 1))
        for line in self.out.render_lines(what, narrower, pad=False):
            text = Text.assemble(INDENT, *((segment.text, segment.style or "") for segment in line))
            text.rstrip()
            self.out.print(text, soft_wrap=True)

    def _line(self, text: Text | str = "") -> None:
        self.out.print(text)

    def _write(self, text: str) -> None:
        self.out.print(text, end="", markup=False, soft_wrap=True)
        self.out.file.flush()


def _fitted(told: str, last: str, width: int) -> str:
    """`told` within `width`: its last word is shortened, or goes where little would be left of it."""
    if len(told) <= width:
        return told
    before = told.removesuffix(last).rstrip()
    if len(before) <= width < len(before) + len("  req_1234…"):
        return before
    return f"{told[: width - 1]}…"


def _span(name: str, seconds: float, told: str, color: str) -> Text:
    return Text.assemble((name, "bold"), f"  {_ms(seconds)}  ", (told, color))


def _sent(seen: Seen, attempt: Attempt) -> str:
    if attempt.outcome not in ("success", None):
        return f"{attempt.provider}: {attempt.outcome} {attempt.error_type or attempt.status or ''}".rstrip()
    usage = attempt.usage
    tokens = f"{usage.input} tokens in, {usage.output} out" if usage else "no usage"
    first = f", first after {_ms(seen.first_content - seen.started)}" if seen.stream and seen.first_content else ""
    return f"{attempt.provider}: {tokens}{first}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
