"""The wheel that users install: built from a copy of the source, put into a fresh environment with the locked dependencies, and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copy2, copytree

import pytest

from house.source import ROOMS, ROOT, package, pyproject

pytestmark = pytest.mark.timeout(600)

DATA = (Path("py.typed"), Path("policies/ledger/ledger.lua"))

LOADS_ALL = """
import importlib, importlib.metadata as metadata, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
ours = [e for group in ("spangate.policies", "spangate.providers") for e in metadata.entry_points(group=group)]
print(*sorted(f"{e.name}={e.load().__name__}" for e in ours))
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    ran = subprocess.run([str(each) for each in command], cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by way of the source archive and from a copy: no old build folder and no editable installation lends it a file."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("__init__.py", "py.typed", "pyproject.toml", "README.md", "LICENSE"):
        copy2(ROOT / name, source)
    for room in ROOMS:
        copytree(ROOT / room, source / room)
    run(sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", out, source, cwd=source)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment that holds the wheel and what it is locked to."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-P", "-m", "venv", home, cwd=home)
    pip = [home / "bin/python", "-P", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    run(*pip, "--require-hashes", "-r", ROOT / "lock/runtime.txt", cwd=home)
    run(*pip, "--no-deps", "--no-index", wheel, cwd=home)
    return home / "bin"


@pytest.mark.fault("INJ-13")
def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {f"spangate/{path}" for path in (*package(), *DATA)}


def test_its_metadata_are_ours(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [metadata] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA")]
    import spangate

    assert f"\nVersion: {spangate.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_every_module_and_entry_point_loads(installed: Path, tmp_path: Path) -> None:
    modules = [".".join(("spangate", *path.with_suffix("").parts)).removesuffix(".__init__") for path in package()]
    named = {f"{name}={aim.split(':')[1]}" for group in pyproject()["project"]["entry-points"].values() for name, aim in group.items()}
    wanted = [name for name in modules if not name.endswith("__main__")]
    assert set(run(installed / "python", "-P", "-c", LOADS_ALL, *wanted, cwd=tmp_path).split()) == named


def test_nothing_outside_the_package_is_installed(installed: Path, tmp_path: Path) -> None:
    """A module called `proxy` or `call` would collide with other packages'."""
    missing = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n)])"
    assert run(installed / "python", "-P", "-c", missing, *ROOMS, "tests", "agent", cwd=tmp_path).split() == []


def test_check_takes_the_example(installed: Path, tmp_path: Path) -> None:
    example = ROOT / "spangate.example.yaml"
    copy2(example, tmp_path)
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", example.read_text("utf-8")), "an-example")
    run(installed / "spangate", "check", "-c", "spangate.example.yaml", cwd=tmp_path, **variables)


def test_demo_runs(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "spangate", "demo", cwd=tmp_path, HOME=str(tmp_path)).strip()
    assert list(tmp_path.iterdir()) == [], "the demo leaves nothing where it ran"
