"""exporters/otlp/sampling.py: it samples as the SDK does, and looks back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import sampling as sdk
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from spangate.exporters.otlp.sampling import NAMES, Sampling, bound_of, named

from finished import CALLER, call

NEVER = Sampling(bound=0)


def by_the_sdk(sampler: sdk.Sampler, trace_id: int, flag: bool | None) -> bool:
    """`flag` None: no parent."""
    parent = NonRecordingSpan(SpanContext(trace_id, 1, is_remote=True, trace_flags=TraceFlags(int(flag or 0))))
    context = None if flag is None else set_span_in_context(parent)
    return sampler.should_sample(context, trace_id, "chat").decision.is_sampled()


@given(
    st.sampled_from(sorted(NAMES)),
    st.one_of(st.none(), st.just("0"), st.just("1"), st.floats(0, 1).map(str), st.text(max_size=3), st.just("-1"), st.just("nan")),
    st.integers(1, 2**128 - 1),
    st.sampled_from([True, False, None]),
)
def test_its_heads_are_the_sdks(name: str, argument: str | None, trace_id: int, flag: bool | None) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OTEL_TRACES_SAMPLER", name)
        patched.delenv("OTEL_TRACES_SAMPLER_ARG", raising=False)
        if argument is not None and "\0" not in argument and argument.isprintable() and argument.isascii():
            patched.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
        else:
            argument = None
        theirs = sdk._get_from_env_or_default()
    ours, wrong = named(name, argument)
    assert ours.head(trace_id, parent=flag is not None, flag=bool(flag)) == by_the_sdk(theirs, trace_id, flag)
    if NAMES[name] == "traceidratio":
        assert bool(wrong) == (not usable(argument))
    else:
        assert bool(wrong) == bool(argument), "the SDK says nothing of an argument that nobody reads"


def usable(argument: str | None) -> bool:
    try:
        return 0 <= float(argument or "") <= 1
    except ValueError:
        return False


@given(st.floats(0, 1), st.integers(1, 2**128 - 1))
def test_a_ratio_keeps_the_traces_that_the_sdk_keeps(ratio: float, trace_id: int) -> None:
    kept = Sampling(bound=bound_of(ratio)).head(trace_id, parent=False, flag=False)
    assert kept == by_the_sdk(sdk.TraceIdRatioBased(ratio), trace_id, None)


def test_an_unknown_sampler_is_the_default() -> None:
    sampling, wrong = named("jaeger_remote", None)
    assert sampling == Sampling()
    assert wrong == [f"OTEL_TRACES_SAMPLER must be one of {', '.join(NAMES)}: parentbased_always_on it is"]


@pytest.mark.parametrize(
    ("name", "argument", "told"),
    [
        ("traceidratio", "sk-CANARY", "OTEL_TRACES_SAMPLER_ARG is no ratio between 0 and 1: every trace is sampled"),
        ("parentbased_traceidratio", None, "OTEL_TRACES_SAMPLER_ARG must be a ratio between 0 and 1: every trace is sampled"),
        ("always_on", "sk-CANARY", "OTEL_TRACES_SAMPLER_ARG means nothing to always_on"),
    ],
)
def test_an_argument_that_cannot_be_used_is_told_without_its_text(name: str, argument: str | None, told: str) -> None:
    assert named(name, argument)[1] == [told]


KEEPING = Sampling(bound=0, refused=True, failed=True, slower=0.5)


@pytest.mark.parametrize(
    ("ended", "kept"),
    [
        ({"outcome": "refused"}, True),
        ({"outcome": "failed"}, True),
        ({"outcome": "completed", "ended": 500.1}, False),
        ({"outcome": "completed", "ended": 501.0}, True),
        ({"outcome": "aborted", "ended": 500.1}, False),
    ],
)
def test_what_a_ratio_left_out_may_come_back(ended: dict[str, Any], kept: bool) -> None:
    assert KEEPING.keeps(call(**ended)) == kept
    assert not NEVER.keeps(call(**ended))


@pytest.mark.parametrize("flag", [True, False])
def test_a_caller_decides_for_its_own_trace(flag: bool) -> None:
    assert KEEPING.keeps(call(outcome="failed", parent_span_id=CALLER, sampled=flag)) == flag
    assert Sampling().keeps(call(parent_span_id=CALLER, sampled=flag)) == flag


def test_a_sampler_that_asks_no_parent() -> None:
    sampling, _ = named("always_on", None)
    assert sampling.keeps(call(parent_span_id=CALLER, sampled=False))
    assert not named("always_off", None)[0].keeps(call(parent_span_id=CALLER, sampled=True))


def test_what_the_head_said_it_says_again_at_the_end() -> None:
    for sampling in (Sampling(), Sampling(bound=2**63), *(named(name, "0.5")[0] for name in NAMES)):
        for parent in (0, CALLER):
            for flag in (True, False):
                seen = call(parent_span_id=parent)
                seen.sampled = sampling.head(seen.trace_id, parent=bool(parent), flag=flag)
                assert sampling.keeps(seen) == seen.sampled
