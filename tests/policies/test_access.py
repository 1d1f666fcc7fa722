"""policies/access.py: what a caller may ask for."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from struct import pack
from typing import Any

import pytest
from pydantic import ValidationError

from spangate.call.body import Body
from spangate.call.call import Call, Head, Op
from spangate.call.errors import Refused, model_not_found
from spangate.call.events import Closed, Event, Opened
from spangate.policies.access import Access, Most, Tools
from spangate.policies.content import MOST_IMAGES


async def answered(call: Call) -> AsyncIterator[Event]:
    yield Closed()


def call(model: str) -> Call:
    return Call(op="chat", model=model, body=Body.of({}))


@pytest.mark.parametrize(
    ("models", "model", "allowed"),
    [
        (["*"], "anything", True),
        (["fast"], "fast", True),
        (["fast"], "Fast", False),
        (["fast"], "faster", False),
        (["gpt-*"], "gpt-5", True),
        (["gpt-*"], "xgpt-5", False),
        (["*-mini"], "gpt-5-mini", True),
        ([], "fast", False),
        (["a[b]"], "ab", False),
        (["a[b]"], "a[b]", True),
        (["a?"], "ab", False),
    ],
)
async def test_names_and_patterns(models: list[str], model: str, allowed: bool) -> None:
    rule = Access(models=tuple(models))
    assert rule.allows(model) == allowed
    asked = call(model)
    if allowed:
        assert [event async for event in rule(asked, answered)] == [Closed()]
        assert len(asked.notes) == 0
    else:
        with pytest.raises(Refused) as caught:
            rule(asked, answered)
        assert caught.value.code == "model_not_found"
        assert [note.figures for note in asked.notes.named("access.refused")] == [{"model": model}]


def test_a_forbidden_model_gets_the_words_of_one_that_nobody_knows() -> None:
    with pytest.raises(Refused) as caught:
        Access(models=("fast",)).refusing(lambda asked: model_not_found(asked.model, ["fast", "small"]))(call("strong"), answered)
    assert caught.value.message == model_not_found("strong", ["fast", "small"]).message


def test_it_is_first() -> None:
    assert Access.stage == 10


def asking(op: Op = "chat", *, n: int = 1, cap: int | None = None, **fields: Any) -> Call:
    return Call(op=op, model="m", body=Body.of({"messages": [], **fields}), head=Head(n=n, output_cap=cap))


async def came(rule: Access, asked: Call) -> tuple[list[Event], list[Call]]:
    """The answer, and what went on inside."""
    inside: list[Call] = []

    async def answer(call: Call) -> AsyncIterator[Event]:
        inside.append(call)
        yield Opened()
        yield Closed()

    return [event async for event in rule(asked, answer)], inside


def refusal(rule: Access, asked: Call) -> Refused:
    with pytest.raises(Refused) as caught:
        rule(asked, answered)
    assert caught.value.source == "policy"
    assert len(asked.notes.named("access.refused")) == 1
    return caught.value


def test_what_refuses_nothing_says_so() -> None:
    assert Access().everything
    assert Access(models=("gpt-*", "*"), max=Most(), tools=Tools(allow=("a", "*"))).everything
    for rule in (Access(models=()), Access(operations=()), Access(tools=Tools(deny=("a",))), Access(max=Most(n=1))):
        assert not rule.everything


async def test_operations() -> None:
    rule = Access(operations=("chat", "embeddings"))
    assert (await came(rule, asking()))[0] == [Opened(), Closed()]
    asked = asking("completions")
    error = refusal(rule, asked)
    assert (error.code, error.message) == ("operation_not_allowed", "This key may not use completions. It may use: chat, embeddings.")
    assert [note.figures for note in asked.notes] == [{"operation": "completions"}]
    assert refusal(Access(operations=()), asking()).message == "This key may not use chat. It may use none."


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("tools", "offered", "refused"),
    [
        (Tools(allow=("get_*",)), [function("get_weather")], None),
        (Tools(allow=("get_*",)), [function("get_weather"), function("rm")], "rm"),
        (Tools(deny=("rm_*",)), [function("get"), function("rm_all")], "rm_all"),
        (Tools(allow=("get_*",), deny=("get_secret",)), [function("get_secret")], "get_secret"),
        (Tools(deny=("web_search",)), [{"type": "web_search"}], "web_search"),
        (Tools(allow=()), [], None),
        (Tools(allow=()), [function("x" * 100)], "x" * 61 + "..."),
    ],
)
async def test_tools(tools: Tools, offered: list[Any], refused: str | None) -> None:
    rule, asked = Access(tools=tools), asking(tools=offered)
    if refused is None:
        events, inside = await came(rule, asked)
        assert events == [Opened(), Closed()]
        assert inside == [asked]
    else:
        error = refusal(rule, asked)
        assert (error.code, error.param) == ("tool_not_allowed", "tools")
        assert repr(refused) in error.message
        assert [note.figures for note in asked.notes] == [{"tool": refused}]


@pytest.mark.parametrize("tools", [{}, [{}], ["rm"], [{"type": "function", "function": {"name": ""}, "name": "get"}, {"name": None}]])
def test_tools_that_can_not_be_told_are_not_let_through(tools: Any) -> None:
    error = refusal(Access(tools=Tools(deny=("rm",))), asking(tools=tools))
    assert (error.code, error.param) == ("invalid_request", "tools")


def test_old_spellings_of_tools_are_tools() -> None:
    rule = Access(tools=Tools(deny=("rm", "web_search")))
    assert refusal(rule, asking(functions=[{"name": "rm"}])).code == "tool_not_allowed"
    assert refusal(rule, asking(web_search_options={})).code == "tool_not_allowed"


async def test_an_answer_is_capped_and_that_is_told() -> None:
    rule = Access(max=Most(max_tokens=100))
    for asked in (asking(), asking(cap=5000, max_tokens=5000)):
        (opened, _), inside = await came(rule, asked)
        assert opened == Opened(headers={"x-spangate-capped": "100"})
        assert inside[0].head.output_cap == 100
        assert 100 in inside[0].body.parsed().values()
        assert [(note.name, note.figures) for note in asked.notes] == [
            ("access.capped", {"verdict": "modify", "asked": asked.head.output_cap or 0, "output_cap": 100})
        ]
    fits = asking(cap=100, max_tokens=100)
    assert await came(rule, fits) == ([Opened(), Closed()], [fits])
    assert len(fits.notes) == 0


def test_more_answers_than_allowed_are_refused() -> None:
    rule = Access(max=Most(n=2))
    assert rule(asking(n=2), answered)
    error = refusal(rule, asking(n=3))
    assert (error.code, error.param, error.message) == ("invalid_request", "n", "'n' must be at most 2 for this key.")


def images(*urls: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}} for url in urls]}]}


def png(width: int, height: int) -> str:
    start = b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", width, height)
    return f"data:image/png;base64,{base64.b64encode(start + bytes(60)).decode()}"


@pytest.mark.parametrize(
    ("urls", "told"),
    [
        ([], None),
        ([png(1024, 512)], None),
        ([png(512, 1024)], None),
        ([png(1024, 513)], "An image of 1024x513 pixels is larger than this key may send: at most 1024x512."),
        ([png(10, 10), png(2000, 10)], "An image of 2000x10 pixels is larger than this key may send: at most 1024x512."),
        (["https://example.com/a.png"], "of at most 1024x512 pixels, and the size of one can't be told: send it as a data URL"),
        (["data:image/heic;base64,AAAA"], "of at most 1024x512 pixels, and the size of one can't be told: send it as a data URL"),
        ([png(1, 1)] * (MOST_IMAGES + 1), "This key may send at most 128 images, so that their size can be told."),
    ],
)
def test_images(urls: list[str], told: str | None) -> None:
    rule, asked = Access(max=Most(image="1024x512")), asking(**images(*urls))
    if told is None:
        assert rule(asked, answered)
    else:
        error = refusal(rule, asked)
        assert (error.code, error.param) == ("invalid_request", "messages")
        assert told in error.message


async def test_a_long_message_is_looked_at_in_steps_first() -> None:
    rule, text = Access(max=Most(image="10x10")), {"type": "text", "text": "word " * 100_000}
    large = asking(messages=[{"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": png(20, 20)}}]}])
    events = rule(large, answered)
    with pytest.raises(Refused, match="An image of 20x20 pixels"):
        await anext(events)
    small = asking(messages=[{"role": "user", "content": [text]}])
    assert (await came(rule, small))[0] == [Opened(), Closed()]


@pytest.mark.parametrize("size", ["1024", "0x10", "10x0", "10X10", 1024, "100000x1", None.__class__])
def test_a_size_is_width_and_height(size: Any) -> None:
    with pytest.raises(ValidationError, match="must be a width and a height in pixels, such as 1024x1024"):
        Most(image=size)
