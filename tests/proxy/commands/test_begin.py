"""proxy/commands/begin.py: what the command line takes for `demo` and `serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from program import spangate


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("SPANGATE_PORT", "70000", "--port: "),
        ("SPANGATE_PORT", "x", "'--port' (env var: 'SPANGATE_PORT')"),
        ("SPANGATE_HOST", "a b", "--host: "),
        ("SPANGATE_LOG_LEVEL", "loud", "'loud' is not one of 'debug'"),
        ("SPANGATE_CONFIG", "none.yaml", "none.yaml: there is no such file"),
    ],
)
def test_what_serve_takes_may_come_from_the_environment(variable: str, value: str, told: str, tmp_path: Path) -> None:
    ran = spangate("serve", folder=tmp_path, **{variable: value})
    assert (ran.code, ran.out, told in ran.err) == (2, "", True), ran.err


def test_a_key_for_the_demo_is_not_shown(tmp_path: Path) -> None:
    ran = spangate("demo", "--help", folder=tmp_path, SPANGATE_KEY="sg-CANARY")
    assert (ran.code, "CANARY" in ran.out) == (0, False)
