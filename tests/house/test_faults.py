"""Every known fault has a test, or the name of the work it waits for: tests/house/faults.toml."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

from house.source import ROOT, dotted, files, tree

WORK = {"telemetry", "admission", "agent", "delivery", "pause and resume", "privacy", "context", "surface", "release"}


def listed() -> dict[str, dict[str, object]]:
    areas = tomllib.loads((ROOT / "tests/house/faults.toml").read_text("utf-8"))
    return {f"{area}-{number}": fault for area, faults in areas.items() for number, fault in faults.items()}


def marks() -> dict[str, list[Path]]:
    """The files whose tests carry each id: `@pytest.mark.fault("SSE-01")`, a module's `pytestmark`, or a mark of one parameter."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in files("tests"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and dotted(node).endswith("mark.fault"):
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path}:{node.lineno}: an id is written out"
                    found[str(argument.value)].append(path)
    return found


def test_each_fault_is_tested_or_waits() -> None:
    assert [name for name, fault in listed().items() if not fault.get("test") and not fault.get("open")] == []


def test_each_fault_is_told_plainly() -> None:
    assert {key for fault in listed().values() for key in fault} <= {"title", "test", "open"}
    assert [name for name, fault in listed().items() if not fault["title"] or fault.get("test") not in {None, True}] == []
    assert {work for fault in listed().values() for work in fault.get("open", ())} <= WORK


def test_what_is_said_to_be_tested_is() -> None:
    marked = marks()
    assert sorted(name for name, fault in listed().items() if fault.get("test") and name not in marked) == []


def test_what_is_tested_is_said_to_be() -> None:
    faults = listed()
    assert sorted(name for name in marks() if not faults.get(name, {}).get("test")) == []


def test_the_threat_model_names_tested_faults() -> None:
    named = set(re.findall(r"\b[A-Z]{2,4}-\d{2}\b", (ROOT / "docs/threat-model.md").read_text("utf-8")))
    faults = listed()
    assert named
    assert sorted(name for name in named if not faults.get(name, {}).get("test")) == []
