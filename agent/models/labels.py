"""What an agent tells a gateway beside a request: which reply and thread it belongs to, and the trace that it is part of."""

from __future__ import annotations

import sys
from hashlib import sha256
from urllib.parse import quote, urlsplit

from ..asking import asking

LONGEST = 256  # characters of a label that a gateway takes
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
        headers["x-spangate-reply"] = label(now.reply)
    if now.thread:
        headers["x-spangate-thread"] = label(now.thread)
    # Whoever traces has loaded it; nobody else pays for loading it.
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers


def label(name: str) -> str:
    """A name as a header can hold it: as it is if it is short and printable ASCII, else percent-encoded; of a long one the beginning, and
    a digest that keeps it apart from others."""
    plain = name.isascii() and name.isprintable() and name == name.strip()
    said = name if plain else quote(name, safe=" ", errors="surrogatepass").strip()
    if len(said) <= LONGEST:
        return said
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{said[: LONGEST - len(digest) - 1].rstrip()}~{digest}"


def trace_parent() -> tuple[int, int, bool]:
    """Trace id, span id and sampled flag of what is going on in this process; zeros and True where nothing is traced."""
    if "opentelemetry.trace" not in sys.modules:
        return 0, 0, True
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    return (context.trace_id, context.span_id, context.trace_flags.sampled) if context.is_valid else (0, 0, True)
