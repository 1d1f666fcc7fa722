"""How the demo looks, piece by piece."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from spangate.call.events import Usage
from spangate.call.seen import Seen
from spangate.proxy.commands.demo_page import Page


def page(width: int = 40) -> tuple[Page, io.StringIO]:
    out = io.StringIO()
    return Page(Console(file=out, width=width, highlight=False)), out


def seen(team: str = "search", outcome: str = "completed") -> Seen:
    call = Seen.open()
    call.op, call.model, call.team, call.key = "chat", "fast", team, "app"
    call.method, call.path = "POST", "/v1/chat/completions"
    if outcome == "completed":
        attempt = call.attempt("script", "gpt-5-mini")
        attempt.usage = call.usage = Usage(1200, 34)
        attempt.ended = call.clock.mono()
    call.end("completed" if outcome == "completed" else "refused", 200 if outcome == "completed" else 404)
    return call


def test_words_break_where_the_terminal_ends() -> None:
    shown, out = page(20)
    for word in ("one ", "two ", "three ", "four ", "five ", "a-word-longer-than-the-line"):
        shown.word(word)
    shown.end_of_words()
    assert out.getvalue() == "  one two three four \n  five \n  a-word-longer-than-the-line\n"


@pytest.mark.parametrize("width", [40, 70, *range(74, 92), 200])
def test_a_call_is_one_line_and_its_id_gives_way(width: int) -> None:
    shown, out = page(width)
    call = seen()
    shown.call(call)
    [line] = out.getvalue().splitlines()
    assert len(line) <= width
    assert line.startswith("  200 chat fast → script gpt-5-mini  ")
    if width >= 74:
        assert "  1,200+34 tokens  search/app" in line
        assert line.endswith(("search/app", "…", call.id))
        assert "app…" not in line
    assert line.endswith(call.id) is (width == 200)


def test_usage_ends_with_what_it_comes_to() -> None:
    shown, out = page(80)
    shown.usage(["team", "calls", "cost"], [["search", "2", "$0.10"], ["interns", "1", "$0.02"], ["all", "3", "$0.12"]])
    assert [line.split() for line in out.getvalue().splitlines() if "$" in line] == [
        ["search", "2", "$0.10"],
        ["interns", "1", "$0.02"],
        ["all", "3", "$0.12"],
    ]


def test_no_line_ends_with_blanks() -> None:
    shown, out = page(60)
    shown.usage(["team", "cost"], [["search", "$0.10"], ["interns", "$0.02"], ["all", "$0.12"]])
    shown.facts([("rule", "a line that needs more than one line of a terminal as narrow as this"), ("b", "c")])
    shown.trace(seen())
    shown.end(1.0, [("spangate init", "writes it"), ("spangate --help", "all")])
    lines = out.getvalue().splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert max(map(len, lines)) <= 60


def test_a_failed_attempt_says_how() -> None:
    shown, out = page(80)
    call = seen(outcome="refused")
    attempt = call.attempt("script", "gpt-5-mini")
    attempt.outcome, attempt.status, attempt.ended = "error", 503, attempt.started
    shown.trace(call)
    assert "script: error 503" in out.getvalue()


def test_a_command_to_paste_stays_whole() -> None:
    shown, out = page(20)
    shown.paste("usage", "spangate sql -c /a/long/path/spangate.yaml")
    assert out.getvalue().splitlines()[-1] == "spangate sql -c /a/long/path/spangate.yaml"


def test_what_goes_on_can_be_pasted() -> None:
    shown, out = page(40)
    shown.kept("http://127.0.0.1:1", {"search": "sg-1", "support": "sg-2"}, "/tmp/x/spangate.yaml", "spangate")
    told = out.getvalue()
    for line in (
        "curl http://127.0.0.1:1/v1/chat/completions -H 'Authorization: Bearer sg-1'",
        "export OPENAI_BASE_URL=http://127.0.0.1:1/v1 OPENAI_API_KEY=sg-1\n",
        'spangate sql -c /tmp/x/spangate.yaml "SELECT * FROM usage_by_team"\n',
        "curl http://127.0.0.1:1/metrics\n",
    ):
        assert line in told


def test_a_trace_is_a_tree_of_attempts() -> None:
    shown, out = page(80)
    call = seen()
    shown.trace(call)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines == [
        "  POST /v1/chat/completions  0 ms  200 completed",
        "  ├── team search, key app, asked for fast",
        "  └── chat gpt-5-mini  0 ms  script: 1200 tokens in, 34 out",
        f"  trace {call.trace_hex}",
    ]


def test_an_excerpt_marks_the_line_that_decided() -> None:
    shown, out = page(80)
    shown.excerpt("teams:\n  interns:\n    models: [fast]\n", 3, "here")
    assert out.getvalue() == "      2    interns:\n  >   3      models: [fast]   (here)\n"
