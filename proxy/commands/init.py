"""`spangate init`: a spangate.yaml made from what is found here, and never over another."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..config import DEFAULT_FILE
from ..starter import VENDORS, init_text
from .failure import Failure

OLLAMA = ("127.0.0.1", 11434)
PATIENCE = 0.25  # seconds; something on this machine answers at once or isn't there


def init(file: Path | None, environ: Mapping[str, str], confirm: Callable[[str], bool] | None = None) -> int:
    """Write the file, after asking if `confirm` is given; the exit code.

    Raises:
        Failure: there is such a file already, or it can't be written.
    """
    path = file or Path(DEFAULT_FILE)
    if path.exists():
        raise Failure(f"{path} is there already and stays as it is: name another file, as in `spangate init other.yaml`")
    ollama = listens(*OLLAMA)
    found = [vendor.variable for vendor in VENDORS if environ.get(vendor.variable, "").strip()]
    found += ["a local Ollama"] if ollama else []
    _say(
        f"found {', '.join(found)}" if found else f"found no provider's key ({', '.join(v.variable for v in VENDORS)}) and no local Ollama"
    )
    if confirm is not None and not confirm(f"Write {path}?"):
        raise Failure("nothing was written")
    try:
        with path.open("x", encoding="utf-8") as opened:
            opened.write(init_text(environ, ollama=ollama))
    except OSError as error:
        raise Failure(f"{path} can't be written: {error.strerror}") from error
    _say(f"wrote {path}\n\nNext:\n" + "\n".join(next_lines(path, found=bool(found))))
    return 0


def next_lines(path: Path, *, found: bool) -> Iterator[str]:
    """What to do with the file."""
    given = "" if str(path) == DEFAULT_FILE else f" -c {path}"
    if not found:
        yield f"  start Ollama, or set OPENAI_API_KEY and name it under providers in {path}"
    for command, told in (
        (f"spangate check{given}", "is all in it right?"),
        (f"spangate serve{given}", "run it; it takes a change of the file within 2 s"),
        (f"spangate keys new TEAM{given}", "a key, once there is a team in the file (see its end)"),
    ):
        yield f"  {command:<{28 + len(given)}} {told}"


def listens(host: str, port: int) -> bool:
    """Whether something on this machine takes connections there."""
    try:
        with socket.create_connection((host, port), PATIENCE):
            return True
    except OSError:
        return False


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - talk; the result is the file
