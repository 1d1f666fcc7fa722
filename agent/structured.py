"""Structured output: a tool that the model calls to give it, checked against a pydantic model or a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import InvalidInput
from .models.response import ChatResponse
from .tools.arguments import BadArguments, read
from .tools.schema import schema_of
from .tools.tool import ToolBase

STRUCTURED = "generate_structured_output"


class StructuredOutput(ToolBase):
    """Takes the output once it is right; until then it tells the model what is wrong."""

    name = STRUCTURED
    description = "Give the final answer in the form that was asked for. Call it once, when everything else is done."
    is_concurrency_safe = False

    def __init__(self, schema: Mapping[str, Any], model: Any = None) -> None:
        super().__init__()
        self.input_schema = schema
        self._model = model
        self.output: Any = None

    def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._model is None:
            return super().checked(arguments)
        from pydantic import ValidationError

        try:
            dumped: dict[str, Any] = self._model.model_validate(arguments).model_dump(mode="json")
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors(include_url=False)[:5]]
            raise BadArguments("; ".join(lines)) from None
        return dumped

    async def call(self, **kwargs: Any) -> str:
        self.output = kwargs
        return "The output was taken."


def output_of(answer: ChatResponse, form: StructuredOutput) -> dict[str, Any]:
    """The output that an answer gives: in its call, or in its text, where a model would not call.

    Raises:
        BadArguments: it gives none, or one that doesn't fit.
    """
    given = [call.input for call in answer.tool_calls if call.name == form.name]
    return form.checked(read(given[0] if given else answer.text)[0])


def structured_tool(schema: Any) -> StructuredOutput:
    """
    Raises:
        InvalidInput: it is neither a pydantic model nor a JSON Schema of an object.
    """
    is_model = isinstance(schema, type) and hasattr(schema, "model_json_schema")
    if not is_model and not isinstance(schema, Mapping):
        raise InvalidInput("structured_schema is a pydantic model or a JSON Schema.", param="structured_schema")
    made = schema_of(schema)
    if made.get("type") != "object":
        raise InvalidInput("structured_schema must describe an object.", param="structured_schema")
    return StructuredOutput(made, schema if is_model else None)
