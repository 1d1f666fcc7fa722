"""The commands of `spangate`: their names, options and help. What they do stands in commands/, loaded on use, so that help is quick.

Results go to stdout, talk to stderr. Whatever goes wrong is one line that says what to do, and an exit code: 0 well, 1 failed,
2 unusable input, 130 interrupted.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from .. import __version__
from .commands.choices import Ended, Format, Level, Shape
from .commands.failure import FAILED, INTERRUPTED, UNUSABLE, Failure
from .mistakes import ConfigMistakes, as_text

app = typer.Typer(
    name="spangate",
    help="A gateway for model traffic: any OpenAI client points its base_url at it and changes nothing else.",
    epilog="See it at work, without a key or a file: spangate demo. Each command's --help has examples.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke virtual keys. A running gateway knows within a second.")
app.add_typer(keys, name="keys", rich_help_panel="Set up")

File = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", envvar="SPANGATE_CONFIG", help="Default: spangate.yaml in the working directory."),
]


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


@app.command(rich_help_panel="Begin")
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Let it run on, to be called by you. Ctrl-C ends it.")] = False,
    against: Annotated[str | None, typer.Option(metavar="URL", help="Call a gateway that runs instead.", show_default=False)] = None,
    key: Annotated[
        str, typer.Option(metavar="KEY", envvar="SPANGATE_KEY", help="With --against: the key to call with.", show_default=False)
    ] = "",
    model: Annotated[list[str] | None, typer.Option(metavar="NAME", help="With --against: what to ask for. Repeat it.")] = None,
) -> int:
    """See it at work, in two seconds: no key, no file, no network.

    Starts a gateway that answers from a script, lets three teams call it with the
    official openai client, and shows what became of each call. Leaves nothing.
    --against makes a few short calls, which are real and spend tokens.

    Examples:
      spangate demo --keep
      spangate demo --against http://127.0.0.1:8484 --model fast
    """
    began = time.monotonic()
    from .commands.demo import Wanted
    from .commands.demo import demo as run

    return run(Wanted(keep, against, key, model or ()), began)


@app.command(rich_help_panel="Begin")
def serve(
    config: File = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", envvar="SPANGATE_HOST", help="Where to listen. Default: the file's, else 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", envvar="SPANGATE_PORT", help="0: any free one. Default: the file's, else 8484.")
    ] = None,
    everyone: Annotated[
        bool, typer.Option("--open", envvar="SPANGATE_OPEN", help="Without teams, answer other machines too: they spend your key.")
    ] = False,
    log_level: Annotated[Level, typer.Option(envvar="SPANGATE_LOG_LEVEL", help="From where on to log, on stderr.")] = Level.info,
) -> int:
    """Run the gateway: by spangate.yaml, or with OPENAI_API_KEY alone.

    Calls are told on stdout, one line each, as JSON where that is no terminal.
    SIGTERM and Ctrl-C let running calls end; a second Ctrl-C doesn't.
    A change of the file is taken within two seconds.

    Examples:
      OPENAI_API_KEY=sk-… spangate serve
      spangate serve -c gateway.yaml --port 9000
    """
    from .commands.serve import Wanted
    from .commands.serve import serve as run

    return run(Wanted(config, host, port, everyone, log_level), os.environ)


@app.command(rich_help_panel="Set up")
def init(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Where to. Default: spangate.yaml.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")] = False,
) -> int:
    """Write a commented spangate.yaml from what is found here.

    It looks for providers' keys in the environment and for a local Ollama, and never overwrites.

    Examples:
      spangate init
      spangate init gateway.yaml --yes
    """
    from .commands.init import init as run

    asks = not yes and sys.stdin.isatty()
    return run(file, os.environ, (lambda text: typer.confirm(text, default=True, err=True)) if asks else None)


@app.command(rich_help_panel="Set up")
def check(
    config: File = None,
    shape: Annotated[Format, typer.Option("--format", envvar="SPANGATE_FORMAT", help="How mistakes are told.")] = Format.text,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also each team's policies, in the order in which they hold.")] = False,
) -> int:
    """Check the configuration: every mistake at once, with its line.

    Exit code 2 if there is one. The formats other than text go to stdout, for programs.

    Examples:
      spangate check -v
      spangate check -c gateway.yaml --format github
    """
    from .commands.check import check as run

    return run(config, shape, os.environ, verbose=verbose)


@app.command(rich_help_panel="Set up")
def doctor(
    config: File = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=300, metavar="SECONDS", help="How long each check may take.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON, for programs.")] = False,
) -> int:
    """Prove the whole way: configuration, providers, models, collector, database, port, clock.

    Asks providers for their models (which spends no token), sends a test span,
    looks at the database and at a gateway that runs. Changes nothing. A line is
    ok, off, warning or problem, and says how to mend it. Exit code 1 if there is
    a problem, 2 if the configuration can't be used.

    Examples:
      spangate doctor
      spangate doctor -c gateway.yaml --json | jq .checks
    """
    from .commands.doctor import Wanted
    from .commands.doctor import doctor as run

    return run(Wanted(config, timeout, as_json), os.environ)


@app.command(rich_help_panel="Set up")
def connect(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="env, curl, openai, openai-node, langchain, continue, aider, open-webui")],
    config: File = None,
) -> int:
    """Print what to set for a client, ready to paste.

    The key is SPANGATE_KEY if that is set; address and model are the file's.

    Examples:
      spangate connect curl | sh
      SPANGATE_KEY=sg-… spangate connect openai
    """
    from .commands.connect import connect as run

    return run(client, config, os.environ)


@app.command(rich_help_panel="Set up")
def schema() -> int:
    """Print the JSON Schema of spangate.yaml, for editors.

    With it an editor completes and describes every key; `spangate init` names it in the file.

    Examples:
      spangate schema > spangate.schema.json
      spangate schema | jq '.properties | keys'
    """
    from .commands.schema import schema as run

    return run()


@app.command(rich_help_panel="Look")
def sql(
    query: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT over calls, attempts, decisions and the views of usage.")],
    config: File = None,
    shape: Annotated[Shape | None, typer.Option("--format", help="Default: by the name of the output file, else table.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to. Default: here.")] = None,
    param: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A value for $NAME, or 1=VALUE for $1. Repeat it.")] = None,
) -> int:
    r"""Ask usage with SQL, while the gateway runs or not.

    Every call that ended before is seen. docs/usage.md has the tables and examples.

    Examples:
      spangate sql "SELECT * FROM usage_by_team"
      spangate sql "SELECT id, cost FROM calls WHERE team = \$team" --param team=search -o search.csv
    """
    from .commands.sql import Wanted
    from .commands.sql import sql as run

    return run(Wanted(query, config, shape, out, param or ()), os.environ)


@app.command(rich_help_panel="Look")
def tail(
    config: File = None,
    team: Annotated[str, typer.Option(metavar="TEAM", help="Of this team alone.", show_default=False)] = "",
    model: Annotated[str, typer.Option(metavar="MODEL", help="That asked for this model, exact or with *.", show_default=False)] = "",
    outcome: Annotated[Ended | None, typer.Option(help="That ended so.")] = None,
    last: Annotated[int, typer.Option("-n", "--last", min=0, max=1000, help="How many of those that have ended are shown first.")] = 10,
) -> int:
    """Show the calls of a running gateway as they end, one line each.

    Ctrl-C ends it.

    Examples:
      spangate tail
      spangate tail --team search --outcome failed
    """
    from .commands.tail import Wanted
    from .commands.tail import tail as run

    return run(Wanted(config, team, model, outcome, last), os.environ)


@app.command(rich_help_panel="Look")
def explain(
    id: Annotated[str, typer.Argument(metavar="ID", help="A request id, a trace id, or the caller's own x-request-id.")],
    config: File = None,
) -> int:
    """Tell what became of one call: who asked, what each policy decided, who was tried, what it took.

    Works while the gateway runs or not.

    Examples:
      spangate explain req_7f0c93ab…
      spangate explain 4bf92f3577b34da6a3ce929d0e0e4736
    """
    from .commands.explain import explain as run

    return run(id, config, os.environ)


@keys.command("new")
def keys_new(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="A team of spangate.yaml.")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name within the team. Default: key, key-2, …")] = None,
    expires: Annotated[str | None, typer.Option(metavar="WHEN", help="30d, 12h, or a date such as 2027-01-31.")] = None,
    config: File = None,
) -> int:
    """Make a key for a team.

    It is shown once, in the lines to paste; its hash goes into the keys file.

    Examples:
      spangate keys new search --name ci --expires 30d
      eval "$(spangate keys new search)"
    """
    from .commands.keys import new as run

    return run(config, team, name, expires, os.environ)


@keys.command("list")
def keys_list(
    team: Annotated[str | None, typer.Argument(metavar="TEAM", help="Of this team alone.", show_default=False)] = None,
    config: File = None,
) -> int:
    """List keys by team and name, with when they expire.

    The keys themselves are kept nowhere: a lost one is revoked, and a new one made.

    Examples:
      spangate keys list
      spangate keys list search
    """
    from .commands.keys import listed as run

    return run(config, team, os.environ)


@keys.command("revoke")
def keys_revoke(
    key: Annotated[str, typer.Argument(metavar="TEAM/NAME", help="As `spangate keys list` shows it.")],
    config: File = None,
) -> int:
    """Revoke a key.

    A running gateway refuses it within a second.

    Examples:
      spangate keys revoke search/ci
      spangate keys revoke search/ci -c gateway.yaml
    """
    from .commands.keys import revoke as run

    return run(config, key, os.environ)


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
        told = error.format_message().replace("Value error, ", "")  # nothing if it is help that was wanted, and printed
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
