"""proxy/gateway.py: which names lead where, in which order policies stand, what /v1/models holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call, Caller
from spangate.call.chain import pulling
from spangate.call.clock import Clock
from spangate.call.errors import Refused, model_not_found
from spangate.call.events import Delta, Opened
from spangate.policies.access import Access
from spangate.policies.terms import Signed
from spangate.proxy import config
from spangate.proxy.gateway import LISTED, UNLISTED, Gateway, callers_of
from spangate.proxy.kinds import Kinds
from spangate.proxy.stopped import Stopped
from spangate.proxy.stops_file import Turn
from spangate.proxy.upstream import Upstream

from upstream import Misbehaving, http, play

SCRIPTED = {"kind": "scripted", "script": [{"answer": {"text": "hello"}}]}
SEARCH = Caller(team="search", key="ci")
MODELS: dict[str, Any] = {
    "strong": {"targets": [{"provider": "a", "model": "big"}]},
    "fast": {"targets": [{"provider": "b"}]},
    "gpt-*": {"targets": [{"provider": "a"}]},
    "gpt-5-*": {"targets": [{"provider": "b", "model": "five"}]},
    "*": {"targets": [{"provider": "b"}]},
}


def parsed(**sections: Any) -> config.Config:
    usual = {"providers": {"a": SCRIPTED, "b": SCRIPTED}, "models": MODELS, "teams": {"search": {"keys": []}}}
    return config.parse(json.dumps(usual | sections).encode(), "spangate.yaml", environ={}, kinds=Kinds())


@asynccontextmanager
async def standing(clock: Clock | None = None, **sections: Any) -> AsyncIterator[Gateway]:
    client = Upstream()
    try:
        yield Gateway(parsed(**sections), client, clock=clock or Clock(), listing=0.3)
    finally:
        await client.aclose()


async def target(gateway: Gateway, model: str, caller: Caller = SEARCH) -> tuple[str, str]:
    call = Call(op="chat", model=model, body=Body.of({"messages": [{"role": "user", "content": "hi"}]}))
    async with pulling(gateway.next_for(caller, model)(call)) as events:
        kinds = [type(event) async for event in events]
    assert kinds[0] is Opened
    assert Delta in kinds
    return call.seen.provider, call.seen.target_model


@pytest.mark.parametrize(
    ("model", "leads"),
    [
        ("strong", ("a", "big")),
        ("fast", ("b", "fast")),
        ("gpt-4", ("a", "gpt-4")),
        ("gpt-5-mini", ("b", "five")),
        ("else", ("b", "else")),
        ("*", ("b", "*")),
    ],
)
async def test_exact_names_first_then_longer_patterns(model: str, leads: tuple[str, str]) -> None:
    async with standing() as gateway:
        assert await target(gateway, model) == leads


async def test_a_forbidden_name_is_refused_in_the_words_of_an_unknown_one() -> None:
    models = {"strong": MODELS["strong"], "fast": MODELS["fast"]}
    async with standing(models=models, teams={"search": {"models": ["fast"]}}) as gateway:
        told = []
        for model in ("strong", "strung"):
            with pytest.raises(Refused) as caught:
                await target(gateway, model)
            told.append(caught.value.message.replace(model, "…"))
        assert told[0] == told[1]
        assert "fast" in told[0]
        assert await target(gateway, "fast") == ("b", "fast")


async def test_one_onion_a_team_and_model() -> None:
    async with standing() as gateway:
        assert gateway.next_for(SEARCH, "gpt-4") is gateway.next_for(SEARCH, "gpt-3")
        assert gateway.next_for(SEARCH, "gpt-4") is not gateway.next_for(Caller(), "gpt-4")


async def test_every_model_has_time_limits() -> None:
    async with standing() as gateway:
        route = gateway._route_of("fast")
        assert route is not None
        assert [type(policy).__name__ for policy in route.policies] == ["TimeLimit"]


# ---- mode and when


def ruled(**rule: Any) -> dict[str, Any]:
    return {"models": MODELS, "teams": {"search": {"policies": [{"access": rule}]}}}


async def asked(gateway: Gateway, model: str, caller: Caller = SEARCH) -> Call:
    """A call that went through."""
    call = Call(op="chat", model=model, body=Body.of({"messages": []}), caller=caller)
    async with pulling(gateway.next_for(caller, model)(call)) as events:
        assert Opened in [type(event) async for event in events]
    return call


async def test_a_rule_in_shadow_refuses_nothing_and_says_what_it_would_have() -> None:
    async with standing(**ruled(models=["fast"], mode="shadow")) as gateway:
        call = await asked(gateway, "strong")
        figures = {"model": "strong", "mode": "shadow", "rule": "teams.search.policies[0]"}
        assert [(note.name, note.figures) for note in call.notes] == [("access.refused", figures)]
        assert "strong" in await gateway.models(SEARCH)


async def test_a_rule_holds_for_the_calls_that_it_names() -> None:
    async with standing(**ruled(models=["fast"], when="user == 'ann'")) as gateway:
        assert len((await asked(gateway, "strong")).notes) == 0
        with pytest.raises(Refused) as caught:
            await asked(gateway, "strong", Caller(team="search", user="ann"))
        assert "fast" in caught.value.message
        assert await gateway.owner(SEARCH, "strong") == "a"


async def test_a_rule_without_terms_is_one_layer() -> None:
    async with standing(**ruled(models=["fast"])) as gateway:
        (rule,) = gateway.config.rules_of("search")
        layer = gateway._layer(rule, lambda call: model_not_found(call.model, ()))
        assert isinstance(layer, Signed)
        assert isinstance(layer._policy, Access)


# ---- /v1/models


def listing(*names: str) -> bytes:
    return http(200, body=json.dumps({"data": [{"id": name} for name in names]}).encode())


def through(up: Misbehaving) -> dict[str, Any]:
    return {"a": SCRIPTED, "b": {"kind": "openai", "base_url": up.base_url}}


async def test_what_is_listed() -> None:
    async with (
        Misbehaving(play(listing("gpt-5-nano", "fast", "other"))) as up,
        standing(providers=through(up), teams={"search": {"models": ["fast", "gpt-*"]}}) as gateway,
    ):
        assert await gateway.models(SEARCH) == ["fast", "gpt-5-nano"]
        assert await gateway.models(Caller()) == ["strong", "fast", "gpt-5-nano", "other"]
        assert gateway.providers_of(["fast", "strong", "gpt-4"]) == {"fast": "b", "strong": "a", "gpt-4": "a"}
        assert len(up.requests) == 1, "asked once in five minutes"


async def test_what_another_provider_would_be_asked_for_is_not_listed() -> None:
    async with Misbehaving(play(listing("gpt-oss", "other"))) as up, standing(providers=through(up)) as gateway:
        assert gateway.providers_of(["gpt-oss"]) == {"gpt-oss": "a"}
        assert await gateway.models(Caller()) == ["strong", "fast", "other"]


async def test_a_list_is_believed_for_a_while() -> None:
    times = [0.0]
    async with (
        Misbehaving([play(listing("one")), play(listing("two"))]) as up,
        standing(Clock(mono=lambda: times[0]), providers=through(up), models={"*": MODELS["*"]}) as gateway,
    ):
        assert await gateway.models(Caller()) == ["one"]
        times[0] = LISTED - 1
        assert await gateway.models(Caller()) == ["one"]
        times[0] = LISTED
        assert await gateway.models(Caller()) == ["two"]


async def test_a_provider_that_answers_nothing_adds_nothing() -> None:
    async with Misbehaving(play(end="rst")) as up, standing(providers=through(up)) as gateway:
        assert await gateway.models(SEARCH) == ["strong", "fast"]


async def test_a_provider_that_never_answers_adds_nothing() -> None:
    async with Misbehaving(play(end="hold")) as up, standing(providers=through(up)) as gateway:
        assert await gateway.models(SEARCH) == ["strong", "fast"]
        await up.requests[0].peer_closed.wait()


async def test_many_who_ask_for_the_list_are_one_request() -> None:
    times = [0.0]
    async with Misbehaving(play(end="hold")) as up, standing(Clock(mono=lambda: times[0]), providers=through(up)) as gateway:
        lists = await asyncio.gather(*(gateway.models(SEARCH) for _ in range(20)))
        assert lists == [["strong", "fast"]] * 20
        assert len(up.requests) == 1
        times[0] = UNLISTED
        await gateway.models(SEARCH)
        assert len(up.requests) == 2


def test_keys_become_holders() -> None:
    keys = [{"name": "ci", "hash": "sha256:" + "0" * 64}]
    callers = callers_of(parsed(teams={"search": {"organisation": "acme", "keys": keys}}), Clock())
    holder = callers.holder(Caller("acme", "search", "ci"))
    assert holder is not None
    assert (holder.digest, holder.expires) == ("0" * 64, None)


SMALL_WHEN_LONG = {"access": {"models": ["fast", "gpt-*"], "when": "input_tokens > 50"}}


async def refused(gateway: Gateway, model: str) -> str:
    """In which words a long call is."""
    call = Call(op="chat", model=model, body=Body.of({"messages": [{"role": "user", "content": "x" * 1000}]}))
    with pytest.raises(Refused) as caught:
        async with pulling(gateway.next_for(SEARCH, model)(call)) as events:
            await anext(events)
    return caught.value.message


@pytest.mark.parametrize(
    ("policies", "model", "told"),
    [
        ([SMALL_WHEN_LONG], "strong", "The model 'strong' is not one that this key may use for this call. It may use for this call: fast."),
        (
            [SMALL_WHEN_LONG, {"access": {"models": ["strong"], "when": "op == 'chat'"}}],
            "strong",
            "The model 'strong' is not one that this key may use for this call.",
        ),
        (  # what holds no longer, or in shadow, takes nothing out of the list
            [SMALL_WHEN_LONG, {"access": {"models": []} | {"mode": "shadow"}}, {"access": {"models": [], "when": "op == 'embeddings'"}}],
            "strong",
            "The model 'strong' is not one that this key may use for this call. It may use for this call: fast.",
        ),
    ],
)
async def test_what_a_condition_refuses_is_said_to_be_for_this_call(policies: list[Any], model: str, told: str) -> None:
    models = {"strong": MODELS["strong"], "fast": MODELS["fast"]}
    async with standing(models=models, teams={"search": {"policies": policies}}) as gateway:
        assert await refused(gateway, model) == told
        assert await target(gateway, "strong") == ("a", "big")


async def test_a_condition_tells_nothing_of_a_model_that_is_hidden_anyway() -> None:
    models = {"strong": MODELS["strong"], "fast": MODELS["fast"]}
    lists = {"defaults": {"policies": [SMALL_WHEN_LONG]}, "teams": {"search": {"policies": [{"access": {"models": ["fast"]}}]}}}
    async with standing(models=models, **lists) as gateway:
        told = [(await refused(gateway, model)).replace(model, "…") for model in ("strong", "strung")]
        assert told[0] == told[1]


@pytest.mark.parametrize(
    ("sections", "rule"),
    [
        ({"teams": {"search": {"models": ["fast"]}}}, {"rule": "teams.search.models"}),
        ({"teams": {"search": {"policies": [{"access": {"models": []}}]}}}, {"rule": "teams.search.policies[0]"}),
        ({"defaults": {"policies": [{"access": {"models": []}}]}}, {"rule": "defaults.policies[0]"}),
        (
            {
                "policies": {"careful": [{"access": {"operations": ["chat"]}}, {"access": {"models": [], "when": "op == 'chat'"}}]},
                "teams": {"search": {"policies": ["careful"]}},
            },
            {"rule": "policies.careful[1]", "condition": "op == 'chat'"},
        ),
    ],
)
async def test_a_note_says_which_rule_of_the_file_it_is_from(sections: Any, rule: dict[str, str]) -> None:
    async with standing(**sections) as gateway:
        call = Call(op="chat", model="strong", body=Body.of({"messages": []}))
        with pytest.raises(Refused):
            async with pulling(gateway.next_for(SEARCH, "strong")(call)) as events:
                await anext(events)
        assert [note.figures for note in call.notes.named("access.refused")] == [{"model": "strong", **rule}]


async def test_a_rule_in_shadow_and_a_failed_condition_say_theirs_too() -> None:
    policies = [{"access": {"models": [], "mode": "shadow"}}, {"access": {"when": "tags.env == 'prod'", "max": {"max_tokens": 5}}}]
    async with standing(teams={"search": {"policies": policies}}) as gateway:
        call = Call(op="chat", model="strong", body=Body.of({"messages": [{"role": "user", "content": "hi"}]}))
        async with pulling(gateway.next_for(SEARCH, "strong")(call)) as events:
            assert [event async for event in events]
        assert [(note.name, note.figures["rule"]) for note in call.notes] == [
            ("access.refused", "teams.search.policies[0]"),
            ("access.condition_failed", "teams.search.policies[1]"),
            ("access.capped", "teams.search.policies[1]"),
        ]


async def test_a_note_of_a_budget_says_which_rule_it_is_from() -> None:
    used_up = {"budget": {"name": "none", "limit": 0, "unit": "requests", "window": "day"}}
    async with standing(teams={"search": {"policies": [{"access": {}}, used_up]}}) as gateway:
        call = Call(op="chat", model="strong", body=Body.of({"messages": []}))
        with pytest.raises(Refused):
            async with pulling(gateway.next_for(SEARCH, "strong")(call)) as events:
                await anext(events)
        [note] = call.notes.named("budget.refused")
        assert (note.figures["rule"], note.figures["name"]) == ("teams.search.policies[1]", "none")


# ---- kill switches


def stop(gateway: Gateway, *switches: str) -> None:
    gateway.switches.now = Stopped({switch: Turn(True, datetime.now(UTC)) for switch in switches})


async def stopping(gateway: Gateway, model: str, team: str = "search") -> str:
    """The switch that refuses a call."""
    with pytest.raises(Refused) as caught:
        await target(gateway, model, Caller(team=team, key="ci"))
    assert caught.value.code == "stopped"
    return str(caught.value.facts["stopped"]["switch"])


async def test_what_is_stopped_is_not_tried_and_the_rest_is() -> None:
    async with standing() as gateway:
        assert await target(gateway, "strong") == ("a", "big")  # built before anything was stopped
        stop(gateway, "provider:a")
        assert await stopping(gateway, "strong") == await stopping(gateway, "gpt-4") == "provider:a"
        assert await target(gateway, "fast") == ("b", "fast")
        stop(gateway, "model:big", "model:gpt-5*")
        assert [await stopping(gateway, model) for model in ("strong", "gpt-5-mini")] == ["model:big", "model:gpt-5*"]
        assert await target(gateway, "gpt-4") == ("a", "gpt-4")
        stop(gateway)
        assert await target(gateway, "strong") == ("a", "big")


async def test_a_call_that_a_budget_sends_to_another_model_is_not_sent_to_one_that_is_stopped() -> None:
    over = {"limit": 1, "grace": "900%", "on_exceeded": "downgrade", "downgrade_to": "fast"}
    budget = {"name": "b", "unit": "requests", "window": "total", **over}
    async with standing(teams={"search": {"policies": [{"budget": budget}]}}) as gateway:
        assert [await target(gateway, "strong") for _ in range(2)] == [("a", "big"), ("b", "fast")]
        stop(gateway, "provider:b")
        assert await stopping(gateway, "strong") == "provider:b"
        stop(gateway, "model:fast")
        assert await stopping(gateway, "strong") == "model:fast"
        stop(gateway, "provider:a")
        assert await stopping(gateway, "strong") == "provider:a"


async def test_a_model_that_is_stopped_is_no_other_than_before_to_who_may_not_use_it() -> None:
    async with standing(teams={"search": {"models": ["fast"]}}) as gateway:
        stop(gateway, "model:strong", "provider:a")
        with pytest.raises(Refused, match="'strong' is not one that this key may use"):
            await target(gateway, "strong")


async def test_another_configuration_has_the_same_switches() -> None:
    async with standing() as gateway:
        stop(gateway, "model:fast")
        assert await stopping(gateway.rekeyed(gateway.config), "fast") == "model:fast"
