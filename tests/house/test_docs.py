"""The pages: every error has one, every link leads somewhere, and nothing tells of the machine that it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from spangate.proxy.errors import STATUS

from house.source import ROOT

PAGES = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").glob("*.md")))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

# Built from pieces, so that this file doesn't say them either.
PLACES = ("/wo" + "rk/", "/ro" + "ot/", "/opt/" + "pypi", "/opt/" + "wheels", "files.python" + "hosted", "pypi." + "org/simple")
FORBIDDEN = re.compile("|".join(map(re.escape, PLACES)))


def tracked() -> list[Path]:
    """What is in the repository, or about to be; an unpacked source archive is all of it."""
    ran = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in ran.stdout.splitlines() if (ROOT / line).is_file()]


@pytest.mark.parametrize("code", STATUS)
def test_each_error_has_a_page(code: str) -> None:
    page = (ROOT / "docs/errors" / f"{code}.md").read_text("utf-8")
    assert page.startswith(f"# {code}\n")
    assert str(STATUS[code]) in page


def test_each_page_is_of_an_error() -> None:
    assert {path.stem for path in (ROOT / "docs/errors").glob("*.md")} <= {*STATUS, "README"}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", (ROOT / page).read_text("utf-8"))
    assert [target for target in LINK.findall(text) if not leads(page, target)] == []


def leads(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return True
    path, _, anchor = target.partition("#")
    aim = (ROOT / page.parent / path).resolve() if path else ROOT / page
    if not aim.is_relative_to(ROOT) or not aim.exists():
        return False
    return not anchor or aim.suffix != ".md" or anchor in anchors(aim.read_text("utf-8"))


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_a_way_in() -> None:
    assert {"README.md", "CONTRIBUTING.md", "LICENSE", "docs/threat-model.md", "changes/README.md"} <= {str(path) for path in tracked()}


def test_no_file_tells_of_a_machine() -> None:
    told = []
    for path in tracked():
        try:
            text = (ROOT / path).read_text("utf-8")
        except UnicodeDecodeError:
            continue
        told += [f"{path}: {found.group()}" for found in FORBIDDEN.finditer(text)]
    assert told == []


def test_decisions_are_numbered() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
    assert numbers == list(range(len(numbers)))
