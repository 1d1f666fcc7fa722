"""The commands that step in while a gateway runs, as the command line has them: `stop`, `resume`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from .choices import File

_FORMS = "team:NAME, key:TEAM/NAME, model:NAME or provider:NAME"


def stop(
    switch: Annotated[str | None, typer.Argument(metavar="SCOPE:NAME", help=f"{_FORMS}. Default: list what is stopped.")] = None,
    config: File = None,
) -> int:
    """Stop a team, a key, a model or a provider at once: the kill switch.

    New calls are refused within a second, those under way go on to their end. It
    holds until it is resumed, through restarts. A model may be a pattern with `*`,
    and is meant by the name that callers use and by the provider's.

    Examples:
      spangate stop team:search
      spangate stop 'model:gpt-*'
      spangate stop
    """
    from .stop import listed
    from .stop import stop as run

    return listed(config, os.environ) if switch is None else run(config, switch, os.environ)


def resume(
    switch: Annotated[str, typer.Argument(metavar="SCOPE:NAME", help="As `spangate stop` lists it.")],
    config: File = None,
) -> int:
    """Let calls through again that `spangate stop` has stopped.

    Examples:
      spangate resume team:search
      spangate resume key:search/ci -c gateway.yaml
    """
    from .stop import resume as run

    return run(config, switch, os.environ)
