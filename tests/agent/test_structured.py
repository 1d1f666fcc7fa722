"""agent/structured.py: the tool that takes a structured output. What the loop does with it is in test_reply.py."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from spangate.agent import InvalidInput
from spangate.agent.structured import STRUCTURED, structured_tool
from spangate.agent.tools.arguments import BadArguments


class Point(BaseModel):
    x: int
    y: int = 0


async def test_it_takes_what_fits() -> None:
    output = structured_tool(Point)
    await output(x="1")
    assert (output.name, output.output) == (STRUCTURED, {"x": 1, "y": 0})
    with pytest.raises(BadArguments, match="x: Field required"):
        await output(y=1)


def test_a_schema_describes_an_object() -> None:
    assert structured_tool({"type": "object"}).input_schema == {"type": "object"}
    with pytest.raises(InvalidInput, match="must describe an object"):
        structured_tool({"type": "string"})
    with pytest.raises(InvalidInput, match="a pydantic model or a JSON Schema"):
        structured_tool(Point(x=1))
