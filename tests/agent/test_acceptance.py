"""What the middlewares promise, line by line: each line is a test, or stands among those that wait for other work."""

from __future__ import annotations

import pytest

from acceptance import calls, replies, router, tracing  # noqa: F401 - they register their checks
from acceptance.every import MIDDLEWARES, PROMISES
from acceptance.lines import CHECKS

LINES = {
    "tracing": (
        "no provider → zero spans, next called once, no serialisation executed",
        "provider set after construction → next reply traced",
        "stream of 3 chunks with usage on the last → one chat span, ends after the 3rd, tokens set",
        'consumer aclose() from another task after chunk 1 → no "failed to detach" log, span ended once, cancelled, not ERROR',
        "stream yields nothing → span ended, ERROR only if upstream failed",
        "two parallel tools → two sibling spans under the reply span, never nested in each other",
        "paused on approval → reply span carries pending names; resume span shares reply id and is linked",
        "external result for c1,c2 → exactly two execute_tool spans flagged external",
        "fallback used → one chat span per attempt; response model = answering model",
        "content capture none → no message text, args, or results in any attribute or event",
        "attribute serialisation raises → call still succeeds",
    ),
    "timing": (
        "streaming model with 1 s body → total ≥ 1 s, ttft < total",
        "error → duration recorded with outcome=error, error re-raised",
        "system clock stepped back → duration ≥ 0",
    ),
    "reply budget": (
        "budget 100, weights 1/2, call uses 30 in/40 out (110) with a tool call → tool runs, next call has tool_choice none and one hint",
        "exactly equal to budget → counts as exhausted",
        "two replies on one agent → second starts at 0",
        "pause at used=90, restart process, resume, call costs 20 → exhausted",
        "outer middleware swallows ReplyEnd after exhaustion → same budget continues, no KeyError",
        "structured schema pending at exhaustion → structured tool still callable, others not offered",
        "3 more steps after exhaustion → exactly one hint in context",
        "stream cancelled mid-way with partial usage → partial usage counted",
    ),
    "model router": (
        '"hi" routed fast; same reply\'s 5 calls all fast; one classifier call',
        "classifier raises → own model, reply completes",
        "picks unknown → own model",
        "duplicate names → ValueError",
        "image-only input → own model, classifier not called",
        "pause/resume → classifier not called again",
        "two concurrent replies with different picks → no bleed",
        "routed model fails with fallback configured → fallback used, not the router pick again",
        "route recorded on span (spangate.route.name, confidence)",
    ),
    "rate limit": (
        "3 concurrent calls, 1 s → start times ≥1 s apart",
        "clock step → unaffected",
        "max_wait 0.5 and needed 1 → reject with 429 + Retry-After (proxy) / RateLimitExceeded (SDK)",
        "cancel waiter 2 of 3 → waiter 3 not delayed by it",
        "two keys → independent",
    ),
    "dynamic system prompt": (
        "two transformers → second sees first's output",
        "changing clock fn called twice in a round → same text both times",
        "async fn works",
        "replace with None → no system message",
        "block-list prompts keep their blocks",
    ),
    "model fallback": (
        "primary 503, second ok → one response, span shows both",
        "stream opens then dies before text → fallback, client sees one clean stream",
        "dies after 3 deltas → error, no replay",
        "HTTP 200 + error event first → fallback",
        "empty completion → fallback",
        "Anthropic→OpenAI with cache markers → request has none; Anthropic→Bedrock-Claude keeps them",
        "original request object unchanged after fallback",
        "all fail → last error, notes list all",
        "pause raised inside → not treated as failure",
    ),
    "continue once": (
        "completed reply → one more round, same reply id, one ReplyStart, one ReplyEnd",
        "interrupted end → passed through",
        "max-iters end without freeing a round → error, not a busy loop",
        "two stacked continue middlewares → bounded by sum",
        "pause during the extra round → no third round",
        "predicate false → untouched",
    ),
    "stop": (
        "step 0 stop → no upstream call, empty text, no steps, 0 usage",
        "after step 1 → step and tool results kept",
        "streaming → finish cancelled",
        "Stop before logger → no start log",
        "unless mirrors when",
        "stop leaves history valid",
        "proxy: Stop → 200 with empty choice and finish_reason stop + header, or 429 by option",
    ),
    "step log": (
        "two steps → second sees first's usage",
        "tool crash → step kept",
        "short-circuited step → recorded with attempted=false and no usage",
        "pause/resume → numbering continues",
        "internal calls listed separately, not as steps",
        "failed attempt usage kept under attempts",
    ),
}

PAUSE, EXTERNAL, PROXY, BEDROCK = "pause and resume", "external execution", "the proxy's side", "Bedrock"
WAITING = {
    "paused on approval → reply span carries pending names; resume span shares reply id and is linked": PAUSE,
    "external result for c1,c2 → exactly two execute_tool spans flagged external": EXTERNAL,
    "pause at used=90, restart process, resume, call costs 20 → exhausted": PAUSE,
    "pause/resume → classifier not called again": PAUSE,
    "Anthropic→OpenAI with cache markers → request has none; Anthropic→Bedrock-Claude keeps them": BEDROCK,
    "pause raised inside → not treated as failure": PAUSE,
    "pause during the extra round → no third round": PAUSE,
    "proxy: Stop → 200 with empty choice and finish_reason stop + header, or 429 by option": PROXY,
    "pause/resume → numbering continues": PAUSE,
}
"""Lines that can't be tested yet, and the work that they wait for."""

ROWS = [
    *(pytest.param(CHECKS[line], id=f"{what}: {line}") for what, lines in LINES.items() for line in lines if line in CHECKS),
    *(
        pytest.param(lambda promise=promise, each=each: promise(each), id=f"{name}: {line}")
        for line, promise in PROMISES.items()
        for name, each in MIDDLEWARES.items()
    ),
]


@pytest.mark.parametrize("check", ROWS)
async def test_it_does_what_it_promises(check) -> None:  # type: ignore[no-untyped-def]
    await check()


def test_what_waits_is_exactly_the_rest() -> None:
    listed = [line for lines in LINES.values() for line in lines]
    assert len(listed) == len(set(listed))
    assert set(listed) - CHECKS.keys() == WAITING.keys()
    assert CHECKS.keys() <= set(listed)
