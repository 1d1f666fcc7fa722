"""agent/models/labels.py: what a gateway is told, and a vendor is not."""

from __future__ import annotations

import pytest

from spangate.agent.asking import Asking, asking
from spangate.agent.models.labels import is_vendor, reply_headers


@pytest.mark.parametrize(
    ("address", "vendor"),
    [
        ("https://api.openai.com/v1", True),
        ("https://x.openai.azure.com", True),
        ("https://api.anthropic.com", True),
        ("http://127.0.0.1:8484/v1", False),
        ("https://openai.com.example.org", False),
        ("https://notopenai.com", False),
    ],
)
def test_whose_address_it_is(address: str, vendor: bool) -> None:
    assert is_vendor(address) is vendor


def test_only_what_is_known_is_told() -> None:
    assert "x-spangate-reply" not in reply_headers()
    token = asking.set(Asking(reply="r", thread="t"))
    assert {"x-spangate-reply": "r", "x-spangate-thread": "t"}.items() <= reply_headers().items()
    asking.reset(token)
