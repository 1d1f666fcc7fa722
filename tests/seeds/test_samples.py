"""The samples are the pages' own: each differs from the text beside it in import, model and credential lines, and in nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from seeds.sample import SEEDS

SAMPLES = sorted(SEEDS.glob("*/*.txt"))

IMPORT = re.compile(r"(from|import) ")
MODEL = re.compile(r"\s*(\w+ ?= ?)?(\w*(ChatModel|ClassifierModel|ScriptedModel|BM25Classifier)\(.*)")
CREDENTIAL = re.compile(r"\s*credential ?= ?\w+|.*os\.environ\[")
# Where the page leaves something out and says so ("...", "# your code"), it is filled in with this.
FILLED_IN = [
    (["    ..."], ['    name="assistant",', '    system_prompt="You are a helpful assistant.",', "    model=model,"]),
    ([], ["    your_code(span)"]),
]

# Names that another project has and we have not: its own models and their keys, and what stands for them here.
FOREIGN = re.compile(r"(DashScope|TypeSafe|Jev)\w+")
OURS = {"ScriptedModel", "BM25Classifier"}


def changes(theirs: list[str], ours: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    for kind, a, b, c, d in SequenceMatcher(None, theirs, ours, autojunk=False).get_opcodes():
        if kind != "equal":
            yield theirs[a:b], ours[c:d]


def may_change(line: str) -> bool:
    return any(kind.match(line) for kind in (IMPORT, MODEL, CREDENTIAL))


def text_of(sample: Path) -> list[str]:
    """Our lines, without the opening words that name the source."""
    opening, _, text = sample.with_suffix(".py").read_text("utf-8").partition("\n\n")
    assert opening.startswith('"""AgentScope\'s documentation, page 中间件 (Middleware), section ')
    assert sample.name in opening
    return text.splitlines()


def test_they_are_all_there() -> None:
    assert {path.stem for path in SEEDS.glob("*/*.py")} == {path.stem for path in SAMPLES}
    assert {path.stem for path in SAMPLES} == {
        *("tracing_setup", "tracing", "custom_span", "reply_budget", "router_classifier", "router_chat", "full_observability"),
        *("continue_once", "onion_order", "prompt_order", "timing", "rate_limit", "dynamic_context", "model_fallback"),
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_only_such_lines_differ(sample: Path) -> None:
    assert odd_lines(sample.read_text("utf-8").splitlines(), text_of(sample)) == []


def odd_lines(theirs: list[str], ours: list[str]) -> list[str]:
    """The lines that differ and may not."""
    odd: list[str] = []
    for gone, come in changes(theirs, ours):
        odd += [] if (gone, come) in FILLED_IN else [line for line in (*gone, *come) if not may_change(line)]
    return odd


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_what_it_imports_has_the_same_name_here(sample: Path) -> None:
    theirs, ours = imported(sample.read_text("utf-8")), imported("\n".join(text_of(sample)))
    assert {name for name in theirs - ours if not FOREIGN.fullmatch(name)} == set()
    assert ours - theirs <= (OURS if any(FOREIGN.fullmatch(name) for name in theirs) else {"Agent"})


def imported(text: str) -> set[str]:
    lines = "\n".join(re.findall(r"^(?:from .+|import .+)$", text, re.MULTILINE))
    return {alias.name for node in ast.walk(ast.parse(lines)) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize(
    ("sample", "line", "changed"),
    [
        ("timing", "        result = await next_handler()", ["        result = await next_handler(**input_kwargs)"]),
        ("reply_budget", "            token_budget=10000,", ["            token_budget=100,"]),
        ("tracing", "    middlewares=[TracingMiddleware()],", ["    middlewares=[TracingMiddleware(provider)],"]),
        ("continue_once", "                continued = True", []),
        ("dynamic_context", "    middlewares=[", ['    name="assistant",', "    middlewares=["]),
        ("router_chat", "router = ModelRouterMiddleware(", ["router = OurRouterMiddleware("]),
    ],
)
def test_the_comparison_bites(sample: str, line: str, changed: list[str]) -> None:
    path = SEEDS / "agentscope" / f"{sample}.txt"
    ours = text_of(path)
    at = ours.index(line)
    assert odd_lines(path.read_text("utf-8").splitlines(), [*ours[:at], *changed, *ours[at + 1 :]])
