"""What the dialects share: where data is, what is said beyond our fields, and the rule that nothing is changed on its way through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .blocks import Base64Source, Block, ForeignBlock, URLSource


def rest(part: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """The fields that we have no word for."""
    return {name: value for name, value in part.items() if name not in known}


def extra(dialect: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A block's `extra`, with what this dialect said beside."""
    return {dialect: fields} if fields else {}


def kept(dialect: str, part: Any, block: Block | None, written: Sequence[Any]) -> Block:
    """The block that a part was read as, if it is written exactly as the part was; else the part as it came."""
    return block if block is not None and list(written) == [part] else ForeignBlock(dialect, part)


def url_of(source: Base64Source | URLSource) -> str:
    """Where data is, as one URL."""
    return source.url if isinstance(source, URLSource) else f"data:{source.media_type};base64,{source.data}"


def source_of(url: str) -> Base64Source | URLSource:
    """Where data is: in a data URL, or elsewhere."""
    if url.startswith("data:"):
        media_type, found, data = url[5:].partition(";base64,")
        if found:
            return Base64Source(data, media_type)
    return URLSource(url, "image/*")
