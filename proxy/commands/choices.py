"""Options that many commands have, and words that options take. Apart, because the command line needs them before any command is loaded."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", envvar="SPANGATE_CONFIG", help="Default: spangate.yaml in the working directory."),
]


class Format(StrEnum):
    """How `check` tells what it found."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"


class Level(StrEnum):
    """From where on `serve` logs."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Shape(StrEnum):
    """How rows are shown."""

    table = "table"
    csv = "csv"
    json = "json"


class Ended(StrEnum):
    """How a call may have ended."""

    completed = "completed"
    refused = "refused"
    failed = "failed"
    aborted = "aborted"
    cut = "cut"
    interrupted = "interrupted"
