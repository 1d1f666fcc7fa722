"""Importing spangate.agent: cheap, and nothing that a user of an agent has no use for."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import spangate.agent

from house.source import ROOT, tree

MEASURED = """
import sys, time
began = time.process_time()
import spangate.agent
{}
took = time.process_time() - began
names = ("aiohttp", "duckdb", "openai", "pydantic", "sqlite3", "opentelemetry", "spangate.proxy", "yaml")
print(took, *[name for name in names if name in sys.modules])
"""

EVERYDAY = (
    "from spangate.agent import Agent, MiddlewareBase, Msg, Toolkit, HintBlock, ReplyEndEvent, ChatModelBase, OpenAIChatModel, SQLiteStore;"
    "from spangate.agent import GatewayModel, PolicyMiddleware"
)


def measured(statement: str) -> tuple[float, list[str]]:
    runs = [
        subprocess.run([sys.executable, "-P", "-c", MEASURED.format(statement)], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    told = [run.stdout.split() for run in runs]
    return min(float(each[0]) for each in told), told[0][1:]


@pytest.mark.parametrize(("statement", "loaded"), [("", []), (EVERYDAY, [])], ids=["the package", "what everyone uses"])
def test_it_takes_300_ms_of_cpu_at_most_and_loads_no_server(statement: str, loaded: list[str]) -> None:
    took, found = measured(statement)
    assert took <= 0.3
    assert found == loaded


def test_every_name_is_there_once_for_people_and_once_for_checkers() -> None:
    listed = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree((ROOT / "agent/__init__.py").relative_to(ROOT)))
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert listed == {f"{module}.{name}" for module, names in spangate.agent._HOME.items() for name in names}
    assert spangate.agent.__all__ == sorted(name for names in spangate.agent._HOME.values() for name in names)


def test_no_name_is_a_modules_too() -> None:
    """Loading `agent/x.py` puts `x` on the package, over whatever is there."""
    modules = {path.stem for path in (ROOT / "agent").iterdir()}
    assert modules & set(spangate.agent.__all__) == set()


@pytest.mark.parametrize("name", spangate.agent.__all__)
def test_every_name_loads(name: str) -> None:
    assert getattr(spangate.agent, name) is not None
    assert name in dir(spangate.agent)


def test_another_name_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        spangate.agent.Agnet  # noqa: B018
