"""policies/content.py: what a request holds, seen from outside."""

from __future__ import annotations

import base64
import json
from struct import pack
from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call
from spangate.policies import content
from spangate.policies.content import LONGEST_TOOLS, MOST_IMAGES, MOST_OBJECTS, MOST_TOOLS, Content, content_of, look_at, tool_names
from spangate.policies.pictures import Image


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", width, height)


DATA = base64.b64encode(png(640, 480) + bytes(3000)).decode()
URL = f"data:image/png;base64,{DATA}"


def call(**fields: Any) -> Call:
    return Call(op="chat", model="gpt-4o", body=Body.of(fields))


def image(url: str = URL, **detail: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def said(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def test_text_is_all_that_counts_as_input() -> None:
    messages, tools = [{"role": "user", "content": "hello"}], [{"type": "function", "function": {"name": "f"}}]
    found = content_of(call(messages=messages, tools=tools, temperature=1, metadata={"a": "b" * 1000}))
    size = len(json.dumps(messages, separators=(",", ":"))) + len(json.dumps(tools, separators=(",", ":")))
    assert found == Content(text=size)
    assert found.plain
    assert found.tokens("gpt-4o") == found.text_tokens == -(-size // 4)


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (image(), Image(640, 480)),
        (image(detail="low"), Image(640, 480, low=True)),
        (image(detail="high"), Image(640, 480)),
        ({"type": "image_url", "image_url": {"detail": "low", "url": URL}}, Image(640, 480, low=True)),
        ({"type": "input_image", "image_url": URL}, Image(640, 480)),
        (image("https://example.com/a.png"), Image()),
        (image("data:image/svg+xml;charset=utf-8;base64,PHN2Zz4="), Image()),
    ],
)
def test_images_are_no_text(part: dict[str, Any], found: Image) -> None:
    asked = content_of(call(messages=said({"type": "text", "text": "hi"}, part)))
    assert asked.images == (found,)
    assert asked.text < 250
    assert not asked.plain


def test_the_spelling_of_others_is_read_too() -> None:
    raw = json.dumps(said(image()), indent=2).replace("/", "\\/").encode()
    found = content_of(Call(op="chat", model="m", body=Body({"messages": raw})))
    assert found.images == (Image(640, 480),)


def test_a_text_about_images_is_text() -> None:
    text = f'{{"image_url": {{"url": "{URL}"}}}} "url":"{URL}'
    found = content_of(call(messages=said({"type": "text", "text": text})))
    assert found.images == ()
    assert found.text > len(DATA) * 2


def test_sound_and_files() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
    other = {"type": "input_audio", "input_audio": {"format": "mp3", "data": DATA}}
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{DATA}"}}
    found = content_of(call(messages=said(sound, other, file)))
    assert (found.sound, found.files) == (2 * len(DATA), len(DATA))
    assert found.text < 400
    assert found.tokens("gpt-4o") < 250


def test_token_ids_are_counted_as_they_come() -> None:
    ids = [[1, 22, 333], [4, 5]]
    found = content_of(Call(op="embeddings", model="m", body=Body.of({"input": ids})))
    assert found.text == 0
    assert 5 <= found.tokens("m") <= 12


def test_very_many_images_are_not_lost() -> None:
    found = content_of(call(messages=said(*[image()] * (MOST_IMAGES + 10))))
    assert found.more
    assert len(found.images) >= MOST_IMAGES
    remote = content_of(call(messages=said(*[image("https://x/y")] * 200)))
    assert (len(remote.images), remote.more) == (200, False)
    assert content_of(call(messages=said(*[image("https://x/y")] * 2000))).more


def test_a_large_picture_is_a_bounded_number_of_tokens() -> None:
    picture = base64.b64encode(png(1600, 1200) + bytes(1_500_000)).decode()
    found = content_of(call(messages=said({"type": "text", "text": "hi"}, image(f"data:image/png;base64,{picture}"))))
    assert 85 <= found.tokens("gpt-4o") <= 2000


async def test_a_long_body_is_looked_at_once_and_in_steps() -> None:
    asked = call(messages=said({"type": "text", "text": "word " * 100_000}, image()))
    await look_at(asked)
    assert asked.body in content._remembered
    assert content_of(asked) is content_of(asked)
    short = call(messages=said(image()))
    await look_at(short)
    assert short.body not in content._remembered


def test_what_was_looked_at_is_forgotten_with_its_call() -> None:
    asked = call(messages=said({"type": "text", "text": "word " * 10_000}))
    content_of(asked)
    before = len(content._remembered)
    del asked
    assert len(content._remembered) == before - 1


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, []),
        ({"tools": None}, []),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"name": "no"}}}]}, ["a"]),
        ({"tools": [{"type": "function", "name": "a"}, {"name": "b", "input_schema": {}}]}, ["a", "b"]),
        ({"tools": [{"type": "custom", "custom": {"name": "c"}}, {"type": "web_search", "filters": {}}]}, ["c", "web_search"]),
        ({"functions": [{"name": "old"}], "tools": [{"type": "code_interpreter"}]}, ["code_interpreter", "old"]),
        ({"tools": [{"type": "custom", "function": {"name": "a"}, "custom": {"name": "b"}, "name": "c"}]}, ["a", "b", "c"]),
        ({"tools": [{"type": "web_search", "name": "a"}, {"type": "mcp", "function": {"name": "b"}}]}, ["a", "web_search", "b", "mcp"]),
        ({"tools": [{"type": "function", "function": {"name": "a"}, "custom": None, "name": None}]}, ["a"]),
        ({"tool_choice": "auto", "function_call": "none"}, []),
        ({"tool_choice": "a", "function_call": {"name": "b"}}, ["a", "b"]),
        ({"tools": [{"name": "a"}], "tool_choice": {"type": "function", "function": {"name": "a"}}}, ["a"]),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, ["a"]),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "a"}]}}}, ["a"]),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "x"}]}}, ["x"]),
        ({"web_search_options": {}}, ["web_search"]),
    ],
)
def test_the_names_of_tools(fields: dict[str, Any], names: list[str]) -> None:
    assert tool_names(Body.of(fields)) == names


@pytest.mark.parametrize(
    "tools",
    [
        {},
        "a",
        ["a"],
        [{}],
        [{"type": "function", "function": {}}, {"type": 1}],
        [{"type": "function"}],
        [{"type": "function", "function": {"name": "a", "Name": "b"}}],
        [{"name": "a", "Function": {"name": "b"}}],
        [{"name": "a", "cu\u017ftom": {"name": "b"}}],
        [{"type": "function", "function": "a"}],
        [{"name": "a"}] * (MOST_TOOLS + 1),
        [{"name": "a", "x": [{}] * MOST_OBJECTS}],
    ],
)
def test_tools_that_can_not_be_told(tools: Any) -> None:
    with pytest.raises(ValueError, match=r"tool|Expected"):
        tool_names(Body.of({"tools": tools}))


@pytest.mark.parametrize(
    "tools",
    [
        '[{"name":"a","name":"b"}]',
        '[{"type": "function", "function": {"name": "a"}, "function": {"name": "b"}}]',
        '[{"type":"function","function":{"name":"a","n\\u0061me":"b"}}]',
        '[{"type":"function","function":{"name":"ab","x":1,"name":"a"}}]',
        '[{"type":"function","function":{"name" :1,"name":1}}]',
    ],
)
@pytest.mark.parametrize("field", ["tools", "functions"])
def test_a_field_that_comes_twice_is_not_believed(field: str, tools: str) -> None:
    with pytest.raises(ValueError, match="a field twice"):
        tool_names(Body({field: tools.encode()}))


@pytest.mark.parametrize("indent", [None, 2])
def test_tools_may_be_written_with_any_white_space(indent: int | None) -> None:
    tools = [{"type": "function", "function": {"name": "a", "strict": True, "parameters": {}, "description": '\u00e9\\"'}}] * 3
    assert tool_names(Body({"tools": json.dumps(tools, indent=indent).encode()})) == ["a"] * 3
    with pytest.raises(ValueError, match="without a name"):
        tool_names(Body({"tools": b"[{ }]"}))


def test_long_tools_are_read_once_and_very_long_ones_never() -> None:
    body = Body.of({"tools": [{"name": "a", "description": "x" * 10_000}]})
    assert tool_names(body) == ["a"]
    assert content._named[body] == ("a",)
    tool_names(body).append("b")
    assert tool_names(body) == ["a"]
    for field in (b'[{"name":"a","x":[%b[]]}]' % (b"[]," * MOST_OBJECTS), b'[{"name":"a","x":"%b"}]' % (b"x" * LONGEST_TOOLS)):
        body = Body({"tools": field})
        for _ in range(2):
            with pytest.raises(ValueError, match="more than are looked at"):
                tool_names(body)
        assert content._named[body] is None


REMOTE = image("https://example.com/a.png")
WRITTEN = json.dumps(said(REMOTE))


@pytest.mark.parametrize(
    "messages",
    [
        WRITTEN.replace('"image_url": {', '"image\\u005furl": {'),
        WRITTEN.replace('"image_url"', '"' + "".join([f"\\u{ord(letter):04x}" for letter in "image_url"]) + '"'),
        WRITTEN.replace('"image_url"', '"image\\u005Furl"'),
        WRITTEN.replace('"image_url": {', '"Image_URL": {'),
        WRITTEN.replace('{"url"', f'{{"url": "{URL}", "url"'),
        WRITTEN.replace('.png"}', f'.png", "url": "{URL}"}}'),
        WRITTEN.replace('.png"}', f'.png", "URL": "{URL}"}}'),
        json.dumps(said(image())).replace(";base64,", "\\u003bbase64,"),
        json.dumps(said({"type": "text", "text": "x", "url": URL}, REMOTE)),
        json.dumps(said({"type": "file", "file": {"file_data": URL}}, REMOTE)),
        json.dumps(said({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}})),
        json.dumps(said({"type": "image", "image": "https://example.com/a.png"})),
        json.dumps(said({"type": "im_age"})).replace("_", "\\u0061"),
        json.dumps([{"role": "user", "content": "hi", "images": [DATA]}]),
    ],
)
@pytest.mark.parametrize("long", [False, True])
def test_no_image_hides(messages: str, long: bool) -> None:
    if long:
        messages = messages.replace("[", '[{"role": "user", "content": "%s"}, ' % ("word " * 60_000), 1)
    found = content_of(Call(op="chat", model="m", body=Body({"messages": messages.encode()})))
    assert Image() in found.images
    assert found.most_images >= 1


def test_what_only_looks_like_an_image_is_none() -> None:
    text = json.dumps({"type": "image", "image_url": {"url": "x"}}) + " image \\u0061 \u00e9"
    messages = [{"role": "user", "name": "image", "content": text, "images": [], "image_url": None}, {"role": "user", "content": "image"}]
    raw = json.dumps(messages).replace("user", "\\u0075ser").encode()
    assert content_of(Call(op="chat", model="m", body=Body({"messages": raw}))) == Content(len(raw))


def test_low_detail_is_that_of_the_same_image() -> None:
    part = {"type": "text", "text": "x", "detail": "low", "url": "x"}
    assert content_of(call(messages=said(part, image()))).images == (Image(640, 480),)
    twice = json.dumps(said(image(detail="low"))).replace('{"url"', '{"detail": "high", "url"').encode()
    assert content_of(Call(op="chat", model="m", body=Body({"messages": twice}))).images == (Image(640, 480),)
