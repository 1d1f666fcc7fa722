"""What the gateway answers itself: lists, health, the pages of the error codes, and CORS."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ..call.errors import Refused
from ..exporters.metrics.measuring import Measuring
from ..exporters.metrics.openmetrics import render
from ..exporters.usage.recorder import SpoolRecorder
from ..policies.ledger.server import foreign_words
from . import standings
from .admin import check_token
from .callers import loopback_address
from .error_pages import PAGES, listed
from .exchange import Exchange
from .gateway import Gateway
from .wire import header_text

DOCS = "/docs/errors/"
MODELS = "/v1/models/"
_ALLOWED_HEADERS = "authorization, content-type, api-key, x-api-key, traceparent, tracestate, x-request-id"


async def models(exchange: Exchange, gateway: Gateway) -> None:
    """OpenAI's list, of what this key may ask for."""
    caller = gateway.callers.who(exchange.headers, has_body=exchange.has_body)
    owners = gateway.providers_of(await gateway.models(caller))
    await _json(exchange, {"object": "list", "data": [_model(name, owner) for name, owner in owners.items()]})


async def model(exchange: Exchange, gateway: Gateway) -> None:
    """One of them. A name may hold slashes, as they are or percent-encoded."""
    caller = gateway.callers.who(exchange.headers, has_body=exchange.has_body)
    name = unquote(exchange.path.removeprefix(MODELS), errors="replace")
    await _json(exchange, _model(name, await gateway.owner(caller, name)))


def _model(name: str, owner: str) -> Mapping[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


async def key(exchange: Exchange, gateway: Gateway) -> None:
    """What the key's holder may use and until when, and what is left of each limit and budget."""
    caller = gateway.callers.who(exchange.headers, has_body=exchange.has_body)
    holder = gateway.callers.holder(caller)
    expires = holder.expires.isoformat() if holder and holder.expires else None
    told = {"object": "key", "organisation": caller.organisation, "team": caller.team or None, "name": caller.key or None}
    limits, budgets = await standings.of_key(gateway, caller)
    await _json(exchange, {**told, "expires": expires, "models": await gateway.models(caller), "limits": limits, "budgets": budgets})


async def budgets(exchange: Exchange, gateway: Gateway) -> None:
    """Every budget, for the admin token."""
    check_token(exchange, gateway)
    await local_budgets(exchange, gateway)


async def local_budgets(exchange: Exchange, gateway: Gateway) -> None:
    """Every budget, for whoever got here."""
    await _json(exchange, {"object": "list", "data": await standings.all_budgets(gateway)})


async def stops(exchange: Exchange, gateway: Gateway) -> None:
    """Every kill switch that is on, for the admin token."""
    check_token(exchange, gateway)
    await local_stops(exchange, gateway)


async def local_stops(exchange: Exchange, gateway: Gateway) -> None:
    """Every kill switch that is on, for whoever got here: as they are now, for somebody may have turned one a moment ago."""
    switches = gateway.switches
    await switches.look()
    rows = [{"switch": switch, "since": since.isoformat()} for switch, since in switches.now.since.items()]
    await _json(exchange, {"object": "list", "data": rows} | ({"problem": switches.problem} if switches.problem else {}))


async def test_webhooks(exchange: Exchange, gateway: Gateway) -> None:
    """Send one request to each webhook of a budget, for whoever got here."""
    await _json(exchange, {"object": "list", "data": await standings.test_webhooks(gateway)})


async def healthz(exchange: Exchange, gateway: Gateway) -> None:
    await _json(exchange, {"status": "alive"})


@dataclass(frozen=True, slots=True)
class Health:
    """What readiness is told from. `state`: why the shared counters can't be had; `foreign`: keys of theirs with something else in them,
    and its type; `waiting`: settings that only a restart brings."""

    draining: bool = False
    reload_error: str = ""
    usage: SpoolRecorder | None = None
    state: str = ""
    foreign: Mapping[str, str] = field(default_factory=dict)
    measuring: Measuring | None = None
    waiting: Sequence[str] = ()


async def readyz(exchange: Exchange, gateway: Gateway, health: Health) -> None:
    """Ready for calls: what an earlier process left in the spool is in the database, and nobody has asked us to stop. A counter that isn't
    ours keeps those calls out that need it, here as in any other gateway; the others are served."""
    usage = health.usage
    replaying = usage is not None and usage.state.phase == "starting"  # a database that can't be had keeps nobody from calling
    unkept = gateway.books.trouble is not None and bool(gateway.books.trouble())
    refusing = (bool(health.state) and gateway.refuses_without_state("budget", "rate_limit")) or (
        unkept and gateway.refuses_without_state("budget")
    )
    status = "draining" if health.draining else "state_unavailable" if refusing else "replaying" if replaying else "ready"
    told: dict[str, Any] = {"status": status, "config_version": gateway.config.version}
    if health.reload_error:
        told["config_reload_failed"] = health.reload_error
    if health.waiting:
        told["waits_for_restart"] = list(health.waiting)
    if stopped := len(gateway.switches.now.since):
        told["stopped"] = stopped  # how many: whose they are is nobody else's business
    if problem := gateway.switches.problem:
        told["switches"] = problem
    if state := _state(health, unkept=unkept, local=loopback_address(exchange.client_address)):
        told["state"] = state
    if usage is not None:
        told |= _usage(usage)
    if health.measuring is not None and (dropped := health.measuring.dropped()):
        told["telemetry_dropped"] = {f"{signal}.{reason}": number for (signal, reason), number in sorted(dropped.items())}
    await _json(exchange, told, 200 if status == "ready" else 503)


async def metrics(measuring: Measuring, exchange: Exchange, gateway: Gateway) -> None:
    """What Prometheus reads. From another machine it needs the admin token: models and teams' traffic are nobody else's business."""
    if not loopback_address(exchange.client_address):
        check_token(exchange, gateway)
    headers = exchange.headers
    page = await render(measuring.collect, headers.get("Accept") or "", headers.get("Accept-Encoding") or "")
    coding = {"content-encoding": page.encoding} if page.encoding else {}
    await exchange.answer(200, {"content-type": page.content_type, **coding}, page.body)


def _state(health: Health, *, unkept: bool, local: bool) -> str:
    """What is wrong with the counters. Keys name teams and users, so that they are told on this machine alone."""
    problems = [f"the shared counters can't be had: {health.state}"] if health.state else []
    if unkept:
        problems.append("what budgets count can't be kept through a crash; `usage` says why")
    if foreign := dict(health.foreign):
        more = f"{len(foreign)} of the shared counters can't be had"
        problems.append(
            f"{more}: " + (foreign_words(*next(iter(foreign.items()))) if local else "the log names their keys, and says what to do")
        )
    return "; ".join(problems)


def _usage(usage: SpoolRecorder) -> dict[str, Any]:
    """What keeps rows from the database just now, how many calls have lost their row, and how many lines were broken or refused;
    nothing where all is well. Anybody may read this, so it names no folder."""
    problem = usage.problem
    for folder in (usage.path.parent.absolute(), usage.path.parent):
        problem = problem.replace(f"{folder}/", "")
    losses = {"usage_lost": usage.spooling.lost, "usage_broken": usage.state.broken}
    return ({"usage": problem} if problem else {}) | {name: count for name, count in losses.items() if count}


async def error_page(exchange: Exchange, gateway: Gateway) -> None:
    """What `doc_url` of an error leads to, and the list of these pages."""
    code = exchange.path.removeprefix(DOCS)
    if code and code not in PAGES:
        raise Refused(f"There is no such page; {DOCS} lists them.", code="not_found")
    text = PAGES[code].markdown() if code else listed()
    await exchange.answer(200, {"content-type": "text/markdown; charset=utf-8"}, text.encode())


async def _json(exchange: Exchange, value: Any, status: int = 200) -> None:
    await exchange.answer(status, {"content-type": "application/json"}, json.dumps(value, separators=(",", ":")).encode("ascii"))


def cors(exchange: Exchange, gateway: Gateway) -> Mapping[str, str]:
    """The headers that let a web page of an allowed origin read the answer."""
    allowed = gateway.config.server.cors
    origin = exchange.headers.get("Origin") if allowed else None
    if not origin or (origin not in allowed and "*" not in allowed):
        return {}
    return {"access-control-allow-origin": origin, "vary": "origin", "access-control-expose-headers": "*"}


async def preflight(exchange: Exchange, gateway: Gateway) -> bool:
    """Answer a browser's question before the request; False if its origin may not ask."""
    if "access-control-allow-origin" not in exchange.extra:
        return False
    wanted = header_text(exchange.headers.get("Access-Control-Request-Headers") or _ALLOWED_HEADERS)
    allowed = {"access-control-allow-methods": "GET, POST", "access-control-allow-headers": wanted, "access-control-max-age": "600"}
    await exchange.answer(204, allowed, b"")
    return True
