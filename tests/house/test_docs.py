"""The pages: every error has one, every link leads somewhere, and nothing tells of the machine that it was written on."""

from __future__ import annotations
import __future__

import ast
import asyncio
import inspect
import re
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import CodeType

import pytest

from spangate.agent import MiddlewareBase, PolicyMiddleware, middlewares  # type: ignore[attr-defined]
from spangate.agent.hooks import HOOKS, SUGAR
from spangate.proxy.errors import STATUS

from house.source import ROOT

PAGES = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").glob("*.md")))
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# The pages whose Python a reader may type in.
TYPED = [page for page in PAGES if page == Path("README.md") or page.match("docs/agent*.md") or page.match("docs/coming-from-*.md")]

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


@pytest.mark.parametrize("path", sorted((ROOT / "docs/decisions").glob("*.md"))[1:], ids=lambda path: path.name)
def test_a_decision_has_its_number_and_its_parts(path: Path) -> None:
    """What was tried stands where there was something."""
    text = path.read_text("utf-8")
    assert re.match(rf"# {int(path.name[:4])}: ", text)
    parts = re.findall(r"^\*\*([A-Z][^*]*)\.\*\*", text, re.MULTILINE)
    assert parts in (["Decided", "Why", "Tried and left", "What follows"], ["Decided", "Why", "What follows"])


@pytest.mark.parametrize("page", TYPED, ids=str)
def test_its_python_runs_and_prints_what_it_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Block after block, as one session; a block of `text` is what the one before it prints, and without one it prints nothing."""
    names: dict[str, object] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for code, printed in typed(page):
            waiting = eval(code, names)
            if waiting is not None:
                runner.run(waiting)
            assert capsys.readouterr().out == printed


def typed(page: Path) -> Iterator[tuple[CodeType, str]]:
    """Each block of Python, and what it prints. Its lines have the numbers that they have on the page."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    if page.name == "README.md":  # which shows the shape of a policy without its imports
        flags |= __future__.annotations.compiler_flag
    text = (ROOT / page).read_text("utf-8")
    blocks = [(found[1], "\n" * text.count("\n", 0, found.start(2)), found[2]) for found in BLOCK.finditer(text)]
    for (language, above, code), (following, _, printed) in zip(blocks, [*blocks[1:], ("", "", "")], strict=True):
        if language == "python":
            yield compile(above + code, str(page), "exec", flags, dont_inherit=True), printed if following == "text" else ""


def sections(page: str) -> dict[str, str]:
    """The sections of a page, by their headings."""
    found = [section.partition("\n") for section in (ROOT / page).read_text("utf-8").split("\n## ")[1:]]
    return {heading: text for heading, _, text in found}


def test_every_middleware_has_an_example_and_a_word_on_each_option() -> None:
    told = sections("docs/agent-middlewares.md")
    modules = [import_module(f"spangate.agent.middlewares.{found.name}") for found in iter_modules(middlewares.__path__)]
    offered = {each for module in modules for each in vars(module).values() if isinstance(each, type) and issubclass(each, MiddlewareBase)}
    assert {each.__name__ for each in {*offered, PolicyMiddleware} - {MiddlewareBase}} == told.keys()
    for each in {*offered, PolicyMiddleware} - {MiddlewareBase}:
        text = told[each.__name__]
        assert "```python" in text
        options = inspect.signature(each.__init__).parameters.keys() - {"self"}
        assert [option for option in options if not re.search(rf"\b{option}\b", FENCE.sub("", text))] == [], each.__name__


def test_every_hook_has_an_example() -> None:
    told = sections("docs/agent-hooks.md")
    shown = {name for heading, text in told.items() for name in re.findall(r"\w+", heading) if "```python" in text}
    offered = {*HOOKS, *SUGAR, "list_tools", "on_tool_call"} - {"on_tool_search"}  # which nothing asks yet
    assert offered <= shown
