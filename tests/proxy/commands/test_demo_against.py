"""`spangate demo --against`: calls through a gateway that runs, and what is said where none does."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from spangate.proxy.commands.demo_against import base_of, origin_of
from spangate.proxy.commands.failure import Failure

from case import KEY, settings
from gateway import gateway
from program import Ran, left_in, spangate
from upstream import Misbehaving, Script, chat_answer, error, http, play, refusing_port, wants_stream


async def demo(folder: Path, url: str, *arguments: str, **environ: str) -> Ran:
    ran = await asyncio.to_thread(spangate, "demo", "--against", url, *arguments, folder=folder, **environ)
    assert KEY not in ran.out + ran.err
    return ran


def answering() -> Script:
    return lambda request: play(chat_answer("A gateway is a door.", stream=wants_stream(request)))


async def test_it_makes_calls_and_says_where_to_look(tmp_path: Path) -> None:
    (nobody := tmp_path / "nobody").mkdir()
    async with Misbehaving(answering()) as up, gateway(settings(up.base_url), tmp_path) as it:
        ran = await demo(nobody, it.url, "--key", KEY)
        seen = await it.kept.count(4)
    assert (ran.code, ran.err) == (0, "")
    assert [(call.model, call.stream, call.outcome) for call in seen] == [
        ("m", False, "completed"),
        ("m", True, "completed"),
        ("ok", False, "completed"),
        ("ok", True, "completed"),
    ]
    assert ran.out.count("A gateway is a door.") == 2
    assert re.findall(r"x-spangate-trace-id +([0-9a-f]{32})", ran.out) == [call.trace_hex for call in seen]
    assert re.findall(r"status +200 in \d+ms, 7\+2 tokens", ran.out) != []
    assert f"spangate explain {seen[-1].id}\n" in ran.out
    assert f"curl {it.address.url}/metrics\n" in ran.out
    assert left_in(nobody) == []


async def test_the_models_that_are_named_are_asked_with_the_key_of_the_environment(tmp_path: Path) -> None:
    async with Misbehaving(answering()) as up, gateway(settings(up.base_url), tmp_path) as it:
        ran = await demo(tmp_path, it.address.url, "--model", "ok", SPANGATE_KEY=KEY)
        assert [call.model for call in await it.kept.count(2)] == ["ok", "ok"]
    assert ran.code == 0


async def test_calls_that_fail_are_told_and_the_others_go_on(tmp_path: Path) -> None:
    async with Misbehaving(play(error(503, "overloaded"))) as up, gateway(settings(up.base_url), tmp_path) as it:
        ran = await demo(tmp_path, it.url, "--key", KEY)
        await it.kept.count(4)
    assert ran.code == 0
    assert ran.out.count("status               502 in ") == 2
    assert "error  The provider answered with status 503." in ran.out


async def test_where_no_call_is_answered_it_failed(tmp_path: Path) -> None:
    async with Misbehaving(play(error(503, "overloaded"))) as up, gateway(settings(up.base_url), tmp_path) as it:
        ran = await demo(tmp_path, it.url, "--key", KEY, "--model", "m")
        await it.kept.count(2)
    assert (ran.code, ran.err) == (1, "spangate: no call was answered: The provider answered with status 503.\n")


@pytest.mark.parametrize(("key", "which"), [(("--key", "sg-wrong"), "this key"), ((), "calls without a key")])
async def test_a_key_that_is_refused(key: tuple[str, ...], which: str, tmp_path: Path) -> None:
    async with Misbehaving() as up, gateway(settings(up.base_url), tmp_path) as it:
        ran = await demo(tmp_path, it.url, *key)
        base = it.address.url
    told = f"spangate: the gateway at {base} refuses {which} (401): say --key KEY or set SPANGATE_KEY; `spangate keys new TEAM` makes one\n"
    assert (ran.code, ran.out, ran.err) == (1, "", told)


async def test_nobody_is_there(tmp_path: Path) -> None:
    ran = await demo(tmp_path, f"127.0.0.1:{refusing_port()}")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert "no gateway answers at http://127.0.0.1:" in ran.err
    assert "start one with `spangate serve`" in ran.err


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (http(200, body=json.dumps({"object": "list", "data": []}).encode()), "lists no model for calls without a key"),
        (http(200, [("Content-Type", "text/html")], b"<html>"), "answers with no list of models: is that a gateway?"),
        (http(200, body=b'{"data": [1]}'), "answers with no list of models: is that a gateway?"),
        (http(404), "answers with status 404: is that a gateway?"),
        (b"SSH-2.0-OpenSSH\r\n", "no gateway answers at"),
    ],
)
async def test_something_else_is_there(answer: bytes, told: str, tmp_path: Path) -> None:
    async with Misbehaving(play(answer, end="fin")) as up:
        ran = await demo(tmp_path, up.base_url)
    assert (ran.code, ran.out, len(ran.err.splitlines()), told in ran.err) == (1, "", 1, True), ran.err


async def test_models_that_do_not_chat_are_passed_over(tmp_path: Path) -> None:
    names = ["text-embedding-3-small", "whisper-1", "chatty", "dall-e-3"]
    listed = http(200, body=json.dumps({"data": [{"id": name} for name in names]}).encode())

    async with Misbehaving(lambda request: play(listed) if request.method == "GET" else answering()(request)) as up:
        ran = await demo(tmp_path, up.base_url)
        assert {request.json()["model"] for request in up.requests if request.method == "POST"} == {"chatty"}
    assert ran.code == 0


def test_an_address_with_and_without_v1() -> None:
    for url in ("http://127.0.0.1:8484", "http://127.0.0.1:8484/", "127.0.0.1:8484/v1", "http://127.0.0.1:8484/v1/"):
        assert base_of(origin_of(url)) == "http://127.0.0.1:8484"
    assert base_of(origin_of("https://gateway.example/llm/v1")) == "https://gateway.example/llm"


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://user:secret@x", "http://x/?key=secret"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(Failure, match="must be the address of a gateway") as failed:
        origin_of(url)
    assert failed.value.code == 2
