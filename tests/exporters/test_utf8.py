"""exporters/utf8.py: whatever text it is, anybody can read it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spangate.exporters.utf8 import text


@given(st.text(st.characters()), st.none() | st.integers(0, 10))
def test_text_is_always_utf8(value: str, limit: int | None) -> None:
    said = text(value, limit).decode()
    assert "\0" not in said
    assert limit is None or len(said) <= limit
    if value.isprintable() and limit is None:
        assert said == value
