"""The program from outside: help, versions, exit codes, and how it says what went wrong."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

import spangate as package

from program import PROGRAM, environment, spangate

COMMANDS = [
    "demo",
    "serve",
    "check",
    "doctor",
    "schema",
    "init",
    "connect",
    "sql",
    "tail",
    "budgets",
    "explain",
    "stop",
    "resume",
    "keys new",
    "keys list",
    "keys revoke",
]


def test_help_names_every_command_on_one_screen(tmp_path: Path) -> None:
    ran = spangate("--help", folder=tmp_path)
    assert ran.code == 0
    assert [command for command in COMMANDS if command.split()[0] not in ran.out] == []
    assert len(ran.out.splitlines()) <= 40
    assert spangate("-h", folder=tmp_path).out == ran.out
    assert spangate(folder=tmp_path).out.strip() == ran.out.strip(), "without a command there is help"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_teaches_on_one_screen(command: str, tmp_path: Path) -> None:
    ran = spangate(*command.split(), "--help", folder=tmp_path)
    assert ran.code == 0
    assert len(ran.out.splitlines()) <= 40
    _, examples = ran.out.split("Examples:\n" if "Examples:\n" in ran.out else "Examples:")
    assert examples.split("╭")[0].count("spangate ") >= 2


def test_version_tells_python_and_platform(tmp_path: Path) -> None:
    ran = spangate("--version", folder=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"spangate {package.__version__}, Python 3.")


def test_help_is_quick(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    spangate("--help", folder=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.8, "0.4 s, and room for a busy machine"


def test_importing_the_command_line_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = "import sys, spangate.proxy.cli; print(*{'aiohttp', 'openai', 'pydantic', 'rich', 'uvloop', 'yaml'} & set(sys.modules))"
    told = subprocess.check_output([PROGRAM[0], "-P", "-c", heavy], cwd=tmp_path, env=environment(tmp_path), text=True)
    assert told.split() == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check', 'schema'? (spangate --help)"),
        (["keys", "nwe"], "No such command 'nwe'. Did you mean 'new'? (spangate keys --help)"),
        (["keys", "new"], "Missing argument 'TEAM'. (spangate keys new --help)"),
        (["serve", "--prot", "1"], "No such option: --prot (Possible options: --host, --port) (spangate serve --help)"),
        (["demo", "--agianst", "x"], "No such option: --agianst (Possible options: --against) (spangate demo --help)"),
        (
            ["check", "--format", "jsn"],
            (
                """Invalid value for '--format' (env var: 'SPANGATE_FORMAT'): 'jsn' is not one of 'text', 'json', 'github', 'sarif'; """
                """did you mean "json"? (spangate check --help)"""
            ),
        ),
        (["zebras"], "No such command 'zebras'. (spangate --help)"),
    ],
)
def test_a_slip_is_one_line_that_helps(arguments: list[str], told: str, tmp_path: Path) -> None:
    ran = spangate(*arguments, folder=tmp_path)
    assert (ran.code, ran.out, ran.err) == (2, "", f"spangate: {told}\n")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for command in (["serve"], ["keys", "list"], ["connect", "curl"]):
        ran = spangate(*command, "-c", str(tmp_path), folder=tmp_path)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1), command
        assert "is a directory" in ran.err.lower()


def test_a_folder_that_takes_no_file_is_one_line(tmp_path: Path) -> None:
    ran = spangate("init", "no/such/folder/spangate.yaml", folder=tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1] == "spangate: no/such/folder/spangate.yaml can't be written: No such file or directory"


@pytest.mark.parametrize("command", ["schema", "--help"])
def test_a_reader_that_goes_away_is_no_trouble(command: str, tmp_path: Path) -> None:
    with subprocess.Popen([*PROGRAM, command], env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 1


def test_completion_knows_the_commands(tmp_path: Path) -> None:
    shown = spangate("--show-completion", "bash", folder=tmp_path, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (shown.code, "complete -o default -F _spangate_completion spangate" in shown.out) == (0, True)
    asked = spangate(folder=tmp_path, _SPANGATE_COMPLETE="complete_bash", COMP_WORDS="spangate c", COMP_CWORD="1")
    assert asked.out.split() == ["check", "connect"]
