"""How the doctor's lines look."""

from __future__ import annotations

import io

from rich.console import Console

from spangate.proxy.commands.doctor_findings import off, ok, problem, warning
from spangate.proxy.commands.doctor_page import Page


def page(*, terminal: bool = False, width: int = 60) -> tuple[Page, io.StringIO]:
    out = io.StringIO()
    return Page(Console(file=out, width=width, highlight=False, force_terminal=terminal, color_system=None)), out


def test_a_pipe_gets_one_line_a_finding() -> None:
    shown, out = page()
    shown.show([problem("provider openai", "refuses [its] key " * 10, "put another there"), ok("port", "free")])
    first, second = out.getvalue().splitlines()
    assert first.startswith("problem  provider openai  refuses [its] key refuses")
    assert first.endswith(": put another there")
    assert second == "ok       port             free"


def test_a_terminal_gets_words_below_each_other() -> None:
    shown, out = page(terminal=True)
    shown.show([warning("clock", "12 s behind api.example.com", "let NTP set it, such as by timedatectl")])
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines[0].startswith("warning  clock            12 s behind")
    assert lines[1].startswith(" " * 26)
    assert max(map(len, lines)) <= 60


def test_a_terminal_shows_what_is_waited_for() -> None:
    shown, out = page(terminal=True)
    with shown.waiting(["openai", "the collector"]):
        shown.still(["the collector"])
        shown.show([ok("port", "free")])
    assert "asking" in out.getvalue()
    shown, out = page()
    with shown.waiting(["openai"]):
        shown.still(["openai"])
    assert out.getvalue() == ""


def test_the_end_counts() -> None:
    shown, out = page()
    shown.end([ok("a", ""), ok("b", ""), off("c", ""), warning("d", ""), problem("e", ""), problem("f", "")], 1.23)
    assert out.getvalue() == "\n2 ok, 1 off, 1 warning, 2 problems, in 1.2 s\n"
