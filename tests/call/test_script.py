"""call/script.py: which rule answers, when its pieces come, and how they fail. The events themselves: the provider contract."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call, Head, Op, Target
from spangate.call.errors import ProviderFault, UpstreamError
from spangate.call.events import Closed, Delta, Event, Opened, Usage
from spangate.call.rules import Answer, Refusal, Reset, Rule
from spangate.call.script import LATE, MOST_WRITTEN, Script, ScriptMistakes, refusal


def asking(said: str = "What is the weather?", *, model: str = "m", stream: bool = False, usage_frame: bool = False) -> Call:
    body = Body.of({"model": model, "messages": [{"role": "user", "content": said}]})
    return Call("chat", model, body, head=Head(stream=stream, usage_frame=usage_frame))


async def events_of(script: Script, call: Call, **more: Any) -> list[Event]:
    async with aclosing(script.answer(call, **more)) as events:
        return [event async for event in events]


async def text_of(script: Script, call: Call) -> str:
    return "".join(event.text for event in await events_of(script, call) if isinstance(event, Delta))


# ---- which rule


@pytest.mark.parametrize(
    ("op", "body", "param"),
    [
        ("chat", {"messages": [], "n": 129}, "n"),
        ("chat", {"messages": [], "n": 10**400, "stream": True}, "n"),
        ("chat", {"messages": [{"role": "user", "content": "x" * (1 << 20)}], "n": 100}, "n"),
        ("completions", {"prompt": "x", "n": 2**62}, "n"),
        ("embeddings", {"input": ["x"] * 2049, "dimensions": 8192}, "input"),
    ],
)
async def test_what_would_take_all_memory_is_refused_as_openai_refuses_it(op: Op, body: dict[str, Any], param: str) -> None:
    call = Call(op, "m", Body.of({"model": "m", **body}), head=Head(stream="stream" in body, n=body.get("n", 1)))
    with pytest.raises(UpstreamError) as fault:
        await events_of(Script(), call)
    assert (fault.value.status, fault.value.param, fault.value.retryable) == (400, param, False)


async def test_the_first_rule_that_fits_answers() -> None:
    script = Script.parse(
        [
            {"when": {"model": "echo*"}, "answer": {"text": "echoed"}},
            {"when": {"contains": "Weather"}, "answer": {"text": "sunny"}},
            {"when": {"contains": "weather"}, "answer": {"text": "never"}},
        ]
    )
    assert await text_of(script, asking(model="echo-1")) == "echoed"
    assert await text_of(script, asking()) == "sunny"
    assert await text_of(script, asking("Hello  there\n")) == "Hello  there\n"


def test_the_model_is_the_one_that_was_chosen() -> None:
    script = Script.parse([{"when": {"model": "chosen"}, "times": 7}])
    assert script.match(asking().to(Target("p", "chosen"))).times == 7
    assert script.match(asking(model="chosen").to(Target("p", "other"))).times is None


def test_a_rule_answers_so_many_times() -> None:
    script = Script.parse([{"times": 2, "answer": {"text": "a"}}, {"times": 1, "answer": {"text": "b"}}])
    assert [script.match(asking()).answer.text for _ in range(4)] == ["a", "a", "b", None]


def test_attempts_are_counted_from_one() -> None:
    script = Script.parse([{"when": {"attempt": 1}, "fault": "empty"}, {"when": {"attempt": 2}, "answer": {"text": "second"}}])
    call = asking()
    assert script.match(call).fault == "empty"
    call.seen.attempt("p", "m")
    assert script.match(call).fault == "empty"
    call.seen.attempt("p", "m", "retry")
    assert script.match(call).answer.text == "second"


def test_a_function_is_a_rule() -> None:
    script = Script([lambda call: Rule(answer=Answer(text=call.model)) if call.model == "f" else None, {"answer": {"text": "else"}}])
    assert [script.match(asking(model=model)).answer.text for model in ("f", "g")] == ["f", "else"]


def test_a_functions_rule_has_its_own_conditions() -> None:
    once = Rule.model_validate({"when": {"contains": "weather"}, "answer": {"text": "a"}, "times": 1})
    script = Script([lambda call: once])
    assert [script.match(asking(said)).answer.text for said in ("snow", "weather", "weather")] == [None, "a", None]


def test_the_models_that_are_named() -> None:
    script = Script([{"when": {"model": name}} for name in ("b", "a", "a", "echo*")] + [{}])
    assert script.models == ["a", "b"]


# ---- scripts in files


def test_a_script_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("- answer: {text: Olá, every: 20ms}\n", "utf-8")
    assert [rule.answer for rule in Script.load(path).rules if isinstance(rule, Rule)] == [
        Answer.model_validate({"text": "Olá", "every": 0.02})
    ]
    path.write_text("")
    assert Script.load(path).rules == ()


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text("- {wen: {}}\n- {answer: {text: fine}}\n- {times: many}\n")
    with pytest.raises(ScriptMistakes) as mistakes:
        Script.load(path)
    assert [problem.removeprefix(f"{path}: ")[:16] for problem in mistakes.value.problems] == ["rule 1: wen: unk", "rule 3: times: s"]
    assert str(mistakes.value) == "\n".join(mistakes.value.problems)


@pytest.mark.parametrize(
    "written", [b"- [", b"\xff\xfe\x00", b"a: b: c", b"!!python/object:os.system {}", b"- \x00", b"2026-02-30", b"[" * 9999]
)
def test_a_file_that_is_no_yaml(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "answers.yaml"
    path.write_bytes(written)
    with pytest.raises(ScriptMistakes) as mistakes:
        Script.load(path)
    assert len(mistakes.value.problems) == 1
    assert "\n" not in mistakes.value.problems[0]


@pytest.mark.parametrize("wrong", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_what_never_ends_is_not_read(wrong: Any, tmp_path: Path) -> None:
    wrong(tmp_path / "answers.yaml")
    with pytest.raises(ScriptMistakes, match=r"answers\.yaml: it is not a file"):
        Script.load(tmp_path / "answers.yaml")


def test_one_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    with path.open("wb") as file:
        file.truncate(MOST_WRITTEN + 1)
    with pytest.raises(ScriptMistakes, match=r"answers\.yaml: it is larger than 16 mib"):
        Script.load(path)


@pytest.mark.parametrize("listed", [{"answer": {}}, "text", 5])
def test_a_script_is_a_list(listed: object) -> None:
    with pytest.raises(ScriptMistakes, match="a list of rules"):
        Script.parse(listed)


# ---- when pieces come


async def test_pauses_stand_before_pieces() -> None:
    script = Script.parse([{"answer": {"text": "a b c", "first": "40ms", "every": "20ms"}}])
    loop = asyncio.get_running_loop()
    for stream in (True, False):
        began = loop.time()
        at = [loop.time() - began async for _ in script.answer(asking(stream=stream))]
        assert at[0] >= (0.039 if stream else 0.079)
        assert at[-1] >= 0.079


async def test_without_pauses_nothing_waits() -> None:
    steps = Script.parse([{"answer": {"text": "a b c"}}]).answer(asking(stream=True, usage_frame=True))
    kinds = []
    while True:
        try:
            steps.__anext__().send(None)
        except StopIteration as event:
            kinds.append(type(event.value))
        except StopAsyncIteration:
            break
    assert kinds == [Opened, Delta, Delta, Delta, Delta, Delta, Closed]


async def test_late_usage_comes_after_a_pause_in_a_frame_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    script = Script.parse([{"answer": {"text": "a"}, "usage": "late"}])
    at = [(loop.time(), event) async for event in script.answer(asking(stream=True, usage_frame=True))]
    last = at[-2][1]
    assert isinstance(last, Delta)
    assert [chunk["choices"] for chunk in last.chunks] == [[]]
    assert at[-2][0] - at[-3][0] >= LATE * 0.9


@pytest.mark.parametrize(("usage", "frames"), [("omit", 0), ("late", 1), ("twice", 2), ("cumulative", 0), ({"input": 1}, 1)])
async def test_how_many_usage_chunks_come(usage: Any, frames: int) -> None:
    script = Script.parse([{"answer": {"text": "a b"}, "usage": usage}])
    for wanted in (True, False):
        events = await events_of(script, asking(stream=True, usage_frame=wanted))
        chunks = [chunk for event in events if isinstance(event, Delta) for chunk in event.chunks]
        assert len([chunk for chunk in chunks if not chunk["choices"]]) == (frames if wanted else 0)


async def test_an_empty_answer_has_a_role_and_an_end() -> None:
    events = await events_of(Script.parse([{"answer": {"text": ""}}]), asking(stream=True))
    assert [type(event) for event in events] == [Opened, Delta, Closed]
    assert isinstance(events[1], Delta)
    assert [chunk["choices"][0]["finish_reason"] for chunk in events[1].chunks] == [None, "stop"]
    assert isinstance(events[2], Closed)
    assert events[2].usage == Usage(input=4)


async def test_ids_and_times_are_given() -> None:
    for stream in (True, False):
        events = await events_of(Script(), asking(stream=stream), provider="p", serial=12, created=99)
        assert isinstance(events[0], Opened)
        assert isinstance(events[1], Delta)
        first = events[1].chunks[0]
        assert (events[0].provider, first["id"], first["created"]) == ("p", "chatcmpl-12", 99)


async def test_text_outside_ascii_comes_as_json() -> None:
    events = await events_of(Script(), asking("日本🙂"))
    assert isinstance(events[1], Delta)
    assert json.loads(events[1].raw)["choices"][0]["message"]["content"] == "日本🙂"


# ---- how they fail


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
async def test_a_reset_comes_after_so_many_pieces(count: int) -> None:
    script = Script([Rule(answer=Answer(text="a b c"), fault=Reset(reset_after=count))])
    came, broke = [], False
    try:
        async for event in script.answer(asking(stream=True)):
            came.append(event)  # noqa: PERF401 - until it raises
    except ProviderFault:
        broke = True
    assert broke
    assert [type(event) for event in came] == ([Opened] if count else []) + [Delta] * min(count, 3)


async def test_a_stall_lasts_until_somebody_leaves() -> None:
    script = Script.parse([{"answer": {"text": "a b"}, "fault": {"stall_after": 1}}])
    events = script.answer(asking(stream=True))
    assert [type(await anext(events)) for _ in range(2)] == [Opened, Delta]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(events), 0.02)
    with pytest.raises(StopAsyncIteration):
        await anext(events)


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (400, "invalid_request_error", None, False),
        (401, "invalid_request_error", "invalid_api_key", False),
        (404, "invalid_request_error", "model_not_found", False),
        (408, "invalid_request_error", None, True),
        (429, "requests", "rate_limit_exceeded", True),
        (503, "server_error", None, True),
    ],
)
def test_a_status_becomes_the_error_that_a_provider_sends(status: int, kind: str, code: str | None, retryable: bool) -> None:
    error = refusal(Refusal(status=status))
    assert (error.status, error.kind, error.own_code, error.retryable) == (status, kind, code, retryable)
    assert str(status) in error.message


@pytest.mark.parametrize("stream", [False, True])
async def test_a_head_is_told_before_anything_else(stream: bool) -> None:
    heads: list[tuple[int, object]] = []
    limits, later = {"x-ratelimit-remaining-requests": "1"}, {"retry-after": "2"}
    script = Script([{"answer": {"headers": limits}, "times": 1}, {"fault": {"status": 429, "headers": later}}])

    def hear(status: int, headers: Mapping[str, str]) -> Mapping[str, str]:
        heads.append((status, headers))
        return {"retry-after": "9"}

    events = script.answer(asking(stream=stream), head=hear)
    assert isinstance(await anext(events), Opened)
    assert heads == [(200, limits)]
    await events.aclose()
    with pytest.raises(UpstreamError) as error:
        await anext(script.answer(asking(stream=stream), head=hear))
    assert heads[1:] == [(429, later)]
    assert error.value.headers == {"retry-after": "9"}, "whoever is told says what goes on"


async def test_a_refusal_in_words_of_its_own() -> None:
    said = {"status": 429, "message": "No money.", "type": "insufficient_quota", "code": "insufficient_quota", "param": "model"}
    with pytest.raises(UpstreamError) as error:
        await events_of(Script([{"fault": {**said, "headers": {"Retry-After-MS": "5", "content-length": "7"}}}]), asking())
    assert (error.value.message, error.value.kind, error.value.own_code, error.value.param) == tuple(list(said.values())[1:])
    assert error.value.headers == {"retry-after-ms": "5"}
