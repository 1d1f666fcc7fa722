"""policies/admission.py: one reservation over all that concerns a call, settled once, however the call ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spangate.call.call import Call, Caller, Labels
from spangate.call.chain import Next, pulling
from spangate.call.errors import ProviderFault, Refused
from spangate.call.events import Delta, Event, Opened
from spangate.call.rules import Rule
from spangate.policies.budget import Budget, TokenWeights
from spangate.policies.rate_limit import RateLimit
from spangate.proxy.kinds import Kinds

from admitting import Gate, call, notes
from gateway import until

USES_30 = [{"usage": {"input": 10, "output": 20}, "answer": {"text": "one two three"}}]


def budget(limit: Any = 1000, **more: Any) -> Budget:
    return Budget.model_validate({"name": "b", "limit": limit, "window": "total", **more})


async def refusal(gate: Gate, **asked: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await gate.ask(**asked)
    return caught.value


async def test_what_was_used_is_settled_and_nothing_stays_reserved() -> None:
    gate = Gate(budget(), script=USES_30)
    heard = await gate.ask(max_tokens=100)
    assert await gate.figures("b") == (30, 0)
    [line] = notes(heard, "budget.settled")
    assert line["settled"] == 30
    assert line["used"] == 0
    assert line["remaining"] == 970
    assert line["reserved"] >= 100


@pytest.mark.fault("USE-11")
async def test_details_are_weighed_by_what_they_are() -> None:
    usage = {"input": 100, "cached": 60, "output": 50, "reasoning": 30}
    weights = TokenWeights.model_validate({"input": 1, "cached": 0.1, "output": 4})
    gate = Gate(budget(weights=weights), script=[{"usage": usage}])
    await gate.ask(max_tokens=50)
    assert await gate.figures("b") == (246, 0)


@pytest.mark.fault("BUD-01")
async def test_parallel_calls_share_what_there_is() -> None:
    weights = TokenWeights.model_validate({"input": 0, "output": 1})
    gate = Gate(budget(weights=weights), script=[{"usage": {"input": 0, "output": 100}, "answer": {"text": "x", "first": 0.05}}])
    answers = await asyncio.gather(*(gate.ask(max_tokens=100) for _ in range(50)), return_exceptions=True)
    refused = [each for each in answers if isinstance(each, Refused)]
    assert len(refused) == 40
    assert {each.code for each in refused} == {"budget_exceeded"}
    assert await gate.figures("b") == (1000, 0)


@pytest.mark.fault("BUD-03")
async def test_a_budget_of_the_team_and_one_of_each_key_both_hold() -> None:
    weights = {"input": 0, "output": 1}
    team = Budget.model_validate({"name": "team", "limit": 100, "window": "day", "weights": weights})
    key = Budget.model_validate({"name": "key", "limit": 80, "window": "day", "per": "key", "weights": weights})
    gate = Gate(team, key, script=[{"usage": {"input": 0, "output": 20}}])
    one, two = Caller("acme", "search", "one"), Caller("acme", "search", "two")
    for _ in range(4):
        await gate.ask(caller=one, max_tokens=20)
    error = await refusal(gate, caller=one, max_tokens=20)
    assert error.facts["budget"]["name"] == "key"
    assert error.facts["budget"]["scope"] == "key:search/one"
    await gate.ask(caller=two, max_tokens=20)
    error = await refusal(gate, caller=two, max_tokens=20)
    assert error.facts["budget"] == {
        "name": "team", "scope": "team:search", "unit": "weighted_tokens", "limit": 100, "used": 100, "reserved": 0,
        "resets_at": error.facts["budget"]["resets_at"],
    }  # fmt: skip
    assert "'team' of team search" in error.message


@pytest.mark.fault("BUD-12")
async def test_no_budget_is_no_limit_and_0_admits_nothing() -> None:
    assert (await Gate().ask()).closed is not None
    error = await refusal(Gate(budget(0)))
    assert error.code == "budget_exceeded"
    assert error.facts["budget"]["limit"] == 0


async def test_a_call_that_nobody_limits_passes_by() -> None:
    gate = Gate(budget(0, per="thread"), budget(0, name="c", per="tag:project"), budget(0, name="d", models=["other-*"]))
    heard = await gate.ask()
    assert heard.headers == {}
    assert heard.call.meter is None
    for labels in (Labels(thread="t"), Labels(tags={"project": "p"})):
        assert (await refusal(gate, labels=labels)).code == "budget_exceeded"
    assert (await refusal(gate, model="other-1")).facts["budget"]["name"] == "d"


async def test_a_thread_of_another_team_is_another_thread() -> None:
    gate = Gate(budget(100, per="thread"), script=[{"usage": {"input": 0, "output": 100}}])
    await gate.ask(labels=Labels(thread="t"), max_tokens=50)
    assert (await refusal(gate, labels=Labels(thread="t"))).facts["budget"]["scope"] == "thread:search/t"
    await gate.ask(labels=Labels(thread="t"), caller=Caller("acme", "other", "ci"), max_tokens=50)


# ---- caps


async def test_a_cap_that_fits_is_left_alone() -> None:
    gate = Gate(budget(), script=USES_30)
    heard = await gate.ask(max_tokens=100)
    assert "x-spangate-capped" not in heard.headers
    assert gate.received[0]["max_tokens"] == 100


@pytest.mark.parametrize(("asked", "field"), [(5000, "max_tokens"), (None, "max_completion_tokens")])
async def test_a_cap_that_does_not_fit_is_lowered(asked: int | None, field: str) -> None:
    gate = Gate(budget(), script=USES_30)
    heard = await gate.ask(max_tokens=asked)
    most = int(heard.headers["x-spangate-capped"])
    assert gate.received[0][field] == most < 1000
    [line] = notes(heard, "budget.settled")
    assert line["reserved"] <= 1000
    assert notes(heard, "budget.capped") == [{"verdict": "modify", "asked": asked or 0, "output_cap": most}]


async def test_where_there_is_room_an_answer_without_a_cap_gets_plenty() -> None:
    gate = Gate(budget("100M"), script=USES_30)
    assert int((await gate.ask()).headers["x-spangate-capped"]) == 16 * 1024


async def test_every_choice_is_held() -> None:
    gate = Gate(budget(weights=TokenWeights.model_validate({"input": 0})), script=USES_30)
    heard = await gate.ask(n=4, max_tokens=1000)
    assert heard.headers["x-spangate-capped"] == "250"


async def test_an_answer_too_short_to_be_worth_it_is_refused() -> None:
    gate = Gate(budget(20, weights=TokenWeights.model_validate({"input": 0})), script=[{"usage": {"input": 0, "output": 10}}])
    await gate.ask(max_tokens=10)
    assert (await refusal(gate, max_tokens=100)).facts["budget"]["used"] == 10
    await gate.ask(max_tokens=10)
    assert await gate.figures("b") == (20, 0)


async def test_embeddings_have_no_answer_to_hold() -> None:
    gate = Gate(budget(100), script=[{"usage": {"input": 5}}])
    heard = await gate.ask("some words to embed", op="embeddings")
    assert "x-spangate-capped" not in heard.headers
    assert await gate.figures("b") == (5, 0)


# ---- how calls end


class Breaks:
    """A layer inside that ends a stream in some way after its first piece."""

    stage = 60

    def __init__(self, how: str) -> None:
        self.how = how

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        if self.how == "refused":
            raise Refused("no", code="content_blocked")
        async with pulling(next(call)) as events:
            async for event in events:
                yield event
                if self.how == "defect" and isinstance(event, Delta):
                    raise RuntimeError("a defect")


@pytest.mark.fault("BUD-06")
@pytest.mark.parametrize(
    ("rule", "spent"),
    [
        ({"fault": {"status": 500}}, 0),
        ({"fault": {"status": 429}}, 0),
        ({"fault": "empty"}, None),
        ({"fault": "error_in_200"}, 0),
        ({"fault": {"reset_after": 2}, "answer": {"text": "aaaa bbbb cccc dddd"}}, None),
        ({"fault": "truncate", "answer": {"text": "aaaa bbbb"}}, None),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_stays_reserved_after_a_failure(rule: dict[str, Any], spent: int | None, stream: bool) -> None:
    gate = Gate(budget(), RateLimit(concurrent=1), script=[{**rule, "times": 1}, *USES_30])
    with pytest.raises(ProviderFault):
        await gate.ask(stream=stream, max_tokens=100)
    used, reserved = await gate.figures("b")
    assert reserved == 0
    assert used == spent if spent is not None else 0 < used <= 100
    await gate.ask(max_tokens=100)
    assert await gate.figures("b") == (used + 30, 0)
    assert await gate.figures("list.rate_limit.key") == (0, 0)


async def test_what_a_layer_inside_refuses_costs_nothing() -> None:
    gate = Gate(budget(), budget(10, name="calls", unit="requests"), inside=[Breaks("refused")], script=USES_30)
    assert (await refusal(gate)).code == "content_blocked"
    assert await gate.figures("b") == (0, 0)
    assert await gate.figures("calls") == (0, 0)


async def test_a_defect_inside_is_settled_too() -> None:
    gate = Gate(budget(), inside=[Breaks("defect")], script=USES_30)
    with pytest.raises(RuntimeError):
        await gate.ask(stream=True, max_tokens=100)
    used, reserved = await gate.figures("b")
    assert reserved == 0
    assert used > 0


@pytest.mark.fault("USE-08")
async def test_a_caller_who_leaves_pays_for_what_came() -> None:
    gate = Gate(budget(), script=[{"answer": {"text": "aaaa " * 30, "chunks": 30, "every": 0.001}}])
    asked = call(stream=True, max_tokens=100)
    async with pulling(gate.next(asked)) as events:
        deltas = 0
        async for event in events:
            deltas += isinstance(event, Delta)
            if deltas == 10:
                break
    used, reserved = await gate.figures("b")
    assert reserved == 0
    assert 10 <= used <= 30
    assert notes(asked, "budget.settled")[0]["estimated"] is True


async def test_a_task_that_is_cancelled_is_settled() -> None:
    gate = Gate(budget(), script=[{"fault": {"stall_after": 0}}])
    task = asyncio.create_task(gate.ask(stream=True, max_tokens=100))
    await until(lambda: bool(gate.provider.calls))
    assert (await gate.figures("b"))[1] > 0
    task.cancel()
    await asyncio.wait([task])
    used, reserved = await gate.figures("b")
    assert reserved == 0
    assert used > 0


# ---- streams without a cap


LONG = " ".join(["word"] * 2000)


def uncapped(limit: int, **more: Any) -> Budget:
    return budget(limit, cap_output=False, weights=TokenWeights.model_validate({"input": 0}), **more)


async def test_a_stream_goes_on_as_long_as_there_are_slices() -> None:
    gate = Gate(uncapped(100_000), script=[{"answer": {"text": LONG * 3, "chunks": 100}, "usage": {"input": 0, "output": 7500}}])
    heard = await gate.ask(stream=True)
    assert heard.text == LONG * 3
    assert await gate.figures("b") == (7500, 0)
    [line] = notes(heard, "budget.settled")
    assert 5800 <= line["reserved"] <= 7500, "its text is 6000 tokens, and it was held a slice at a time"


@pytest.mark.parametrize("usage_frame", [True, False])
@pytest.mark.parametrize("n", [1, 2])
async def test_a_stream_that_gets_no_slice_ends_well(usage_frame: bool, n: int) -> None:
    gate = Gate(uncapped(1000), script=[{"answer": {"text": LONG, "chunks": 200}}])
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if usage_frame else {}
    heard = await gate.ask(stream=True, n=n, **options)
    assert heard.closed is not None
    assert heard.closed.cut
    assert heard.closed.finish == "length"
    *_, last = heard.deltas
    ended = [chunk for chunk in last.chunks if chunk["choices"]]
    assert [choice["finish_reason"] for chunk in ended for choice in chunk["choices"]] == ["length"] * n
    frames = [chunk["usage"] for chunk in last.chunks if not chunk["choices"]]
    assert len(frames) == usage_frame
    used, reserved = await gate.figures("b")
    assert reserved == 0
    assert 1000 <= used <= 1100
    assert notes(heard, "budget.cut")[0]["verdict"] == "deny"
    if usage_frame:
        assert frames[0]["completion_tokens"] == used


@pytest.mark.fault("USE-08")
async def test_a_stream_of_single_letters_ends_where_its_deltas_are_as_many_as_are_held() -> None:
    gate = Gate(uncapped(1000), script=[{"answer": {"text": "a" * 2000, "chunks": 2000}}])
    heard = await gate.ask(stream=True)
    assert heard.closed is not None
    assert heard.closed.cut
    assert 990 <= len(heard.text) <= 1001, "with the one that was too much"
    assert 1000 <= (await gate.figures("b"))[0] <= 1001


async def test_a_whole_answer_without_a_cap_may_overshoot() -> None:
    gate = Gate(uncapped(1000), script=[{"usage": {"input": 0, "output": 5000}}])
    await gate.ask()
    assert await gate.figures("b") == (5000, 0)
    assert (await refusal(gate)).code == "budget_exceeded"


# ---- what happens at the limit


async def test_warn_lets_calls_go_and_says_so() -> None:
    gate = Gate(budget(30, on_exceeded="warn"), script=USES_30)
    for _ in range(3):
        heard = await gate.ask(max_tokens=50)
        assert [note["verdict"] for note in notes(heard, "budget.exceeded")] == ["warn"]
    assert await gate.figures("b") == (90, 0)


async def test_wrap_up_hints_and_forbids_tools_then_refuses() -> None:
    weights = TokenWeights.model_validate({"input": 0})
    rule = budget(100, on_exceeded="wrap_up", grace="50%", weights=weights)
    gate = Gate(rule, script=[{"usage": {"input": 0, "output": 50}}])
    tools = [{"type": "function", "function": {"name": "f"}}]
    for _ in range(2):
        assert notes(await gate.ask(max_tokens=50, tools=tools), "budget.wrapped_up") == []
    heard = await gate.ask(max_tokens=50, tools=tools)
    assert len(notes(heard, "budget.wrapped_up")) == 1
    assert [len(sent["messages"]) for sent in gate.received] == [1, 1, 2]
    assert [sent.get("tool_choice") for sent in gate.received] == [None, None, "none"]
    assert (await refusal(gate, max_tokens=50)).code == "budget_exceeded"


async def test_downgrade_sends_a_call_to_another_model_then_refuses() -> None:
    rule = budget(100, on_exceeded="downgrade", downgrade_to="small", grace="50%", weights=TokenWeights.model_validate({"input": 0}))
    gate = Gate(rule, script=[{"usage": {"input": 0, "output": 50}}])
    for _ in range(3):
        await gate.ask(max_tokens=50)
    assert [sent["model"] for sent in gate.received] == ["m", "m", "small"]
    assert (await refusal(gate, max_tokens=50)).code == "budget_exceeded"


async def test_a_rule_in_shadow_refuses_nobody_and_counts_for_itself() -> None:
    kinds = Kinds()
    rule = kinds.settings.model_validate(
        {"defaults": {"policies": [{"budget": {"name": "b", "limit": 90, "window": "total", "mode": "shadow"}}]}}
    ).defaults.policies[0]
    gate = Gate(rule.settings, budget(1000), script=USES_30)
    for _ in range(3):
        heard = await gate.ask(max_tokens=20)
    assert await gate.figures("b", "weighted_tokens team shadow") == (60, 0)
    assert [note["mode"] for note in notes(heard, "budget.refused")] == ["shadow"]
    assert await gate.figures("b") == (150, 0)


# ---- limits


@pytest.mark.fault("RL-04")
async def test_a_limit_says_when_to_come_back() -> None:
    gate = Gate(RateLimit.model_validate({"requests": "5/min"}))
    for left in (4, 3, 2, 1, 0):
        heard = await gate.ask()
        assert heard.headers["x-ratelimit-limit-requests"] == "5"
        assert heard.headers["x-ratelimit-remaining-requests"] == str(left)
    error = await refusal(gate)
    assert error.code == "rate_limit_exceeded"
    assert 1 <= int(error.headers["retry-after"]) <= 61
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    assert error.facts["limit"]["unit"] == "requests"
    gate.hands.pass_(61)
    await gate.ask()


@pytest.mark.fault("RL-02")
async def test_places_are_given_back() -> None:
    gate = Gate(RateLimit(concurrent=2), script=[{"fault": {"status": 504}, "times": 10}])
    for _ in range(10):
        with pytest.raises(ProviderFault):
            await gate.ask()
    await gate.ask()
    assert await gate.figures("list.rate_limit.key") == (0, 0)


async def test_tokens_are_held_and_then_counted() -> None:
    gate = Gate(RateLimit.model_validate({"tokens": "100/min"}), script=USES_30)
    heard = await gate.ask(max_tokens=50)
    assert int(heard.headers["x-ratelimit-remaining-tokens"]) <= 50
    assert await gate.figures("list.rate_limit.key") == (30, 0)
    assert gate.received[0]["max_tokens"] == 50


async def test_an_interval_keeps_calls_apart() -> None:
    gate = Gate(RateLimit.model_validate({"interval": "5s"}))
    await gate.ask()
    assert (await refusal(gate)).headers["retry-after"] in ("5", "6")
    gate.hands.pass_(6)
    await gate.ask()


async def test_a_budget_speaks_before_a_limit() -> None:
    gate = Gate(RateLimit(concurrent=0), budget(0))
    assert (await refusal(gate)).code == "budget_exceeded"


async def test_a_call_that_waits_gets_its_turn() -> None:
    gate = Gate(RateLimit.model_validate({"concurrent": 1, "wait": "5s"}), script=[{"answer": {"text": "x", "first": 0.02}}])
    heard = await asyncio.gather(*(gate.ask(str(number)) for number in range(5)))
    assert len(heard) == 5
    assert await gate.figures("list.rate_limit.key") == (0, 0)


async def test_what_is_left_is_told_as_it_is_when_the_answer_begins() -> None:
    gate = Gate(RateLimit.model_validate({"requests": "5/min"}))

    def slow(asked: Call) -> Rule | None:
        if asked.body.get("messages")[0]["content"] == "slow":
            gate.hands.pass_(30)
        return None

    gate.provider.script.rules = [slow]
    asked = call("slow", stream=True)
    async with pulling(gate.next(asked)) as events:
        opened = await anext(events)
        assert isinstance(opened, Opened)
        assert opened.headers["x-ratelimit-remaining-requests"] == "4"
        assert opened.headers["x-ratelimit-reset-requests"].startswith("3")


async def test_headers_are_written_before_content() -> None:
    gate = Gate(RateLimit.model_validate({"requests": "5/min"}), script=USES_30)
    asked = call(stream=True)
    async with pulling(gate.next(asked)) as events:
        async for event in events:
            assert isinstance(event, Opened)
            break
    assert json.dumps(dict(event.headers)).count("x-ratelimit") == 3
