"""`langchain-openai`, unchanged but for URL and key. Prints what it was answered as one JSON object."""

from __future__ import annotations

import json
import os
from typing import Any

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import APIStatusError
from pydantic import BaseModel, SecretStr

WHERE: dict[str, Any] = {"base_url": os.environ["BASE_URL"], "api_key": SecretStr(os.environ["API_KEY"]), "max_retries": 0}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


class Weather(BaseModel):
    """What the weather is."""

    city: str
    degrees: int


def plain(message: Any) -> dict[str, Any]:
    return {
        "content": message.content,
        "tool_calls": getattr(message, "tool_calls", None),
        "usage": getattr(message, "usage_metadata", None),
    }


def main() -> None:
    model = ChatOpenAI(model="m", **WHERE)
    told: dict[str, Any] = {"whole": plain(model.invoke("hi")), "stream": [plain(chunk) for chunk in model.stream("hi")]}
    told["tools"] = plain(model.bind_tools(TOOLS).invoke("hi"))
    told["tool_stream"] = [plain(chunk) for chunk in model.bind_tools(TOOLS).stream("hi")]
    told["format"] = model.with_structured_output(Weather, method="json_schema").invoke("hi").model_dump()
    told["vectors"] = OpenAIEmbeddings(model="m", check_embedding_ctx_length=False, **WHERE).embed_documents(["x"])
    if os.environ.get("ERRORS"):
        told["errors"] = {}
        for name, other in (("model", {"model": "nobody"}), ("key", {"model": "m", "api_key": SecretStr("sg-wrong")})):
            try:
                ChatOpenAI(**WHERE | other).invoke("hi")
            except APIStatusError as error:
                ancestor = next(each for each in type(error).__mro__ if each.__module__.startswith("openai"))
                told["errors"][name] = [ancestor.__name__, error.status_code, error.code]
    print(json.dumps(told))


main()
