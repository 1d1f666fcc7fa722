"""The commands that set a gateway up, as the command line has them: `init`, `check`, `doctor`, `connect`, `schema`, `keys`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .choices import File, Format

keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke virtual keys; effective within a second.")


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
    from .init import init as run

    asks = not yes and sys.stdin.isatty()
    return run(file, os.environ, (lambda text: typer.confirm(text, default=True, err=True)) if asks else None)


def check(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Which. Default: that of --config.", show_default=False)] = None,
    config: File = None,
    shape: Annotated[Format, typer.Option("--format", envvar="SPANGATE_FORMAT", help="How mistakes are told.")] = Format.text,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also each team's policies, in the order in which they hold.")] = False,
) -> int:
    """Check the configuration: every mistake at once, with its line.

    Exit code 2 if there is one. The formats other than text go to stdout, for programs.

    Examples:
      spangate check -v
      spangate check gateway.yaml --format github
    """
    from .check import check as run

    return run(file or config, shape, os.environ, verbose=verbose)


def doctor(
    config: File = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=300, metavar="SECONDS", help="How long each check may take.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON, for programs.")] = False,
) -> int:
    """Prove the whole way: providers, models, collector, database, port.

    Checks the configuration and the clock, asks providers for their models (which
    spends no token), sends a test span, looks at the database and at a gateway
    that runs. Changes nothing. A line is ok, off, warning or problem, and says how
    to mend it. Exit code 1 if there is a problem, 2 if the configuration can't be
    used.

    Examples:
      spangate doctor
      spangate doctor -c gateway.yaml --json | jq .checks
    """
    from .doctor import Wanted
    from .doctor import doctor as run

    return run(Wanted(config, timeout, as_json), os.environ)


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
    from .connect import connect as run

    return run(client, config, os.environ)


def schema() -> int:
    """Print the JSON Schema of spangate.yaml, for editors.

    With it an editor completes and describes every key; `spangate init` names it in the file.

    Examples:
      spangate schema > spangate.schema.json
      spangate schema | jq '.properties | keys'
    """
    from .schema import schema as run

    return run()


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
    from .keys import new as run

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
    from .keys import listed as run

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
    from .keys import revoke as run

    return run(config, key, os.environ)
