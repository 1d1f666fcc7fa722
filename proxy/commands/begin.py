"""The commands with which people begin, as the command line has them: `demo`, `serve`."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from .choices import File, Level


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
    from .demo import Wanted
    from .demo import demo as run

    return run(Wanted(keep, against, key, model or ()), began)


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
    from .serve import Wanted
    from .serve import serve as run

    return run(Wanted(config, host, port, everyone, log_level), os.environ)
