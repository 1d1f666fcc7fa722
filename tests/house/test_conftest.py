"""The way tests run bites: each of these tests passes by itself and is failed for what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import copy2

import pytest

from house.source import ROOT

TESTS = """
import asyncio
from contextlib import aclosing

from hypothesis import given, strategies as st

kept = []

async def numbers():
    yield 1
    yield 2

async def fail():
    raise ValueError("nobody asked")

async def test_clean():
    async with aclosing(numbers()) as each:
        await anext(each)
    await asyncio.create_task(asyncio.sleep(0))

async def test_clean_though_a_task_is_just_ending():
    asyncio.create_task(asyncio.sleep(0.01))

@given(st.integers())
async def test_clean_property(number):
    await asyncio.sleep(0)

async def test_dropped():
    async for each in numbers():
        break

async def test_kept_open():
    kept.append(numbers())
    await anext(kept[0])

async def test_task():
    kept.append(asyncio.create_task(asyncio.sleep(60)))

async def test_nobody_retrieved():
    asyncio.create_task(fail())
    await asyncio.sleep(0.01)

@given(st.integers())
async def test_bad_property(number):
    async for each in numbers():
        break

async def test_wrong():
    assert 1 == 2
"""

SAID = {
    "test_dropped": "async generator dropped unfinished: numbers",
    "test_kept_open": "async generator left open: numbers",
    "test_task": "task left running",
    "test_nobody_retrieved": "nobody asked",
    "test_bad_property": "async generator dropped unfinished: numbers",
    "test_wrong": "assert 1 == 2",
}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_is_left_behind_fails_a_test(tmp_path: Path, loop: str) -> None:
    (tmp_path / "tests").mkdir()
    copy2(ROOT / "tests/conftest.py", tmp_path / "tests")
    (tmp_path / "tests/test_them.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\nfilterwarnings = error\n")
    pytest_itself = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider", "tests", "--loop", loop]
    ran = subprocess.run(pytest_itself, cwd=tmp_path, capture_output=True, text=True, check=False)
    for name, said in SAID.items():
        assert f" {name} " in ran.stdout, ran.stdout + ran.stderr
        assert said in ran.stdout
    assert "6 failed, 3 passed" in ran.stdout
