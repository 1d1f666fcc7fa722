"""What can be said of a call before its body is here: that a budget or limit of its caller's has no room for any call at all. A client that
asks whether to send a long body (`Expect: 100-continue`) is told so at once.

Nothing is reserved; whoever gets by is admitted, or not, when the body is here. So it asks only those bounds that go by who calls, and for
the least that any call takes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..call.call import Call
from .bounds import Bound, Need
from .charge import Books
from .entries import Entry, line
from .ledger.ledger import StateUnavailable
from .refusals import limit_headers, refused


async def check(bounds: Iterable[Bound], books: Books, call: Call) -> None:
    """`call` has a caller, and no body yet.

    Raises:
        Refused: budget_exceeded or rate_limit_exceeded.
    """
    entries = [Entry(bound, place) for bound in bounds if _says_no(bound) and (place := bound.place(call)) is not None]
    if not entries:
        return
    least = Need(1, 0 if call.op == "embeddings" else 1)
    claims = [entry.bound.claim(entry.place.counter, entry.bound.amount(least)) for entry in entries]
    try:
        standings = await books.ledger.read(claims)
    except StateUnavailable:
        return  # what becomes of it then is each rule's to say, once the body is here
    told = list(zip([entry.bound for entry in entries], standings, strict=True))
    full = [
        (bound, standing)
        for (bound, standing), claim in zip(told, claims, strict=True)
        if bound.limit == 0 or bound.room(standing) < claim.amount
    ]
    if full:
        bound, standing = next((each for each in full if each[0].kind == "budget"), full[0])
        call.notes.add(f"{bound.kind}.refused", **line(bound, standing))
        now = books.clock.wall()
        raise refused(bound, standing, now, headers=limit_headers([each for each in told if each[0].kind == "rate_limit"], now))


def _says_no(bound: Bound) -> bool:
    """Whether it refuses, at once, and without a look at the request."""
    return bound.by_caller and not bound.shadow and bound.full == "refuse" and not bound.wait
