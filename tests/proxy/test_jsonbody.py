"""Which JSON we take as a request body, and what we say of the rest."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.body import Body
from spangate.call.errors import CallerFault
from spangate.proxy.error_pages import PAGES
from spangate.proxy.jsonbody import MAX_DEPTH, MAX_FIELDS, MAX_NAME, read_body


async def refused(raw: bytes) -> str:
    """What the caller reads of a body that is not taken."""
    with pytest.raises(CallerFault) as fault:
        await read_body(raw)
    assert fault.value.code == "invalid_request"
    assert fault.value.message.isprintable()
    return fault.value.message


async def taken(raw: bytes) -> Body:
    """The body, which goes out as it came."""
    body = await read_body(raw)
    assert b"".join(body.pieces()) == raw.removeprefix(b"\xef\xbb\xbf")
    return body


# What is taken


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b" {\t}\r\n",
        b'{"model":"m","messages":[]}',
        b'{"model": "m", "messages": []}',
        b'\n{ "model" :\t"m" , "messages"\r\n: [ { } ] }  ',
        b'{"a":1,"b":1,"A":1,"":1," a":1}',
        b'{"a":{"b":1,"c":{"b":1}},"b":[{"b":1},{"b":1}]}',
        b'{"a":"\\"b\\":1","b":"{}[],:"}',
        b'{"\\u0061":1,"b":2}',
        b'{"a\\"b":1,"a\\\\":2,"a\\n":3}',
        '{"é":1,"日本":[2],"content":"🙂\u2028"}'.encode(),
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1E400,"b":-0,"c":1.50}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"user":"\\ud83d","model":"m"}',
        b'{"user":"\\ude00\\ud83d"}',
        b'{"user":"\\ud83d\\ude00"}',
        b'{"messages":[{"content":"\\ud83d","tool_calls":[{"arguments":"{\\"a\\":\\"\\\\ud83d\\"}"}]}], "n" : 1E400, "s":'
        + b"9" * 5000
        + b"}",
        b'{"\\ud83d":1,"?":2}',
    ],
)
async def test_taken_and_passed_on_byte_for_byte(raw: bytes) -> None:
    body = await taken(raw)
    assert list(body.fields) == list(json.loads(raw, parse_int=str))


async def test_what_stands_around_is_not_part_of_a_field() -> None:
    body = await taken(b' { "a" : [ 1 ,2 ] , "b" : "x" } ')
    assert {name: bytes(part) for name, part in body.fields.items()} == {"a": b"[ 1 ,2 ]", "b": b'"x"'}


async def test_a_lone_surrogate_is_forwarded_as_the_escape_that_it_came_as() -> None:
    body = await taken(b'{"user":"\\ud83d", "model" : "m", "n":1.50}')
    assert body.get("user") == "\ud83d"
    assert b"".join(body.changed(model="other").pieces()) == b'{"user":"\\ud83d","model":"other","n":1.50}'


# What is not


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "The body is not JSON: expecting value at line 1, column 1."),
        (b'{"a":1', "The body is not JSON: expecting ',' delimiter at line 1, column 7."),
        (b'{"a":1}\n}', "The body is not JSON: extra data at line 2, column 1."),
        (b"{'a':1}", "The body is not JSON: expecting property name enclosed in double quotes at line 1, column 2."),
        (b'{"a":"\n"}', "The body is not JSON: invalid control character at line 1, column 7."),
        (b"[]", "The body must be a JSON object."),
        (b'"text"', "The body must be a JSON object."),
        (b"null", "The body must be a JSON object."),
        (b"5", "The body must be a JSON object."),
        (b'[{"a":1,"a":2}]', "The body must be a JSON object."),
        (b'{"temperature":NaN}', "The body is not JSON: NaN is not a JSON number."),
        (b'{"a":[{"b":-Infinity}]}', "The body is not JSON: -Infinity is not a JSON number."),
        (b'{"a":Infinity}', "The body is not JSON: Infinity is not a JSON number."),
        (b'{"a":"\xff"}', "The body is not UTF-8 (byte 7)."),
        (b'{"\xff":1}', "The body is not UTF-8 (byte 3)."),
        (b'{"a":"\xed\xa0\x80"}', "The body is not UTF-8 (byte 7)."),
        (b'{"a":"\xe6\x97', "The body is not UTF-8 (byte 7)."),
    ],
)
async def test_refused_with_a_reason(raw: bytes, said: str) -> None:
    assert await refused(raw) == said


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
async def test_another_encoding_is_refused(coding: str) -> None:
    await refused('{"model":"m"}'.encode(coding))


@pytest.mark.parametrize("at", [0, 16_378, 16_379, 16_380, 40_000])
async def test_a_byte_that_is_not_utf8_is_found_wherever_it_is(at: int) -> None:
    """Long bodies are looked over slice by slice; 16384 is where one ends."""
    text = "é".encode() * 40_000
    start = b'{"a":"' + b"x" * (at % 2)
    assert await refused(start + text[: at & ~1] + b"\xc3" + text + b'"}') == f"The body is not UTF-8 (byte {len(start) + (at & ~1) + 1})."
    await taken(start + text + b'"}')


@pytest.mark.parametrize("char", ["é", "日", "🙂"])
@pytest.mark.parametrize("shift", range(4))
async def test_a_character_may_lie_across_two_slices(char: str, shift: int) -> None:
    text = "x" * shift + char * 10_000
    assert (await taken(json.dumps({"a": text}, ensure_ascii=False).encode())).get("a") == text


# Names that come twice


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"cheap","model":"expensive"}',
        b'{"model":1,"model":1}',
        b'{"model" : 1 ,\n "model":2}',
        b'{"model":1,"\\u006dodel":2}',
        b'{"\\u006dodel":1,"model":2}',
        b'{"\\u006dodel":1,"\\u006Dodel":2}',
        b'{"a":1,"model":1,"b":2,"model":3,"c":4}',
        b'{"model":{"model":1},"model":2}',
        b'{"model":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"model":1}',
        b'{"model":1,"model":"          "}',
        b'{"model":"\\ud83d","model":2}',
        b'\xef\xbb\xbf{"model":1,"model":2}',
        # The second value is as long as what stands before it and holds the next name: lengths alone would not tell.
        b'{"model":1,"b":22,"model":{"x":1,"b":          1}}',
    ],
)
async def test_a_field_named_twice_is_refused(raw: bytes) -> None:
    with pytest.raises(CallerFault, match="names 'model' twice") as fault:
        await read_body(raw)
    assert fault.value.param == "model"


SPACE = st.text(" \t\r\n", max_size=3)


def spelled(name: str, escapes: list[bool]) -> str:
    """`name` as JSON, some of its characters as \\u escapes."""
    chars = [json.dumps(char)[1:-1] if not escape else f"\\u{ord(char):04x}" for char, escape in zip(name, escapes, strict=False)]
    return '"' + "".join(chars) + json.dumps(name[len(escapes) :])[1:]


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """A JSON object in any spelling, and its names in order; values may look like more of the same."""
    names = draw(st.lists(st.sampled_from(["a", "b", "model", "é", '"', "a b", ""]), max_size=4))
    value = st.sampled_from(["1", "22", '"          "', '{"a":1, "b":      1}', "[]", '"\\"b\\":1,"', '"\\ud83d"', '{"model": 1 }'])
    fields = []
    for name in names:
        said = spelled(name, draw(st.lists(st.booleans(), max_size=len(name)) if draw(st.booleans()) else st.just([])))
        fields.append(draw(SPACE) + said + draw(SPACE) + ":" + draw(SPACE) + draw(value) + draw(SPACE))
    inside = ",".join(fields) if fields else draw(SPACE)
    return (draw(SPACE) + "{" + inside + "}" + draw(SPACE)).encode(), names


@given(documents())
async def test_twice_is_found_in_any_spelling_and_once_never_is(document: tuple[bytes, list[str]]) -> None:
    raw, names = document
    if len(set(names)) < len(names):
        assert "twice" in await refused(raw)
    else:
        assert (await taken(raw)).parsed() == json.loads(raw)


# Depth


@pytest.mark.parametrize(
    "prefix", [b"", b'"user":"\\ud83d",', b'"\\u0062":1,', b'"c":"' + b"x" * 40_000 + b'",'], ids=["", "surrogate", "escape", "long"]
)
@pytest.mark.parametrize("opens", [b"[", b'{"x":'], ids=["arrays", "objects"])
async def test_the_limit_of_depth_is_exact(opens: bytes, prefix: bytes) -> None:
    def nested(depth: int) -> bytes:
        closes = b"]" if opens == b"[" else b"}"
        inner = depth - 1
        return b"{" + prefix + b'"a":' + opens * inner + b"1" + closes * inner + b"}"

    await taken(nested(MAX_DEPTH))
    assert MAX_DEPTH == 128
    for depth in (129, 130, 500, 1_500, 20_000):
        assert await refused(nested(depth)) == "The body is nested deeper than 128 levels."


@pytest.mark.parametrize("broken", [b"[" * 20_000, b'{"a":' * 20_000, b'{"a":' + b"[" * 20_000])
async def test_depth_without_an_end_is_refused(broken: bytes) -> None:
    assert await refused(broken) == "The body is nested deeper than 128 levels."


@given(st.text('[]{}"\\x', min_size=1, max_size=400), st.integers(0, 50))
async def test_brackets_inside_strings_are_text(text: str, before: int) -> None:
    raw = json.dumps({"x": "[" * before, "a": text * 90, "b": [[]]}).encode()
    assert (await taken(raw)).get("a") == text * 90


@pytest.mark.parametrize("shift", range(6))
async def test_an_escape_may_lie_across_two_slices(shift: int) -> None:
    text = "x" * shift + '\\"[' * 20_000 + '"' + "\\" * 20_001 + "[" * 200
    await taken(json.dumps({"a": text, "b": []}).encode())
    deep = json.dumps({"a": text, "b": 1}).encode().replace(b'"b": 1', b'"b": ' + b"[" * 128 + b"]" * 128)
    assert "deeper than 128" in await refused(deep)


async def test_many_brackets_side_by_side_are_not_deep() -> None:
    await taken(b'{"a":[' + b"[[]]," * 20_000 + b"{}]}")


# How many fields


def fields(count: int, value: str = "0") -> str:
    return ",".join(f'"f{number}":{value}' for number in range(count))


@pytest.mark.parametrize("value", ["0", '"a,b:{"', '[{"a":1,"b":2}]', '"' + ":" * 300 + '"', '"\\ud83d"'])
async def test_the_limit_of_fields_is_exact(value: str) -> None:
    assert len((await taken(f"{{{fields(MAX_FIELDS, value)}}}".encode())).fields) == MAX_FIELDS
    said = "The body has more than 4096 fields; that is the limit for those at its top level."
    assert await refused(f"{{{fields(MAX_FIELDS + 1, value)}}}".encode()) == said


def test_the_limits_are_in_the_page_of_their_error() -> None:
    assert f"more than {MAX_FIELDS} fields" in PAGES["invalid_request"].when
    assert f"deeper than {MAX_DEPTH} levels" in PAGES["invalid_request"].when


async def test_fields_below_the_top_are_the_providers_business() -> None:
    inside = f"{{{fields(3 * MAX_FIELDS)}}}"
    body = await taken(f'{{"a":{inside},"b":[{inside},{inside}],"c":"{":," * 3 * MAX_FIELDS}"}}'.encode())
    assert list(body.fields) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["n" * MAX_NAME, "\\n" * MAX_NAME, "\\u00e9" * MAX_NAME])
async def test_a_name_that_has_to_be_found_again_is_of_some_length_at_most(name: str) -> None:
    await taken(f'{{"{name}":1,"\\u0061":2}}'.encode())
    assert "longer than 512 characters" in await refused(f'{{"x{name}":1,"\\u0061":2}}'.encode())


# What the standard parser takes


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["\ud83d", "[{", "\\", '"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def strict_reading(raw: bytes) -> dict[str, Any] | None:
    """What `json.loads` makes of a body under our rules: UTF-8, an object, no NaN, no top-level name twice."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    last: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        last[:] = pairs
        return dict(pairs)

    try:
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=refuse, object_pairs_hook=keep)
    except ValueError:
        return None
    return value if isinstance(value, dict) and len(value) == len(last) else None


@given(
    JSON,
    st.booleans(),
    st.sampled_from([None, 1]),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(list(b'{}[]",:\\0u \n-eN\xff\xc3'))), max_size=2),
)
async def test_we_take_what_the_standard_parser_takes_under_our_rules(
    value: Any, ascii_only: bool, indent: int | None, slips: list[tuple[int, int]]
) -> None:
    raw = bytearray(json.dumps({"a": value, "b": [value]}, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "replace"))
    for at, byte in slips:
        raw[at % len(raw)] = byte
    expected = strict_reading(bytes(raw))
    if expected is None:
        await refused(bytes(raw))
    else:
        assert repr((await taken(bytes(raw))).parsed()) == repr(expected)


# Others get their turn


@pytest.mark.parametrize("text", ["prose ", 'code["x"] = {"\\n"}\n', "日本語"])
async def test_a_long_body_leaves_the_loop_to_others(text: str) -> None:
    raw = json.dumps({"messages": [{"content": text * 100}] * (1 << 20 >> 10)}, ensure_ascii=False).encode()
    reading = asyncio.create_task(read_body(raw))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.wait([reading], timeout=0)
    assert (await reading).get("messages")[0]["content"] == text * 100
    assert turns > len(raw) >> 15


@pytest.mark.parametrize("first", [b'"a":"\\ud83d"', b'"\\u0061":1', b'"a":1,"b":22'], ids=["surrogate", "escaped name", "numbers"])
@pytest.mark.parametrize("last", [b"}", b',"a":2}', b',"\\u0061":2}'], ids=["once", "twice", "twice, escaped"])
async def test_nothing_makes_a_long_body_hold_up_the_loop(first: bytes, last: bytes) -> None:
    """The standard parser would build all of these arrays before anybody else had a turn."""
    raw = b"{" + first + b',"x":[' + b"[]," * (1 << 20) + b"[]]" + last
    reading = asyncio.create_task(read_body(raw))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.wait([reading], timeout=0)
    assert turns > len(raw) >> 15
    if last == b"}":
        assert b"".join((await reading).changed(model="m").pieces()) == raw[:-1].replace(b'"\\u0061"', b'"a"') + b',"model":"m"}'
    else:
        with pytest.raises(CallerFault, match="names 'a' twice"):
            await reading


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (b'"]', "The body is not JSON: input data was truncated."),
        (b'", NaN]}', "The body is not JSON: invalid character (byte 1048586)."),
        (b'",' + b"[" * 20_000, "The body is nested deeper than 128 levels."),
    ],
)
async def test_a_long_body_is_refused_in_shorter_words(end: bytes, said: str) -> None:
    assert await refused(b'{"a":["' + b"x" * (1 << 20) + end) == said


async def test_a_short_body_is_read_at_once() -> None:
    with pytest.raises(StopIteration) as done:
        read_body(b'{"model":"m"}').send(None)
    assert done.value.value.get("model") == "m"


async def longest_step(raw: bytes) -> float:
    """Milliseconds for which the loop is held at most; the best of three, since others run here too."""
    best = float("inf")
    for _ in range(3):
        reading, longest, over = read_body(raw), 0.0, False
        while not over:
            began = time.thread_time()
            try:
                reading.send(None)
            except (StopIteration, CallerFault):
                over = True
            longest = max(longest, time.thread_time() - began)
        best = min(best, longest)
    return best * 1000


LARGE = 8 << 20


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"{" + b",".join(b'"%x":1' % number for number in range(LARGE // 11)) + b"}", id="fields"),
        pytest.param(b'{"a":1,' + b'"a":1,' * (LARGE // 6) + b'"a":1}', id="one field"),
        pytest.param(b'{"' + b"\\n" * (LARGE // 2) + b'":1}', id="a name of escapes"),
        pytest.param(b'{"a":[' + b'{"a":1},' * (LARGE // 8) + b"1}", id="objects, and no end"),
        pytest.param(b'{"a":[' + b'{"a":"\\ud800"},' * (LARGE // 15) + b"1]}", id="surrogates"),
    ],
)
async def test_no_body_holds_the_loop_much_longer_than_a_list_of_the_same_length(raw: bytes) -> None:
    """The pass over the whole is what remains; before it was bounded, fields took thirty times as long as it."""
    usual = await longest_step(b'{"a":[' + b"{}," * (LARGE // 3) + b"{}]}")
    assert await longest_step(raw) < 4 * usual
