"""What an agent tells a gateway beside a request: which reply and thread it belongs to, and the trace that it is part of."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

from ..asking import asking

VENDORS = ("openai.com", "azure.com", "anthropic.com", "amazonaws.com", "googleapis.com")


def is_vendor(base_url: str) -> bool:
    """The address is a vendor's, who is told nothing that is ours."""
    host = urlsplit(base_url).hostname or ""
    return any(host == vendor or host.endswith(f".{vendor}") for vendor in VENDORS)


def reply_headers() -> dict[str, str]:
    """The headers for the reply that is being made. A trace goes along if this process has one."""
    now = asking.get()
    headers = {}
    if now.reply:
        headers["x-spangate-reply"] = now.reply
    if now.thread:
        headers["x-spangate-thread"] = now.thread
    # Whoever traces has loaded it; nobody else pays for loading it.
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers
