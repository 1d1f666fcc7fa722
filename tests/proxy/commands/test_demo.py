"""The demo: what it shows, on a terminal and in a pipe, and what it leaves."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from rich.cells import cell_len

from spangate.proxy.commands.demo import program_of

from program import PROGRAM, environment, left_in, on_a_terminal, running, spangate

STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the demo prints into a pipe."""
    folder = tmp_path_factory.mktemp("demo")
    ran = spangate("demo", folder=folder)
    assert (ran.code, ran.err) == (0, "")
    assert left_in(folder) == []
    return ran.out


def test_each_call_is_one_line(shown: str) -> None:
    calls = re.findall(r"^  (\d{3}) (\w+) .*? ([\d]+ ms)", shown, re.MULTILINE)
    assert [(status, op) for status, op, _ in calls] == [
        ("200", "chat"),
        ("200", "chat"),
        ("200", "chat"),
        ("200", "embeddings"),
        ("404", "chat"),
    ]


def test_a_failure_is_told_as_the_caller_sees_it_and_as_its_trace(shown: str) -> None:
    told = shown[shown.index("A call that fails") : shown.index("Usage by team")]
    assert "status   502, which the client raises as openai.InternalServerError" in told
    assert re.search(r"code +upstream_error, from the provider\n", told)
    assert re.search(r"POST /v1/chat/completions  \d+ ms  502 failed", told)
    assert re.search(r"└── chat gpt-5\.5  \d+ ms  script: error 503", told)


def test_the_answers_are_shown(shown: str) -> None:
    assert "Certainly. The refund for order 1042 is on its way." in shown
    assert "One address for every model, one key for each team," in shown
    assert 'get_weather({"city": "Rome", "unit": "celsius"})' in shown
    assert re.search(r"\[[+-]0\.\d{3}, .*, …\]  64 dimensions", shown)


def test_the_refusal_says_which_rule_stands_where(shown: str) -> None:
    assert "status   404, which the client raises as openai.NotFoundError" in shown
    assert "code     model_not_found" in shown
    assert "message  The model 'strong' is not one that this key may use." in shown
    assert "rule     teams.interns.models, line 13 of the demo's spangate.yaml:" in shown
    assert ">  13      models: [fast]   (strong is not among them)" in shown
    assert re.search(r"request  req_[0-9a-f]{32}\n", shown)


def test_usage_is_what_sql_says_and_adds_up(shown: str) -> None:
    rows = {
        name: [float(cell.replace(",", "").removeprefix("$")) for cell in cells.split()]
        for name, cells in re.findall(r"^  (search|support|interns|all) +(\d+ .*\$[\d.]+)$", shown, re.MULTILINE)
    }
    total = rows.pop("all")
    assert total == [pytest.approx(sum(column)) for column in zip(*rows.values(), strict=True)]
    assert {name: row[1:3] for name, row in rows.items()} == {"support": [0, 1], "search": [0, 0], "interns": [3, 0]}
    assert total[-1] > 0, "each model has a price"


def test_one_call_is_a_tree(shown: str) -> None:
    tree = shown[shown.rindex("POST /v1/chat/completions") :]
    assert re.match(r"POST /v1/chat/completions  \d+ ms  200 completed", tree)
    assert re.search(r"└── chat gpt-5-mini  \d+ ms  script: 5 tokens in, 26 out, first after \d+ ms", tree)
    assert re.search(r"trace [0-9a-f]{32}\n", tree)


def test_it_says_what_to_open_next_and_how_long_it_took(shown: str) -> None:
    assert re.search(r"spangate init .*\n  spangate serve .*\n  spangate --help ", shown)
    took = re.search(r"Took (\d+\.\d) s and left nothing behind\.\n$", shown)
    assert took
    assert float(took[1]) < 15


def test_it_says_what_to_type_where_a_shell_does_not_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert program_of(".venv/bin/spangate") == ".venv/bin/spangate"
    assert program_of("/somewhere/proxy/__main__.py") == "spangate"


def test_a_pipe_gets_plain_text_within_80_columns(shown: str) -> None:
    assert not re.search(r"[^\n\x20-\x7e…→├└─]", shown)
    assert max(map(cell_len, shown.splitlines())) <= 80


@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_gets_colour_within_its_width(columns: int, tmp_path: Path) -> None:
    ran = on_a_terminal("demo", folder=tmp_path, columns=columns)
    assert ran.code == 0
    assert "\x1b[1mspangate demo\x1b[0m" in ran.out
    assert max(cell_len(STYLE.sub("", line).rstrip()) for line in ran.out.splitlines()) <= columns
    assert left_in(tmp_path) == []


def test_no_color_is_honoured(tmp_path: Path) -> None:
    ran = on_a_terminal("demo", folder=tmp_path, NO_COLOR="1")
    assert (ran.code, "\x1b" in ran.out) == (0, False)


def test_a_terminal_of_another_coding_breaks_nothing(tmp_path: Path) -> None:
    ran = spangate("demo", folder=tmp_path, PYTHONIOENCODING="ascii")
    assert (ran.code, ran.err) == (0, "")
    assert "`-- chat gpt-5-mini" in ran.out


def test_the_proxies_of_the_environment_are_not_asked(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    ran = spangate("demo", folder=tmp_path, HTTP_PROXY=nobody, HTTPS_PROXY=nobody, ALL_PROXY=nobody, http_proxy=nobody)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_ends_it_and_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with running("demo", folder=tmp_path) as program:
        program.until("A stream passes", stdout=True)
        program.send(number)
        ended = program.end()
    assert (ended.code, ended.err) == (code, "")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_kept_answers_until_a_signal_comes(number: signal.Signals, tmp_path: Path) -> None:
    with running("demo", "--keep", folder=tmp_path) as program:
        url = program.until("It goes on at", stdout=True).split("at ")[1].split("/v1:")[0]
        key = re.findall(r"sg-[0-9a-f]{64}", program.until("  search  ", stdout=True))[0]
        file = program.until("spangate sql -c", stdout=True).split("-c ")[1].split()[0]
        assert cell_len(program.until("goes on: calls are shown", stdout=True).rstrip("\n")) <= 80
        assert [line for line in program.heard if line != f"{line.rstrip()}\n"] == []
        body = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "The capital of Italy?"}]}).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, headers), timeout=5) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"] == "Rome."
        assert "200 chat fast" in program.until("200 chat fast", stdout=True)
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
            assert b"spangate" in answer.read()
        assert Path(file).exists()
        program.send(number)
        ended = program.end()
    assert (ended.code, ended.err, ended.out.splitlines()[-1]) == (0, "", "Ended, and left nothing behind.")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("arguments", [("demo", "--keep"), ("demo",)], ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_cannot_wait_ends_it_no_worse(arguments: tuple[str, ...], number: signal.Signals, tmp_path: Path) -> None:
    """One signal after the other, until it has ended."""
    with running(*arguments, folder=tmp_path) as program:
        program.until("goes on: calls are shown" if "--keep" in arguments else "A tool call", stdout=True)
        ended = None
        while ended is None:
            program.send(number)
            with suppress(subprocess.TimeoutExpired):
                ended = program.end(0.002)
    code = 0 if "--keep" in arguments else 130 if number == signal.SIGINT else 143
    assert (ended.code, ended.err) == (code, "")
    assert left_in(tmp_path) == []


def test_what_is_kept_and_what_runs_already_are_two_things(tmp_path: Path) -> None:
    ran = spangate("demo", "--keep", "--against", "http://127.0.0.1:1", folder=tmp_path)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)


def test_a_reader_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    popen = subprocess.Popen([*PROGRAM, "demo"], cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with popen as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 1
    assert left_in(tmp_path) == []
