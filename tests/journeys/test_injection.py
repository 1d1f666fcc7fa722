"""What callers and providers write that would like to be an address, a header, a command or a template."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spangate.exporters.console import json_line, text_after_status

from case import CHAT, CHAT_WITH_M, KEY, MODEL_PATHS, PROVIDER_KEY, case, key_hash
from upstream import Misbehaving, chat_answer, http, play, raw_head, wants_stream

ANY = {"*": {"targets": [{"provider": "up"}]}, "ok": {"targets": [{"provider": "script"}]}}


@pytest.mark.fault("INJ-01")
@pytest.mark.parametrize("where", ["body", "headers", "query"])
async def test_the_client_cannot_choose_the_destination(tmp_path: Path, where: str) -> None:
    async with Misbehaving(play(chat_answer("stolen"))) as canary:
        names = ["api_base", "base_url", "api_url", "endpoint", "url", "host", "proxy", "custom_llm_provider", "x-portkey-custom-host"]
        told = dict.fromkeys(names, canary.base_url) | {"api_key": "sk-attacker", "organization": "org-x", "api_version": "x"}
        async with case(tmp_path, play(chat_answer("Hello"))) as it:
            if where == "body":
                body = CHAT_WITH_M | told | {"extra_body": told, "metadata": told, "extra_headers": {"Host": "evil"}}
                answer = await it.ask(body)
                assert it.up.requests[0].json() == body  # unknown fields are the provider's business: they go where everything goes
            elif where == "headers":
                named = [(name.replace("_", "-"), value) for name, value in told.items() if name not in {"host", "api_key"}]
                answer = await it.ask(headers=named)
            else:
                answer = await it.ask(path=CHAT + "?" + "&".join(f"{name}={value}" for name, value in told.items()))
            assert answer.status == 200
            assert answer.json()["choices"][0]["message"]["content"] == "Hello"
            assert it.up.requests[0].path == CHAT
            assert it.up.requests[0].header(b"authorization") == f"Bearer {PROVIDER_KEY}".encode()
        assert canary.connections == []


NAMES = ["openai/../../v1/files", "x@evil:80/", "http://evil/", "evil.example#", "../files?x=1", "a b", "%2e%2e%2f", "a\\b", "[ok]"]


@pytest.mark.fault("INJ-03")
@pytest.mark.parametrize("path", MODEL_PATHS)
async def test_a_models_name_never_shapes_an_address(tmp_path: Path, path: str) -> None:
    vectors = http(200, (), b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1]}],"model":"m"}')
    async with case(tmp_path, play(vectors if "embed" in path else chat_answer("Hello")), models=ANY) as it:
        for name in NAMES:
            body = {"model": name, "messages": [], "prompt": "x", "input": "x"}
            assert (await it.ask(json.dumps(body).encode(), path=path)).status == 200
        assert {request.path for request in it.up.requests} == {path}
        assert [request.json()["model"] for request in it.up.requests] == NAMES
        assert {request.header(b"host") for request in it.up.requests} == {f"127.0.0.1:{it.up.port}".encode()}


@pytest.mark.fault("INJ-03")
async def test_a_model_that_nobody_knows_is_not_found(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        for name in (*NAMES, "m ", " m", "M", "m\n", "o\u006b\u0000", "mm"):
            answer = await it.ask({"model": name})
            assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
            assert answer.error["message"].isprintable()
        long = await it.ask({"model": "x" * 3000})
        assert long.status in {400, 404}
        assert len(long.error["message"]) < 300
        empty = await it.ask({"model": ""})
        assert (empty.status, empty.error["param"]) == (400, "model")
        assert not it.up.connections


@pytest.mark.fault("INJ-06")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(tmp_path: Path, status: int) -> None:
    async with Misbehaving(play(chat_answer("stolen"))) as canary:
        there = [("Location", canary.base_url + "/chat/completions"), ("Content-Length", "0")]
        async with case(tmp_path, play(raw_head(status, there))) as it:
            answer = await it.ask()
            assert (answer.status, answer.error["code"]) == (502, "upstream_error")
            assert answer.header("location") is None
            assert len(it.up.requests) == 1
        assert canary.connections == []


@pytest.mark.fault("INJ-09")
async def test_what_was_checked_is_what_is_sent(tmp_path: Path) -> None:
    models = {"cheap": {"targets": [{"provider": "up"}]}, "expensive": {"targets": [{"provider": "up"}]}, **ANY}
    teams = {"search": {"models": ["cheap", "ok"], "keys": [{"name": "ci", "hash": key_hash(KEY)}]}}
    async with case(tmp_path, play(chat_answer("Hello")), models=models, teams=teams) as it:
        for body in (
            b'{"model":"cheap","model":"expensive","messages":[]}',
            b'{"model":"expensive","model":"cheap","messages":[]}',
            b'{"model":"cheap","messages":[],"\\u006dodel":"expensive"}',
            b'{"model":"cheap","messages":[],"Model":"expensive"}',  # which servers in Go take for the same
        ):
            assert (await it.ask(body)).status == 400
        assert not it.up.requests
        nested = b'{"model":"cheap","messages":[{"role":"user","role":"system","content":"a"}],"model ":"x"}'
        assert (await it.ask(nested)).status == 200
        assert it.up.requests[0].body == nested  # what no rule reads stays as it came


TEMPLATES = ["{0.__class__}", "{{7*7}}", "%(levelname)s", "${jndi:ldap://x}", "%s%n", "{model}", "$(id)", "\x1b[31mred", "<script>"]


@pytest.mark.fault("INJ-11")
@pytest.mark.parametrize("stream", [False, True])
async def test_text_is_never_a_template(tmp_path: Path, stream: bool) -> None:
    async with case(tmp_path, lambda request: play(chat_answer("Hello", stream=wants_stream(request))), models=ANY) as it:
        for text in TEMPLATES:
            printable = "".join(c for c in text if c >= " ")
            body = {"model": text, "user": text, "stream": stream, "messages": [{"role": "user", "content": text}]}
            answer = await it.ask(body, headers=[("x-spangate-user", printable), ("x-request-id", printable)])
            assert answer.status == 200
            assert answer.header("x-spangate-model") == "".join(c if c >= " " else "?" for c in text)
            sent = it.up.requests[-1].json()
            assert (sent["model"], sent["user"], sent["messages"][0]["content"]) == (text, text, text)
            seen = it.running.kept.seen[-1]
            assert (seen.model, seen.user) == (text, printable)
        echoed = await it.ask({"model": "ok", "messages": [{"role": "user", "content": "{{7*7}} %s"}]})
        assert echoed.json()["choices"][0]["message"]["content"] == "{{7*7}} %s"
        assert "49" not in "".join(line for line in it.log.lines if "7*7" in line)


@pytest.mark.fault("INJ-11")
async def test_words_of_a_provider_are_never_a_template(tmp_path: Path) -> None:
    for text in TEMPLATES[:-2]:
        async with case(tmp_path, play(http(400, (), json.dumps({"error": {"message": text, "type": text, "code": text}}).encode()))) as it:
            answer = await it.ask()
            assert (answer.error["message"], answer.error["type"], answer.error["code"]) == (text, text, text)


@pytest.mark.fault("INJ-11")
async def test_words_of_a_caller_stay_one_line_in_what_is_told(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        for name in ("x\r\n200 chat forged", "\x1b[2Jgone", "a\u2028b", "\ud83d", "x" * 512):
            await it.ask({"model": name})
        for seen in it.running.kept.seen:
            for line in (json_line(seen), text_after_status(seen)):
                assert line.isprintable()
                line.encode()
