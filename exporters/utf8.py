"""Text as bytes that any reader takes: callers and providers may send what UTF-8 hasn't."""

from __future__ import annotations


def text(value: str, limit: int | None = None) -> bytes:
    """UTF-8 without lone surrogates and NUL, of at most `limit` characters."""
    if limit is not None and len(value) > limit:
        value = value[:limit]
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
