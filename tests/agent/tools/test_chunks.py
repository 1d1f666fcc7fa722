"""agent/tools/chunks.py: pieces and the whole."""

from __future__ import annotations

from spangate.agent import DataBlock, TextBlock, ToolChunk, ToolResponse, ToolResultState
from spangate.agent.messages.blocks import Base64Source
from spangate.agent.tools.chunks import as_chunk, joined


def test_pieces_join_and_a_whole_stands_for_all_before_it() -> None:
    picture = DataBlock(Base64Source("AA", "image/png"))
    whole = joined([ToolChunk("a"), ToolChunk("b"), ToolChunk([picture]), ToolChunk("c", metadata={"n": 1})])
    assert [block.type for block in whole.content] == ["text", "data", "text"]
    assert (whole.text, whole.state, whole.metadata) == ("abc", ToolResultState.SUCCESS, {"n": 1})
    assert joined([ToolChunk("a"), ToolResponse("b")]).text == "b"
    assert joined([ToolChunk("a", ToolResultState.ERROR)]).state is ToolResultState.ERROR
    assert joined([]).content == []


def test_an_error_says_so() -> None:
    error = ToolResponse.error("No.", error_type="x")
    assert (error.text, error.state, error.metadata) == ("No.", ToolResultState.ERROR, {"error_type": "x"})


def test_blocks_stay_blocks() -> None:
    assert as_chunk([TextBlock("a"), TextBlock("b")]).text == "ab"
    assert as_chunk([]).text == "[]"
    assert as_chunk(["a"]).text == '["a"]'
