"""The pages that docs/generate.py makes are as it would make them now."""

from __future__ import annotations

import runpy

import pytest

from spangate.proxy.errors import STATUS

from house.source import ROOT

PAGES: dict[str, str] = runpy.run_path(str(ROOT / "docs/generate.py"))["pages"]()


@pytest.mark.parametrize("path", PAGES)
def test_each_generated_page_is_current(path: str) -> None:
    assert (ROOT / "docs" / path).read_text("utf-8") == PAGES[path], "run: make docs"


def test_every_error_is_told() -> None:
    assert {f"errors/{code}.md" for code in STATUS} <= set(PAGES)


def test_the_reference_names_every_section() -> None:
    headings = [line[3:] for line in PAGES["configuration.md"].splitlines() if line.startswith("## ")]
    wanted = {"At the top", "server", "models.NAME", "models.NAME.targets[]", "models.NAME.time_limit", "teams.NAME", "teams.NAME.keys[]"}
    assert wanted | {"providers.NAME (openai)", "providers.NAME (scripted)", "callers.headers"} <= set(headings)
    assert len(headings) == len(set(headings))
