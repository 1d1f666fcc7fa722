"""The commands that look at what a gateway does, as the command line has them: `sql`, `tail`, `budgets`, `explain`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from .choices import Ended, File, Shape


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
    from .sql import Wanted
    from .sql import sql as run

    return run(Wanted(query, config, shape, out, param or ()), os.environ)


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
    from .tail import Wanted
    from .tail import tail as run

    return run(Wanted(config, team, model, outcome, last), os.environ)


def budgets(
    config: File = None,
    test: Annotated[bool, typer.Option("--test-webhook", help="Send one request to each webhook of a budget instead.")] = False,
) -> int:
    """Show how every budget stands, while the gateway runs or not.

    Limit, used, held for calls under way, left, when it begins anew, and what it comes to if it goes on like this.

    Examples:
      spangate budgets
      spangate budgets --test-webhook
    """
    from .budgets import Wanted
    from .budgets import budgets as run

    return run(Wanted(config, test), os.environ)


def explain(
    id: Annotated[str, typer.Argument(metavar="ID", help="A request id, a trace id, the caller's own x-request-id, or how one begins.")],
    config: File = None,
) -> int:
    """Tell what became of one call, and what each policy decided.

    Who asked, who was tried, what it took. Works while the gateway runs or not.

    Examples:
      spangate explain req_7f0c93ab…
      spangate explain 4bf92f3577b34da6a3ce929d0e0e4736
    """
    from .explain import explain as run

    return run(id, config, os.environ)
