"""agent/messages/dialect.py: what the dialects share. What each makes of it is in the tests of its own."""

from __future__ import annotations

import pytest

from spangate.agent import Base64Source, ForeignBlock, TextBlock, URLSource
from spangate.agent.messages.dialect import extra, kept, rest, source_of, url_of


@pytest.mark.parametrize("url", ["https://x/y.png", "data:image/png;base64,AA==", "data:text/plain,hello"])
def test_where_data_is_comes_back_as_it_was(url: str) -> None:
    source = source_of(url)
    assert url_of(source) == url
    assert isinstance(source, Base64Source) == ("base64" in url)
    assert url_of(URLSource("https://x")) == "https://x"


def test_what_we_have_no_word_for_is_kept() -> None:
    assert rest({"type": "text", "text": "a", "mark": 1}, "type", "text") == {"mark": 1}
    assert extra("chat", {"mark": 1}) == {"chat": {"mark": 1}}
    assert extra("chat", {}) == {}


def test_a_part_that_would_be_written_otherwise_is_kept_whole() -> None:
    part, block = {"type": "text", "text": "a"}, TextBlock("a")
    assert kept("chat", part, block, [part]) is block
    for foreign in (kept("chat", part, block, [{**part, "more": 1}]), kept("chat", part, block, ()), kept("chat", part, None, ())):
        assert isinstance(foreign, ForeignBlock)
        assert (foreign.dialect, foreign.value) == ("chat", part)
