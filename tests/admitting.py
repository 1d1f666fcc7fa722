"""Admission to test with: rules around a scripted provider, as the gateway stacks them, on a ledger in memory and a clock by hand.

gate = Gate(Budget(limit=100, name="b"), script=[{"usage": {"input": 10, "output": 20}}])
answer = await gate.ask("hi", max_tokens=50)
assert await gate.used("b") == (30, 0)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Head, Labels, Op, Target
from spangate.call.chain import Next, Policy, chain, in_order, pulling
from spangate.call.events import Closed, Delta, Event, Opened
from spangate.call.rules import Rule
from spangate.exporters.observe import Around, Attempt
from spangate.policies.admission import Admission
from spangate.policies.bounds import Bound, Pricing
from spangate.policies.budget import Budget
from spangate.policies.charge import Books, books_of
from spangate.policies.ledger.ledger import NANO, Ledger
from spangate.policies.ledger.memory import MemoryLedger
from spangate.policies.meter import Meter
from spangate.policies.rate_limit import RateLimit
from spangate.proxy.providers.scripted import ScriptedProvider

from ledgers import Hands

CALLER = Caller("acme", "search", "ci")
TARGET = Target("script", "m")


@dataclass
class Heard:
    """An answer to its end."""

    call: Call
    opened: Opened | None = None
    deltas: list[Delta] = field(default_factory=list)
    closed: Closed | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        assert self.opened is not None
        return self.opened.headers

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)


def call(
    content: str = "hi",
    *,
    op: Op = "chat",
    model: str = "m",
    caller: Caller = CALLER,
    labels: Labels | None = None,
    stream: bool = False,
    n: int = 1,
    max_tokens: int | None = None,
    **body: Any,
) -> Call:
    said: dict[str, Any] = {"messages": [{"role": "user", "content": content}]} if op == "chat" else {"input": content}
    cap = {} if max_tokens is None else {"max_tokens": max_tokens}
    head = Head(stream=stream, n=n, output_cap=max_tokens, usage_frame=bool(body.get("stream_options")))
    sent = Body.of({"model": model, **said, **cap, **body})
    return Call(op=op, model=model, body=sent, head=head, caller=caller, labels=labels or Labels())


class Gate:
    """`inside`: more layers, `within` such that stand inside of the meter. `to`: where calls go. `elsewhere` counts as the answer of any
    other model."""

    def __init__(
        self,
        *rules: Budget | RateLimit,
        script: Sequence[Rule | Mapping[str, Any] | Callable[[Call], Rule | None]] = (),
        inside: Sequence[Policy] = (),
        within: Sequence[Policy] = (),
        hands: Hands | None = None,
        ledger: Ledger | None = None,
        pricing: Pricing = lambda _: None,
        to: Callable[[Call], Target] = lambda call: Target("script", call.model),
        **more: Any,
    ) -> None:
        self.hands = hands or Hands()
        self.ledger = ledger or MemoryLedger(clock=self.hands.clock)
        self.bounds: list[Bound] = [bound for rule in rules for bound in rule.bounds("list")]
        self.books: Books = books_of(self.ledger, pricing=pricing, clock=self.hands.clock, **more)
        self.provider = ScriptedProvider("script", list(script))
        answer = chain([*within, Attempt(counting=self.books.tokens)], self.provider.answer)
        meter = Meter(self.books, [bound for bound in self.bounds if bound.per == "provider"])
        targeting = partial(_to, to)
        inner: Next = chain([*inside, targeting, meter], answer)
        admission = Admission(self.bounds, self.books, target_of=to, elsewhere=lambda _: inner)
        self.next: Next = chain([Around(), *in_order([admission]), *inside, targeting, meter], answer)

    async def ask(self, content: str = "hi", **asked: Any) -> Heard:
        return await self.hear(call(content, **asked))

    async def hear(self, asked: Call) -> Heard:
        heard = Heard(asked)
        async with pulling(self.next(asked)) as events:
            async for event in events:
                if isinstance(event, Opened):
                    heard.opened = event
                elif isinstance(event, Delta):
                    heard.deltas.append(event)
                else:
                    heard.closed = event
        return heard

    async def figures(self, name: str, unit: str = "") -> tuple[float, float]:
        """Used and reserved of all counters of a rule."""
        assert await self.ledger.drain(5) == 0
        homes = ("acme", "provider:script", "provider:other")
        found = [each for home in homes for each in await self.ledger.every(home) if each.counter.name.startswith(f"{name} {unit}")]
        return sum(each.used for each in found) / NANO, sum(each.reserved for each in found) / NANO

    @property
    def received(self) -> list[dict[str, Any]]:
        return [each.body for each in self.provider.calls]


def _to(to: Callable[[Call], Target], call: Call, next: Next) -> AsyncIterator[Event]:
    return next(call.to(to(call)))


def notes(heard: Heard | Call, name: str) -> list[dict[str, Any]]:
    asked = heard.call if isinstance(heard, Heard) else heard
    return [note.figures for note in asked.notes.named(name)]
