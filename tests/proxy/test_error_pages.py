"""proxy/error_pages.py: each code has its words."""

from __future__ import annotations

import re

import pytest

from spangate.proxy.error_pages import PAGES
from spangate.proxy.errors import STATUS


def test_each_code_has_a_page_and_each_page_a_code() -> None:
    assert set(PAGES) == set(STATUS)


@pytest.mark.parametrize("code", PAGES)
def test_a_page_says_when_and_what_to_do(code: str) -> None:
    text = PAGES[code].markdown()
    assert text.startswith(f"# {code}\n\nHTTP status {STATUS[code]}.\n")
    when, do = re.findall(r"\*\*(?:When|What to do)\.\*\* (.+)", text)
    assert when.endswith(".")
    assert do.endswith(".")
