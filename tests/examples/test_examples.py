"""The examples, run as a reader runs them: a program of its own, without a key, and what it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from house.source import ROOT
from program import environment, spangate

PRINTS = {
    "support_agent": """\
> Where are my orders 1042 and 1043?
[a tool: success]
[a tool: success]
Order 1042 left on Monday; 1043 still waits for a part.
> Please hurry the second one.
[a tool: success]
I've opened ticket 7 for it.
The thread remembers 4 messages: user, assistant, user, assistant.
""",
    "governed_agent": """\
through the gateway, fast: Take an umbrella.
through the gateway, strong: refused, model_not_found
with the same policies, fast: Take an umbrella.
with the same policies, strong: refused, model_not_found
""",
    "model_router": """\
> Thanks, that was all!
small: You're welcome!
> Find a proof that the sum of the first n odd numbers is n².
large: The proof goes by induction.
""",
}


def test_each_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(PRINTS)


@pytest.mark.parametrize("name", PRINTS)
def test_it_prints_what_it_should(name: str, tmp_path: Path) -> None:
    program = [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py")]
    ran = subprocess.run(program, cwd=tmp_path, env=environment(tmp_path), capture_output=True, encoding="utf-8", timeout=50, check=False)
    assert (ran.stdout, ran.stderr) == (PRINTS[name], "")


def test_the_gateway_of_the_example_is_one_for_everybody(tmp_path: Path) -> None:
    checked = spangate("check", "-c", str(ROOT / "examples/governed.yaml"), folder=tmp_path)
    assert checked.code == 0, checked.err
