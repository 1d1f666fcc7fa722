"""proxy/exchange.py: who is an Exchange."""

from __future__ import annotations

from spangate.proxy.exchange import Exchange
from spangate.proxy.http_exchange import HttpExchange

from exchange import Paper


def test_what_speaks_to_clients_is_an_exchange() -> None:
    real: type[Exchange] = HttpExchange
    on_paper: type[Exchange] = Paper
    assert real is not on_paper
