"""`spangate schema`: the JSON Schema of spangate.yaml, with the plug-ins that are installed here."""

from __future__ import annotations

import json

from ..schema import json_schema


def schema() -> int:
    """Print it."""
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))  # noqa: T201 - the command's result
    return 0
