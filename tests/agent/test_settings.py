"""agent/settings.py: values that a reply copies."""

from __future__ import annotations

from spangate.agent import ContextConfig, ReActConfig, ReplyFinishedReason, ToolChoice
from spangate.agent.settings import copied


def test_a_reply_changes_its_own_copy() -> None:
    config = ReActConfig(max_iters=3)
    mine = copied(config)
    mine.max_iters = 9
    assert config.max_iters == 3
    assert copied(ContextConfig()) == ContextConfig()


def test_words_are_text() -> None:
    assert ReplyFinishedReason.EXCEED_MAX_ITERS == "exceed_max_iters"
    assert ToolChoice().mode == "auto"
