"""What became of a call, as rows: what each attempt used, what that cost, and how both are known. Runs in the usage writer's thread.

What counts for an attempt was known when it ended: a provider's word where it gave one, else an estimate, and the row says so. A line of
an earlier version may lack it: then bytes ÷ 4 stand for tokens, or the deltas of a stream where they are more. The figures of a call are
the sums of its attempts'.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ...call.events import Usage
from ...call.spoken import tokens_of
from ...call.usage import MOST_TOKENS, believed
from .. import semconv
from ..traces.decisions import REFUSED
from .arrow import Batch, Column
from .budgets import Budgets
from .prices import DEAREST, Prices, Rates
from .schema import TABLES, Columns
from .spool_lines import Closing, Noted, Opening, Spent, Tried

MILLION = 10**6

# An attempt that failed so has nothing to pay for; any other that reached a provider may have.
_FREE = frozenset({semconv.CONNECTION_ERROR, semconv.INVALID_RESPONSE})
_NOTHING: tuple[None, ...] = (None,) * 6
_DEARER = {"unpriced": 4, "estimated": 3, "override": 2, "catalog": 1, "": 0}

_json = msgspec.json.Encoder().encode

Row = tuple[Any, ...]


class Place(NamedTuple):
    """A provider's model that was not asked, since a layer answered for it."""

    provider: str
    target_model: str
    system: str = ""
    address: str = ""


class Bill(msgspec.Struct, frozen=True, gc=False):
    """What was used, and what that cost in billionths of a dollar. `tokens` are as both tables hold them: input, cached, cache_write,
    output, reasoning, weighted (all weights are 1 until a budget says otherwise). `source` is usage_source, `cost_source` its namesake."""

    tokens: tuple[int, int, int, int, int, int]
    source: str
    cost: int | None
    cost_source: str


class Rows:
    """Rows of the three tables, in their columns' order: those that were added, and in `batches` by table those that were gathered.
    `unfit`: why some of them can't be."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.calls: list[Row] = []
        self.attempts: list[Row] = []
        self.decisions: list[Row] = []
        self.batches = {table: _batch(columns) for table, columns in TABLES.items()}
        self.budgets = Budgets()
        self.unfit: Exception | None = None

    def __len__(self) -> int:
        """Calls."""
        return len(self.batches["calls"]) + len(self.calls)

    def gather(self) -> None:
        """By columns from now on, where a row takes a quarter of the memory: some at a time, so that they need not wait as rows."""
        try:
            for table, rows in (("calls", self.calls), ("attempts", self.attempts), ("decisions", self.decisions)):
                if rows:
                    self.batches[table].extend(rows)
                    rows.clear()
        except (OverflowError, UnicodeError, TypeError) as error:
            self.unfit = error

    def add(self, call: Closing) -> None:
        """A call that has ended. Tuples are joined with `+`, which costs less than unpacking them."""
        bills = []
        for tried in call.attempts:
            bill = self._bill(call, tried)
            self.attempts.append(_attempt_row(call.id, tried, bill))
            if bill is not None:
                bills.append(bill)
        if not bills and call.spent is not None:  # answered without asking a provider
            bills.append(self._priced(Place(call.provider, call.target_model), call.started, call.spent))
        started, duration = call.started // 1000, round(call.duration * 1e6)
        head = (call.id, call.client_request_id, call.trace_id, started, started + duration)
        outcome = (call.status, call.outcome, call.error_code)
        first = None if call.first is None else round(call.first * 1e6) / 1e3
        times = (duration / 1e3, first, round(_overhead(call) * 1e6) / 1e3, len(call.attempts), call.config_version)
        weighted = self.budgets.settled(call.organisation, call.notes) if call.notes else None
        self.calls.append(head + _who(call) + outcome + _figures(bills, weighted) + times)
        for note in call.notes:
            self.decisions.append(_decision_row(call, note))

    def bills(self, call: Closing) -> list[Bill | None]:
        """What each of its attempts used and cost; None: nothing."""
        return [self._bill(call, tried) for tried in call.attempts]

    def add_interrupted(self, call: Opening) -> None:
        """A call that was under way when the gateway died: what it held counts as used."""
        holds = call.holds or {}
        self.budgets.held(call.organisation, holds)
        held = {name: tokens for name, tokens in holds.items() if isinstance(tokens, int)}
        spent = Spent(held.get("input", tokens_of(call.request_bytes)), held.get("output", 0), source="estimated")
        bill = self._priced(call, call.started, spent)
        self.calls.append(
            (
                call.id, call.client_request_id, call.trace_id, call.started // 1000, None,
                *_who(call), None, "interrupted", "", *_figures([bill]), None, None, None, None, call.config_version,
            )
        )  # fmt: skip

    def _bill(self, call: Closing, tried: Tried) -> Bill | None:
        spent = tried.spent
        if spent is None or spent.unknown:
            spent = _spent(call, tried)
        if spent is None or spent.source == "none":
            return None
        return self._priced(tried, tried.started, spent)

    def _priced(self, asked: Tried | Opening | Place, at_ns: int, spent: Spent) -> Bill:
        """What these tokens cost there and then."""
        input, output, cached, cache_write, reasoning = counted(spent)
        tokens = (input, cached, cache_write, output, reasoning, (input + output) * MILLION)
        rates = self._prices.rates(asked.provider, asked.system, asked.address, asked.target_model, at_ns)
        if rates is None:
            return Bill(tokens, spent.source, None, "unpriced")
        return Bill(tokens, spent.source, rates.nano(input, output, cached, cache_write, reasoning), cost_source(spent, rates))


def _batch(columns: Columns) -> Batch:
    """The first column stays one, so that there are as many rows as there are."""
    return Batch([Column(name, kind, folds=number > 0) for number, (name, kind, _) in enumerate(columns)])


def counted(spent: Spent | Usage) -> tuple[int, int, int, int, int]:
    """Input, output, cached, cache_write and reasoning, as far as they can be believed."""
    input, output, cached, cache_write, reasoning = spent.input, spent.output, spent.cached, spent.cache_write, spent.reasoning
    if not cached and not cache_write and not reasoning and 0 <= input <= MOST_TOKENS and 0 <= output <= MOST_TOKENS:
        return input, output, 0, 0, 0
    if cached >= 0 <= cache_write and cached + cache_write <= input <= MOST_TOKENS and 0 <= reasoning <= output <= MOST_TOKENS:
        return input, output, cached, cache_write, reasoning
    input, output = believed(input), believed(output)
    cached = min(believed(cached), input)
    return input, output, cached, min(believed(cache_write), input - cached), min(believed(reasoning), output)


def cost_source(spent: Spent | Usage, rates: Rates) -> str:
    """How the cost of these tokens is known, where there is one."""
    return "estimated" if spent.source == "estimated" else rates.source


def _who(call: Closing | Opening) -> Row:
    return (
        call.organisation, call.team, call.key, call.user, call.thread, call.reply, _json(call.tags).decode() if call.tags else "",
        call.op, call.stream, call.model, call.provider, call.target_model,
    )  # fmt: skip


def _figures(bills: list[Bill], weighted: int | None = None) -> Row:
    """Tokens, usage_source, cost and cost_source of a call. `weighted`: its tokens by the weights of a budget, in millionths."""
    if not bills:
        return (*_NOTHING, "none", None, "")
    bill = bills[0] if len(bills) == 1 else _sum(bills)
    known = (bill.source, bill.cost, bill.cost_source)
    return (bill.tokens if weighted is None else (*bill.tokens[:5], weighted)) + known


def _sum(bills: list[Bill]) -> Bill:
    costs = [bill.cost for bill in bills if bill.cost is not None]
    input, cached, cache_write, output, reasoning, weighted = map(sum, zip(*[bill.tokens for bill in bills], strict=True))
    return Bill(
        (input, cached, cache_write, output, reasoning, weighted),
        "estimated" if any(bill.source == "estimated" for bill in bills) else "provider",
        min(sum(costs), DEAREST) if len(costs) == len(bills) else None,
        max((bill.cost_source for bill in bills), key=_DEARER.__getitem__),
    )


def _spent(call: Closing, tried: Tried) -> Spent | None:
    """What an attempt used, of which its line says only what the provider told: that, or what is likely; None: nothing."""
    spent = tried.spent
    if spent is None and len(call.attempts) == 1:
        spent = call.spent  # counted by a layer that ended the answer itself
    if spent is not None and not spent.unknown:
        return spent
    if spent is None and not _reached(tried):
        return None
    said = 0 if call.op == "embeddings" else tokens_of(tried.answer_bytes, tried.content_deltas)
    asked = tokens_of(call.request_bytes)
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
    return tried.status in (None, 200) and _error(tried) not in _FREE


def _error(tried: Tried) -> str:
    """The word of its span. A line that an earlier version has left holds our error code."""
    return semconv.FAILURES.get(tried.error_type, tried.error_type)


def _attempt_row(call_id: str, tried: Tried, bill: Bill | None) -> Row:
    started = tried.started // 1000
    head = (
        call_id, tried.number, tried.provider, tried.target_model, started, started + round(tried.duration * 1e6),
        tried.status, tried.outcome or "", _error(tried),
    )  # fmt: skip
    end = (bill.cost if bill else None, tried.upstream_request_id, f"{tried.span_id:016x}", tried.reason)
    return head + (bill.tokens if bill else _NOTHING) + end


def _overhead(call: Closing) -> float:
    """Seconds of a call during which no attempt ran: our own time, and the client's while it sends its request."""
    attempts = call.attempts
    alone = len(attempts) == 1
    tried = attempts[0].duration if alone else _covered((each.started / 1e9, each.duration) for each in attempts)
    return call.duration - tried if call.duration > tried else 0.0


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
