"""What became of a call, as rows: what each attempt used, what that cost, and how both are known. Runs in the usage writer's thread.

A provider's word counts where it gave one. Where it gave none, or none that makes sense, bytes ÷ 4 stand for tokens, and the row says
so. The figures of a call are the sums of its attempts'.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ...call.events import Usage
from ..traces.decisions import REFUSED
from .prices import DEAREST, Prices
from .spool_lines import Closing, Noted, Opening, Spent, Tried

BYTES_A_TOKEN = 4
MOST = 2**31  # tokens of one answer: no figure beyond is believed
MILLION = 10**6

# An attempt that failed so has nothing to pay for; any other that reached a provider may have.
_FREE = frozenset({"upstream_unreachable", "upstream_error"})
_NOTHING: tuple[None, ...] = (None,) * 6
_DEARER = {"unpriced": 4, "estimated": 3, "override": 2, "catalog": 1, "": 0}

_json = msgspec.json.Encoder().encode

Row = tuple[Any, ...]


class Bill(NamedTuple):
    """What was used, and what that cost in billionths of a dollar. `source` is usage_source, `cost_source` its namesake."""

    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int
    source: str
    cost: int | None
    cost_source: str


class Place(NamedTuple):
    """Who was asked for which model, and when (nanoseconds)."""

    provider: str
    system: str
    address: str
    model: str
    at: int


class Rows:
    """Rows of the three tables, in their columns' order."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.calls: list[Row] = []
        self.attempts: list[Row] = []
        self.decisions: list[Row] = []

    def add(self, call: Closing) -> None:
        """A call that has ended."""
        bills = []
        for tried in call.attempts:
            bill = self._bill(call, tried)
            self.attempts.append(_attempt_row(call.id, tried, bill))
            if bill is not None:
                bills.append(bill)
        if not bills and call.spent is not None:  # answered without asking a provider
            bills.append(self.priced(Place(call.provider, "", "", call.target_model, call.started), call.spent))
        started = call.started // 1000
        self.calls.append(
            (
                call.id, call.client_request_id, call.trace_id, started, started + round(call.duration * 1e6),
                *_who(call), call.status, call.outcome, call.error_code, *_figures(bills),
                round(call.duration * 1e3, 3), None if call.first is None else round(call.first * 1e3, 3),
                round(_overhead(call) * 1e3, 3), len(call.attempts), call.config_version,
            )
        )  # fmt: skip
        for note in call.notes:
            self.decisions.append(_decision_row(call, note))

    def bills(self, call: Closing) -> list[Bill | None]:
        """What each of its attempts used and cost; None: nothing."""
        return [self._bill(call, tried) for tried in call.attempts]

    def add_interrupted(self, call: Opening) -> None:
        """A call that was under way when the gateway died: what it held counts as used."""
        held = {name: tokens for name, tokens in (call.holds or {}).items() if isinstance(tokens, int)}
        spent = Spent(held.get("input", _estimate(call.request_bytes)), held.get("output", 0), source="estimated")
        bill = self.priced(Place(call.provider, call.system, call.address, call.target_model, call.started), spent)
        self.calls.append(
            (
                call.id, call.client_request_id, call.trace_id, call.started // 1000, None,
                *_who(call), None, "interrupted", "", *_figures([bill]), None, None, None, None, call.config_version,
            )
        )  # fmt: skip

    def _bill(self, call: Closing, tried: Tried) -> Bill | None:
        spent = _spent(call, tried)
        if spent is None:
            return None
        return self.priced(Place(tried.provider, tried.system, tried.address, tried.target_model, tried.started), spent)

    def priced(self, place: Place, spent: Spent | Usage) -> Bill:
        """What these tokens cost there."""
        input, output = _believed(spent.input), _believed(spent.output)
        cached = min(_believed(spent.cached), input)
        cache_write = min(_believed(spent.cache_write), input - cached)
        reasoning = min(_believed(spent.reasoning), output)
        rates = self._prices.rates(*place)
        cost = rates.nano(input, output, cached, cache_write, reasoning) if rates else None
        source = "unpriced" if rates is None else "estimated" if spent.source == "estimated" else rates.source
        return Bill(input, cached, cache_write, output, reasoning, spent.source, cost, source)


def _who(call: Closing | Opening) -> Row:
    return (
        call.organisation, call.team, call.key, call.user, call.thread, call.reply, _json(call.tags).decode() if call.tags else "",
        call.op, call.stream, call.model, call.provider, call.target_model,
    )  # fmt: skip


def _figures(bills: list[Bill]) -> Row:
    """Tokens, usage_source, cost and cost_source of a call."""
    if not bills:
        return (*_NOTHING, "none", None, "")
    bill = bills[0] if len(bills) == 1 else _sum(bills)
    return (*_tokens(bill), bill.source, bill.cost, bill.cost_source)


def _tokens(bill: Bill) -> Row:
    """As both tables hold them. All weights are 1 until a budget says otherwise."""
    return (bill.input, bill.cached, bill.cache_write, bill.output, bill.reasoning, (bill.input + bill.output) * MILLION)


def _sum(bills: list[Bill]) -> Bill:
    costs = [bill.cost for bill in bills if bill.cost is not None]
    return Bill(
        sum(bill.input for bill in bills),
        sum(bill.cached for bill in bills),
        sum(bill.cache_write for bill in bills),
        sum(bill.output for bill in bills),
        sum(bill.reasoning for bill in bills),
        "estimated" if any(bill.source == "estimated" for bill in bills) else "provider",
        min(sum(costs), DEAREST) if len(costs) == len(bills) else None,
        max((bill.cost_source for bill in bills), key=_DEARER.__getitem__),
    )


def _spent(call: Closing, tried: Tried) -> Spent | None:
    """What an attempt used: what the provider said; what was estimated of it; None: nothing."""
    spent = tried.spent
    if spent is None and len(call.attempts) == 1:
        spent = call.spent  # counted by a layer that ended the answer itself
    if spent is not None and not spent.unknown:
        return spent
    if spent is None and not _reached(tried):
        return None
    said = 0 if call.op == "embeddings" else _estimate(tried.answer_bytes)
    asked = _estimate(call.request_bytes)
    if spent is None:
        return Spent(asked, said, source="estimated")
    if spent.unknown == "input":
        return msgspec.structs.replace(spent, input=asked, source="estimated")
    if call.op == "embeddings":  # whose answers have no tokens
        return msgspec.structs.replace(spent, unknown="")
    return msgspec.structs.replace(spent, output=said, source="estimated")


def _reached(tried: Tried) -> bool:
    """Whether a provider may have worked on it: not if it answered with an error, or before it could be asked."""
    if tried.outcome != "error" or tried.answer_bytes:
        return True
    return tried.status in (None, 200) and tried.error_type not in _FREE


def _estimate(size: int) -> int:
    return -(-size // BYTES_A_TOKEN)


def _believed(count: int) -> int:
    return min(max(count, 0), MOST)


def _attempt_row(call_id: str, tried: Tried, bill: Bill | None) -> Row:
    started = tried.started // 1000
    return (
        call_id, tried.number, tried.provider, tried.target_model, started, started + round(tried.duration * 1e6),
        tried.status, tried.outcome or "", tried.error_type, *(_tokens(bill) if bill else _NOTHING), bill.cost if bill else None,
        tried.upstream_request_id, f"{tried.span_id:016x}", tried.reason,
    )  # fmt: skip


def _overhead(call: Closing) -> float:
    """Seconds of a call during which no attempt ran: our own time, and the client's while it sends its request."""
    if len(call.attempts) < 2:
        return max(call.duration - sum(tried.duration for tried in call.attempts), 0.0)
    return max(call.duration - _covered((tried.started / 1e9, tried.duration) for tried in call.attempts), 0.0)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that lie within at least one of these spans."""
    total, until = 0.0, float("-inf")
    for start, duration in sorted(spans):
        end = start + duration
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total


def _decision_row(call: Closing, note: Noted) -> Row:
    """A note `policy.kind`; what every policy may say has columns of its own, its figures stay together."""
    policy, _, kind = note.name.partition(".")
    figures = dict(note.figures)
    rule, verdict, mode = (str(figures.pop(name, "")) for name in ("rule", "verdict", "mode"))
    verdict = verdict or ("deny" if kind in REFUSED else "")
    return (call.id, policy, rule, kind, verdict, mode or "enforce", _json(figures).decode(), call.config_version)
