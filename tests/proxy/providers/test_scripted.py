"""proxy/providers/scripted.py: the provider contract, what it remembers, and its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from proxy.providers.contract import CONTRACT, Check
from proxy.providers.stage import SCENARIOS, TEXT, TOOL, USAGE, Stage, asking, deltas, failing, text, told
from pydantic import ValidationError

from spangate.call.call import Call
from spangate.call.clock import Clock
from spangate.call.errors import UpstreamError
from spangate.call.events import Usage
from spangate.call.rules import Answer, Rule
from spangate.call.script import Script, ScriptMistakes
from spangate.proxy.kinds import Kinds
from spangate.proxy.providers.provider import Parts
from spangate.proxy.providers.scripted import REMEMBERED, Scripted, ScriptedProvider
from spangate.proxy.upstream import Upstream

FIGURES = {"input": USAGE.input, "output": USAGE.output, "cached": USAGE.cached, "reasoning": USAGE.reasoning}
GOOD: dict[str, Any] = {"answer": {"text": TEXT}, "usage": FIGURES}
SLOW_DOWN = {"status": 429, "headers": {"Retry-After": "2", "x-other": "1"}, "message": "Slow down."}

SCRIPTS: dict[str, dict[str, Any]] = {
    "answers": GOOD,
    "answers slowly": {**GOOD, "answer": {"text": TEXT, "first": "5ms", "every": "5ms"}},
    "answers without usage": {**GOOD, "usage": "omit"},
    "calls a tool": {**GOOD, "answer": {"tool_calls": [TOOL]}},
    "refuses": {"fault": SLOW_DOWN},
    "errs in a 200": {"fault": "error_in_200"},
    "is empty": {"fault": "empty"},
    "is silent": {"fault": {"stall_after": 0}},
    "falls silent": {**GOOD, "fault": {"stall_after": 2}},
    "breaks before content": {"fault": {"reset_after": 0}},
    "breaks": {**GOOD, "fault": {"reset_after": 2}},
    "is cut": {"answer": {"text": "Hello brave"}, "fault": "truncate"},
    "embeds": {"usage": {"input": 7}},
    "completes": GOOD,
}
COUNTED = Usage(input=2, output=3)  # the words of the question and of TEXT
WAYS = {"usage comes late": "late", "usage comes twice": "twice", "usage grows": "cumulative"}
SCRIPTS |= {scenario: {**GOOD, "usage": way} for scenario, way in WAYS.items()}


@asynccontextmanager
async def on_stage(scenario: str) -> AsyncIterator[Stage]:
    usage = COUNTED if scenario in WAYS else USAGE
    yield Stage(ScriptedProvider("under-test", [SCRIPTS[scenario]]), usage)


@pytest.mark.fault("RL-04")
@pytest.mark.parametrize(("said", "heard"), [("7", {"retry-after": "7"}), ("-7", {}), ("1m2s", {"retry-after": "62"})])
async def test_when_to_come_back_goes_on_as_any_providers(said: str, heard: dict[str, str]) -> None:
    provider = ScriptedProvider("under-test", [{"fault": {"status": 429, "headers": {"Retry-After": said}}}])
    _, fault = await failing(provider, asking())
    assert isinstance(fault, UpstreamError)
    assert fault.headers == heard


def test_every_scenario_has_a_script() -> None:
    assert SCRIPTS.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("check", CONTRACT.values(), ids=CONTRACT)
async def test_contract(check: Check) -> None:
    await check(on_stage)


# ---- what it received


async def test_it_remembers_what_it_received() -> None:
    provider = ScriptedProvider(clock=Clock(wall=lambda: 5_000_000_007))
    events = await told(provider, asking(stream=True))
    received = provider.calls[0]
    assert (received.op, received.model, received.at) == ("chat", "m-1", 5_000_000_007)
    assert received.body == {"model": "m-1", "messages": [{"role": "user", "content": "Say hello"}], "stream": True}
    assert deltas(events)[0].chunks[0]["created"] == 5


async def test_it_forgets_the_oldest() -> None:
    provider = ScriptedProvider(remembered=2)
    for number in range(3):
        await told(provider, asking(user=str(number)))
    assert [received.body["user"] for received in provider.calls] == ["1", "2"]


async def test_ids_count_up() -> None:
    provider = ScriptedProvider()
    answers = [await told(provider, asking(stream=stream)) for stream in (False, True)]
    assert [deltas(events)[0].chunks[0]["id"] for events in answers] == ["chatcmpl-1", "chatcmpl-2"]


# ---- scripts in Python


async def test_a_script_of_rules_mappings_and_functions() -> None:
    def chosen(call: Call) -> Rule | None:
        return Rule(answer=Answer(text="chosen")) if "user" in call.body else None

    provider = ScriptedProvider(script=[{"answer": {"text": "first"}, "times": 1}, chosen, Rule(answer=Answer(text="last"))])
    said = [text(await told(provider, call)) for call in (asking(user="u"), asking(user="u"), asking())]
    assert said == ["first", "chosen", "last"]


async def test_one_function_is_a_script() -> None:
    provider = ScriptedProvider(script=lambda call: Rule(answer=Answer(text=call.model)))
    assert text(await told(provider, asking())) == "asked"


async def test_a_script_can_be_changed_while_it_runs() -> None:
    provider = ScriptedProvider()
    provider.script = Script([{"fault": {"status": 500}}])
    with pytest.raises(UpstreamError):
        await told(provider, asking())


# ---- settings

RULES = """
- when: {model: "m-1"}
  answer: {text: from the file}
- when: {model: "echo*"}
"""


def parts(folder: Path) -> Parts:
    return Parts("script", Upstream(), folder=folder)


async def test_settings_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "answers.yaml").write_text(RULES)
    settings = Scripted(kind="scripted", script="answers.yaml")
    provider = settings.build(parts(tmp_path))
    assert settings.problems(tmp_path) == []
    assert (provider.name, await provider.models()) == ("script", ["m-1"])
    assert text(await told(provider, asking())) == "from the file"


async def test_settings_with_rules_and_with_nothing(tmp_path: Path) -> None:
    inline = Scripted.model_validate({"kind": "scripted", "script": [{"answer": {"text": "inline"}}]}).build(parts(tmp_path))
    echo = Scripted(kind="scripted").build(parts(tmp_path))
    assert text(await told(inline, asking())) == "inline"
    assert text(await told(echo, asking())) == "Say hello"
    assert isinstance(echo, ScriptedProvider)
    assert echo.calls.maxlen == REMEMBERED


def test_two_providers_of_one_settings_count_apart(tmp_path: Path) -> None:
    settings = Scripted.model_validate({"kind": "scripted", "script": [{"times": 1}]})
    one, other = settings.build(parts(tmp_path)), settings.build(parts(tmp_path))
    assert isinstance(one, ScriptedProvider)
    assert isinstance(other, ScriptedProvider)
    assert one.script is not other.script


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("- {wen: {model: x}}", 'answers.yaml: rule 1: wen: unknown key; did you mean "when"?'),
        ("- {times: 0}\n- {fault: trunkate}", "answers.yaml: rule 2: fault: should be 'truncate', 'error_in_200' or 'empty'"),
        ("answer: {text: a}", "answers.yaml: a script is a list of rules, as in `- answer: {text: Hello}`"),
        ("- [", "answers.yaml:1:4: not YAML:"),
    ],
)
def test_a_file_with_mistakes(tmp_path: Path, written: str, said: str) -> None:
    (tmp_path / "answers.yaml").write_text(written)
    settings = Scripted(kind="scripted", script="answers.yaml")
    assert any(problem.startswith(f"{tmp_path}/{said}") for problem in settings.problems(tmp_path)), settings.problems(tmp_path)
    with pytest.raises(ScriptMistakes):
        settings.build(parts(tmp_path))


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    problems = Scripted(kind="scripted", script="answers.yaml").problems(tmp_path)
    assert problems == [f"{tmp_path / 'answers.yaml'}: no such file or directory"]


def test_a_mistake_in_a_rule_of_the_configuration_is_told_once() -> None:
    with pytest.raises(ValidationError) as error:
        Scripted.model_validate({"kind": "scripted", "script": [{"fault": {"status": 200}}]})
    assert [details["loc"] for details in error.value.errors()] == [("script", "<rules>", 0, "fault", "<status>", "status")]


def test_it_is_a_kind_of_provider() -> None:
    assert Kinds().providers["scripted"] is Scripted
