"""exporters/console.py: one line a call, for people and for programs."""

from __future__ import annotations

import json
from io import StringIO

import pytest

from spangate.call.clock import Clock
from spangate.call.events import Usage
from spangate.call.seen import Seen
from spangate.exporters.console import BATCHED, FULL, Console, json_line, printable, text_after_status

from gateway import until


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class Gone(StringIO):
    def write(self, text: str, /) -> int:
        raise BrokenPipeError


def completed() -> Seen:
    times = iter((100.0, 100.812))
    seen = Seen.open(Clock(wall=lambda: 1_790_000_000_123_000_000, mono=lambda: next(times)))
    seen.id, seen.op, seen.model, seen.stream, seen.team, seen.key = "req_1", "chat", "fast", True, "search", "ci"
    seen.first_content, seen.usage = 100.24, Usage(1203, 88)
    return seen


def answered() -> Seen:
    seen = completed()
    clock, seen.clock = seen.clock, Clock(mono=lambda: 100.0)
    seen.attempt("openai", "gpt-5-mini")
    seen.clock = clock
    seen.end("completed", 200)
    return seen


def refused() -> Seen:
    seen = completed()
    seen.usage, seen.first_content, seen.stream, seen.team = None, 0.0, False, ""
    seen.end("refused", 401, "invalid_api_key")
    return seen


def test_a_line_for_people() -> None:
    told = "chat fast → openai gpt-5-mini  812 ms (first 240)  1,203+88 tokens  search/ci  req_1"
    assert text_after_status(answered()) == told
    assert text_after_status(refused()) == "chat fast  812 ms  refused: invalid_api_key  req_1"


def test_another_attempt_is_told() -> None:
    seen = answered()
    seen.clock = Clock()
    seen.attempt("local", "qwen")
    assert "→ local qwen (attempt 2)" in text_after_status(seen)


def test_a_line_for_programs() -> None:
    line = json.loads(json_line(answered()))
    assert (line["at"], line["id"], line["status"], line["outcome"], line["error_code"]) == (
        1_790_000_000_123,
        "req_1",
        200,
        "completed",
        "",
    )
    assert (line["op"], line["stream"], line["model"], line["provider"], line["target_model"]) == ("chat", True, "fast", "", "")
    assert (line["team"], line["key"], line["input_tokens"], line["output_tokens"]) == ("search", "ci", 1203, 88)
    assert (line["duration_ms"], line["first_ms"], line["attempts"]) == (812.0, 240.0, 1)
    line = json.loads(json_line(refused()))
    assert (line["input_tokens"], line["output_tokens"], line["first_ms"]) == (None, None, None)


def shown(out: Terminal, seen: Seen, **how: bool) -> str:
    console = Console(out, **how)
    console.record(seen)
    console._aside.finish()  # what reads along needs no flush
    return out.getvalue()


def test_a_terminal_gets_colors_and_lines_at_once() -> None:
    assert shown(Terminal(), answered()).startswith("\x1b[32m200\x1b[0m chat fast → ")
    assert shown(Terminal(), refused(), color=False).startswith("401 chat fast")
    assert json.loads(shown(Terminal(), refused(), as_json=True))["status"] == 401


async def test_elsewhere_lines_go_out_together() -> None:
    out = StringIO()
    console = Console(out)
    console.record(answered())
    console.record(refused())
    assert out.getvalue() == ""
    await until(lambda: out.getvalue() != "", BATCHED + 1)
    assert [json.loads(line)["status"] for line in out.getvalue().splitlines()] == [200, 401]


async def test_many_lines_wait_for_no_timer() -> None:
    out = StringIO()
    console = Console(out)
    for _ in range(FULL + 1):
        console.record(answered())
    console._aside.finish()
    assert len(out.getvalue().splitlines()) == FULL
    console.flush()
    console.flush()
    assert len(out.getvalue().splitlines()) == FULL + 1


def test_a_terminal_that_has_gone_costs_lines() -> None:
    closed = Terminal()
    closed.close()
    for out in (Gone(), closed):
        console = Console(out, as_json=True)
        console._patience = 0.0
        console.record(answered())
        console.flush()
        assert console.lost == 1


@pytest.mark.parametrize(
    ("text", "printed"),
    [("gpt-5", "gpt-5"), ("a\nb", "a?b"), ("\x1b[31m", "?[31m"), ("\ud800", "?"), ("Ω", "Ω"), ("x" * 200, "x" * 100), ("\u2028", "?")],
)
def test_what_callers_say_stays_on_its_line(text: str, printed: str) -> None:
    assert printable(text) == printed
    seen = refused()
    seen.model = text
    assert len(json_line(seen).splitlines()) == 1
    assert len(text_after_status(seen).splitlines()) == 1
