"""agent/messages/blocks.py: each block knows its type and its texts."""

from __future__ import annotations

from spangate.agent import DataBlock, ForeignBlock, HintBlock, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock, URLSource
from spangate.agent.messages.blocks import texts_of

ALL = [
    (TextBlock("a"), "text", ["a"]),
    (ThinkingBlock("a"), "thinking", ["a"]),
    (DataBlock(URLSource("https://example.org")), "data", []),
    (HintBlock("a"), "hint", ["a"]),
    (HintBlock([TextBlock("a"), DataBlock(URLSource("x"))]), "hint", ["a"]),
    (ToolCallBlock("c", "f", "{}"), "tool_call", ["{}"]),
    (ToolResultBlock("c", "f", [TextBlock("a"), TextBlock("b")]), "tool_result", ["a", "b"]),
    (ForeignBlock("chat", {}), "foreign", []),
]


def test_types_and_texts() -> None:
    assert [(block.type, texts_of(block)) for block, _, _ in ALL] == [(kind, texts) for _, kind, texts in ALL]
    assert ToolResultBlock("c", "f", [TextBlock("a"), TextBlock("b")]).text == "ab"


def test_every_block_has_its_own_id() -> None:
    assert TextBlock("a").id != TextBlock("a").id
