"""Which calls' spans are sent: the SDK's samplers by name, and a rule that looks back.

**Head**, when a call begins: by the caller's flag where the caller has a trace (`parentbased_*`), else by the trace id, as the SDK's
TraceIdRatioBased does, so that every service that samples by the same ratio keeps the same traces. What it says goes to providers in
the traceparent, `Seen.sampled`.

**Tail**, when it has ended: `keep` brings back refused, failed and slow calls that our own ratio left out. The flag that providers got
says 0 all the same, so whatever they trace of such a call is missing. A caller's own 0 is honoured: its trace is nowhere, and a part of
it would hang in the air. Rows and log events of decisions don't ask either rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from ...call.seen import Seen

_SPACE: Final = 2**64

Root = Literal["always_on", "always_off", "traceidratio"]


class Sampling(msgspec.Struct, frozen=True):
    """`parents`: a caller's flag decides where there is one. `bound`: of 2**64 low halves of trace ids, so many are kept."""

    parents: bool = True
    bound: int = _SPACE
    refused: bool = False
    failed: bool = False
    slower: float | None = None

    def head(self, trace_id: int, *, parent: bool, flag: bool) -> bool:
        """Whether a call that begins is sampled. `parent`: its caller has a trace, and set `flag`."""
        if parent and self.parents:
            return flag
        return trace_id % _SPACE < self.bound

    def keeps(self, seen: Seen) -> bool:
        """Whether the spans of a call that has ended are sent."""
        parent = bool(seen.parent_span_id)
        if self.head(seen.trace_id, parent=parent, flag=seen.sampled):
            return True
        return not (parent and self.parents) and self._worth_it(seen)

    def _worth_it(self, seen: Seen) -> bool:
        if (seen.outcome == "refused" and self.refused) or (seen.outcome == "failed" and self.failed):
            return True
        return self.slower is not None and seen.duration > self.slower


def bound_of(ratio: float) -> int:
    """How many of 2**64 trace ids a ratio keeps, rounded as the SDK does."""
    return round(ratio * _SPACE)


def named(name: str, argument: str | None) -> tuple[Sampling, list[str]]:
    """The sampler that OTEL_TRACES_SAMPLER names, and what is wrong with either text, without repeating it: a name that nobody knows
    stands for `parentbased_always_on`, a ratio that is none for 1, as with the SDK."""
    word = name.strip().lower()
    wrong = []
    if word not in NAMES:
        word = "parentbased_always_on"
        wrong.append(f"OTEL_TRACES_SAMPLER must be one of {', '.join(NAMES)}: {word} it is")
    root: Root = NAMES[word]
    bound = {"always_on": _SPACE, "always_off": 0}.get(root, _SPACE)
    if root == "traceidratio":
        ratio = _ratio(argument)
        if ratio is None:
            wrong.append(f"OTEL_TRACES_SAMPLER_ARG {'is no' if argument else 'must be a'} ratio between 0 and 1: every trace is sampled")
        bound = bound_of(1.0 if ratio is None else ratio)
    elif argument:
        wrong.append(f"OTEL_TRACES_SAMPLER_ARG means nothing to {word}")
    return Sampling(parents=word.startswith("parentbased_"), bound=bound), wrong


NAMES: Final[Mapping[str, Root]] = {
    "always_on": "always_on",
    "always_off": "always_off",
    "traceidratio": "traceidratio",
    "parentbased_always_on": "always_on",
    "parentbased_always_off": "always_off",
    "parentbased_traceidratio": "traceidratio",
}


def _ratio(text: str | None) -> float | None:
    try:
        ratio = float(text or "")
    except ValueError:
        return None
    return ratio if 0.0 <= ratio <= 1.0 else None
