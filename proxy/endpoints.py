"""Which path is what, and one request from its head to its last byte.

The pipeline of a model call: key → room → body → Call → the gateway's Next → the answer. Every request of a model operation opens a
Seen and ends it exactly once; any other is a Visit, of which nothing is told but the answer. Whatever goes wrong becomes an error in
OpenAI's shape here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from functools import partial
from random import getrandbits
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from ..call.body import Body
from ..call.call import Call, Caller, Op
from ..call.clock import Clock
from ..call.errors import OurFault, Refused, SpangateError
from ..call.seen import Outcome, Seen, request_id
from ..exporters.metrics.measuring import Measuring
from ..exporters.record import Recorder
from ..exporters.usage.recorder import SpoolRecorder
from . import answering, errors, pages, wire
from .admin import Desk
from .books import foreign
from .exchange import Exchange
from .gateway import Gateway
from .guessing import Guessing
from .intake import Guest, House, read_all
from .jsonbody import read_body

log = logging.getLogger("spangate.proxy")

Reply = Callable[[Exchange, Gateway], Awaitable[None]]

MODEL_OPS: Mapping[str, Op] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
}


METRICS = "/metrics"
_NO_METRICS = "No metrics are counted: give spangate.yaml a section `telemetry` (`telemetry: {}` is enough) and restart the gateway."


class Running:
    """A model call under way. `reason`: why it was stopped by us, if it was."""

    __slots__ = ("reason", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.reason: SpangateError | None = None

    def stop(self, reason: SpangateError) -> None:
        if self.reason is None:
            self.reason = reason
            self.task.cancel()


class Visit(NamedTuple):
    """A request that is no model call, as far as its answer names it: it has no row and no span, so there is nothing to fill or end."""

    id: str
    trace_hex: str


class Endpoints:
    """Answers requests with whatever `gateway` is current; a request keeps the one that it began with."""

    def __init__(
        self,
        gateway: Gateway,
        recorder: Recorder,
        clock: Clock,
        usage: SpoolRecorder | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        self.gateway = gateway
        self.recorder = recorder
        self.clock = clock
        self.house = House()
        self._guessing = Guessing(clock)
        self.draining = False
        self.reload_error = ""
        self.waiting: list[str] = []
        self.running: set[Running] = set()
        self._pages: Mapping[str, Reply] = {
            "/v1/models": pages.models,
            "/v1/key": pages.key,
            "/admin/budgets": pages.budgets,
            "/admin/stops": pages.stops,
            "/healthz": pages.healthz,
            "/readyz": self._readyz,
        }
        if measuring is not None:
            self._pages = {**self._pages, METRICS: partial(pages.metrics, measuring)}
        self._measuring = measuring
        self._usage = usage
        desk = Desk(usage)
        self._asked: Mapping[str, Reply] = {"/usage/sql": desk.team, "/admin/sql": desk.admin}
        self._local: Mapping[str, Reply] = {"/admin/sql": desk.local, "/admin/budgets/test": pages.test_webhooks}

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request. Raises only what means that the client is gone: CancelledError, ConnectionError."""
        gateway = self.gateway
        exchange.extra = pages.cors(exchange, gateway)
        op = MODEL_OPS.get(exchange.path)
        if op is not None and exchange.method == "POST":
            await self._model_call(exchange, gateway, op)
            return
        await self._other(exchange, gateway, op, self._asked)

    async def local(self, exchange: Exchange) -> None:
        """Answer a request that came by the socket beside the database: who may open that may ask."""
        await self._other(exchange, self.gateway, None, self._local, _LOCAL)

    async def _other(
        self, exchange: Exchange, gateway: Gateway, op: Op | None, asked: Mapping[str, Reply], local: Mapping[str, Reply] | None = None
    ) -> None:
        visit = _visit(exchange, gateway)
        exchange.extra = {**exchange.extra, "x-request-id": visit.id, "x-spangate-trace-id": visit.trace_hex}
        try:
            await self._page(exchange, gateway, op, asked, {**self._pages, **(local or {})})
        except SpangateError as error:
            await self._refuse(exchange, self._guessing.judged(error, exchange.client_address), visit)
        except Exception as error:  # a defect of ours must cost one request, not the connection's silence
            if exchange.gone and isinstance(error, ConnectionError):
                raise
            await self._refuse(exchange, _defect(error, visit), visit)

    async def _page(
        self, exchange: Exchange, gateway: Gateway, op: Op | None, asked: Mapping[str, Reply], pages_: Mapping[str, Reply]
    ) -> None:
        if exchange.method == "OPTIONS" and await pages.preflight(exchange, gateway):
            return
        posted = asked.get(exchange.path)
        page = posted or pages_.get(exchange.path)
        if page is None:
            page = next((page for start, page in _BELOW.items() if exchange.path.startswith(start) and exchange.path != pages.MODELS), None)
        if page is None and op is None:
            if exchange.path == METRICS:
                raise Refused(_NO_METRICS, code="not_found")
            raise Refused(_unknown_path(exchange.path, [*MODEL_OPS, *self._pages, *asked]), code="not_found")
        allowed = ("POST",) if op or posted else ("GET", "HEAD")
        if page is None or exchange.method not in allowed:
            raise Refused(
                f"{exchange.path} takes {' or '.join(allowed)}.", code="method_not_allowed", headers={"allow": ", ".join(allowed)}
            )
        await page(exchange, gateway)

    async def _readyz(self, exchange: Exchange, gateway: Gateway) -> None:
        ledger = gateway.books.ledger
        health = pages.Health(self.draining, self.reload_error, self._usage, ledger.problem, foreign(ledger), self._measuring, self.waiting)
        await pages.readyz(exchange, gateway, health)

    async def _model_call(self, exchange: Exchange, gateway: Gateway, op: Op) -> None:
        seen = self._open(exchange, gateway, op)
        running = Running(cast("asyncio.Task[Any]", asyncio.current_task()))
        self.running.add(running)
        guest: Guest | None = None
        try:
            if self.draining:
                raise draining()
            caller = gateway.callers.who(exchange.headers, has_body=exchange.has_body, notes=seen.notes)
            seen.organisation, seen.team, seen.key = caller.organisation, caller.team, caller.key
            if gateway.switches.now.callers:
                gateway.switches.now.check_caller(caller, seen.notes)
            guest = Guest(self.house, gateway.config.server)
            await self._answer(exchange, gateway, seen, op=op, caller=caller, guest=guest)
        except SpangateError as error:
            await self._fail(exchange, self._guessing.judged(error, exchange.client_address), seen)
        except asyncio.CancelledError:
            if running.reason is None or running.task.uncancel() or seen.outcome is not None:
                raise
            await self._fail(exchange, running.reason, seen, "failed")
        except Exception as error:  # the other end of the isolation: a layer's defect becomes a 500 and a log line
            if exchange.gone and isinstance(error, ConnectionError):
                raise
            await self._fail(exchange, _defect(error, seen), seen)
        finally:
            if seen.outcome is None:
                self._end(seen, "aborted", 499)
            self.running.discard(running)
            if guest is not None:
                guest.leave()

    def _open(self, exchange: Exchange, gateway: Gateway, op: Op) -> Seen:
        trace_id, parent, sampled = wire.trace_of(exchange.headers)
        if gateway.inbound == "trust":
            seen = Seen.open(self.clock, trace_id=trace_id, parent_span_id=parent, sampled=sampled)
        else:
            seen = Seen.open(self.clock)
            seen.linked = (trace_id, parent) if parent and gateway.inbound == "link" else None
        seen.method, seen.path, seen.op = exchange.method, exchange.path, op
        seen.client_request_id = wire.client_request_id(exchange.headers)
        seen.config_version = gateway.config.version
        if gateway.detailed:
            _describe(seen, exchange)
        return seen

    async def _answer(self, exchange: Exchange, gateway: Gateway, seen: Seen, *, op: Op, caller: Caller, guest: Guest) -> None:
        identity = gateway.config.settings.callers.headers
        user, labels = wire.labels_of(exchange.headers, identity.user, identity.thread)
        seen.user, seen.thread, seen.reply, seen.tags = user, labels.thread, labels.reply, dict(labels.tags)
        caller = replace(caller, user=user) if user else caller
        if not exchange.arrived and exchange.headers.get("Expect"):
            await gateway.before_body(Call(op, "", Body({}), caller=caller, labels=labels, seen=seen))
        raw = await read_all(exchange, guest, gateway.config.server)
        seen.request_bytes = len(raw)
        body = await read_body(raw)
        call = wire.call_of(op, body, caller, labels, seen)
        events = gateway.next_for(caller, call.model)(call)
        if call.head.stream:
            await answering.stream(call, events, exchange, gateway.config.server.keepalive, lambda outcome: self._end(seen, outcome, 200))
        else:
            await answering.whole(call, events, exchange, lambda outcome: self._end(seen, outcome, 200))

    async def _fail(self, exchange: Exchange, error: SpangateError, seen: Seen, outcome: Outcome | None = None) -> None:
        """End the call with `error`: as its answer, or as the last event of a stream that has begun."""
        if seen.outcome is None:
            status = 200 if exchange.started else errors.status_of(error)
            self._end(seen, outcome or errors.outcome_of(error), status, errors.public_code(error))
        await self._refuse(exchange, error, seen)

    async def _refuse(self, exchange: Exchange, error: SpangateError, asked: Seen | Visit) -> None:
        base = wire.base_of(exchange.headers) if exchange.client_address else ""  # nobody opens pages by the local socket
        if words := errors.log_words(error):
            log.warning("%s: %s: %s", asked.id, error.code, words)
        if exchange.started and not exchange.events:
            exchange.abort()
        elif exchange.started:
            await exchange.end(errors.error_frame(error, asked, base))
        else:
            if errors.status_of(error) in (408, 413):
                exchange.close_after()
            attempts = str(len(asked.attempts)) if isinstance(asked, Seen) else "0"
            told = {"x-request-id": asked.id, "x-spangate-trace-id": asked.trace_hex, "x-spangate-attempts": attempts}
            headers = {"content-type": "application/json", **told, **errors.error_headers(error)}
            await exchange.answer(errors.status_of(error), headers, errors.error_body(error, asked, base))

    def _end(self, seen: Seen, outcome: Outcome, status: int, code: str = "") -> None:
        seen.end(outcome, status, code)
        self.recorder.record(seen)


_LOCAL: Mapping[str, Reply] = {"/admin/budgets": pages.local_budgets, "/admin/stops": pages.local_stops}
"""Pages that the socket has in place of those that ask for a token."""

_BELOW: Mapping[str, Reply] = {pages.DOCS: pages.error_page, pages.MODELS: pages.model}
"""Pages that answer for all paths that begin so and go on."""


def _visit(exchange: Exchange, gateway: Gateway) -> Visit:
    trace_id = wire.trace_of(exchange.headers)[0] if gateway.inbound == "trust" else 0
    return Visit(request_id(), f"{trace_id or getrandbits(128):032x}")


def _describe(seen: Seen, exchange: Exchange) -> None:
    """What telemetry tells of a request beside its path."""
    headers = exchange.headers
    seen.client_address, seen.http_version = exchange.client_address, exchange.http_version
    seen.host, seen.user_agent = headers.get("Host") or "", (headers.get("User-Agent") or "")[:256]
    if seen.parent_span_id:
        seen.trace_state = (headers.get("tracestate") or "")[:512]


def draining() -> Refused:
    return Refused("The gateway is shutting down; send this to another one.", code="draining", headers={"retry-after": "1"})


def _defect(error: Exception, asked: Seen | Visit) -> OurFault:
    log.error("%s: %s", asked.id, type(error).__name__, exc_info=error)
    return OurFault("The gateway failed; its log knows why under this request_id.")


def _unknown_path(path: str, known: list[str]) -> str:
    near = get_close_matches(path[:100], known, n=1, cutoff=0.75)
    hint = f"Did you mean {near[0]}?" if near else f"There is: {', '.join(known)}."
    return f"There is nothing at {wire.header_text(path[:100])}. {hint}"
