"""The program `spangate`: which commands it has, and how each ends. Their options and help stand in the files
commands/{begin,set_up,look,intervene}.py, and what they do in a file each beside those, loaded on use, so that help is quick.

Results go to stdout, talk to stderr. Whatever goes wrong is one line that says what to do, and an exit code: 0 well, 1 failed,
2 unusable input, 130 interrupted.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from .. import __version__
from .commands import begin, intervene, look, set_up
from .commands.failure import FAILED, INTERRUPTED, UNUSABLE, Failure
from .mistakes import ConfigMistakes, as_text, did_you_mean

app = typer.Typer(
    name="spangate",
    help="A gateway for model traffic: any OpenAI client points its base_url at it and changes nothing else.",
    epilog="See it at work, without a key or a file: spangate demo. Each command's --help has examples.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(set_up.keys, name="keys", rich_help_panel="Set up")


def _version(wanted: bool) -> None:
    if wanted:
        told = f"spangate {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        print(told)  # noqa: T201
        raise typer.Exit


@app.callback(invoke_without_command=True)
def spangate(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Version, Python and platform.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        context.get_help()


for panel, commands in {
    "Begin": (begin.demo, begin.serve),
    "Set up": (set_up.init, set_up.check, set_up.doctor, set_up.connect, set_up.schema),
    "Look, and step in": (look.sql, look.tail, look.budgets, look.explain, intervene.stop, intervene.resume),
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The program."""
    _open_all()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal of another coding shows ?, not a traceback
    sys.exit(_flushed(_code(sys.argv[1:] if arguments is None else arguments)))


def _open_all() -> None:
    """Standard streams that whoever started us has closed lead nowhere from now on: a socket that gets the number of one is written to
    by mistake, and libuv ends the process when it is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.__stdout__ is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.__stderr__ is None:
        sys.stderr = os.fdopen(2, "w")


def _code(arguments: Sequence[str]) -> int:
    """Run, and tell what went wrong in one line; the exit code."""
    try:
        return app(args=list(arguments), prog_name="spangate", standalone_mode=False) or 0
    except ConfigMistakes as error:
        print(as_text(error.mistakes), file=sys.stderr)  # noqa: T201
        return UNUSABLE
    except typer.TyperException as error:
        told = _hinted(error.format_message().replace("Value error, ", ""))  # nothing if it is help that was wanted, and printed
        return _say(f"{told} ({_help_of(error)})", error.exit_code) if told else error.exit_code
    except Failure as failure:
        return _say(failure.message, failure.code)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED
    except OSError as error:
        return _say(f"{error.filename or 'the system'}: {error.strerror or error}", FAILED)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED


def _hinted(told: str) -> str:
    """A word that is none of those that an option takes, with the nearest of them."""
    choice = re.search(r"'([^']*)' is not one of (.*)", told)
    return told.rstrip(".") + did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2])) if choice else told


def _help_of(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'spangate'} --help"


def _say(message: str, code: int) -> int:
    print(f"spangate: {message}", file=sys.stderr)  # noqa: T201
    return code


def _flushed(code: int) -> int:
    """A reader that has gone away, as `head` does, is no mistake: say nothing, write nothing more."""
    out = sys.__stdout__
    if out is None:
        return code
    try:
        out.flush()
    except (BrokenPipeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return FAILED
    return code
