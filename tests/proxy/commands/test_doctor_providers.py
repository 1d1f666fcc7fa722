"""Whether a provider answers with its key: against servers that answer well, badly, late and not at all."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from spangate.proxy.commands.doctor_findings import Finding
from spangate.proxy.commands.doctor_providers import Looked, known, look
from spangate.proxy.config import Config, Kinds, parse
from spangate.proxy.session_upstream import ProxyRules, upstream_for

from upstream import Misbehaving, Script, error, http, play, refusing_port, self_signed

KINDS = Kinds()
KEY = "sk-CANARY-provider-0123456789"
MODELS = json.dumps({"object": "list", "data": [{"id": "gpt-5-mini"}, {"id": "qwen3:latest"}]}).encode()


def configured(base_url: str, *, models: Mapping[str, str | None] | None = None, key: str | None = KEY, environ: bool = False) -> Config:
    provider: dict[str, Any] = {"kind": "openai", "base_url": base_url} | ({"api_key": "${A_KEY}" if environ else key} if key else {})
    names = {"fast": "gpt-5-mini"} if models is None else models
    targets = {name: {"targets": [{"provider": "up"} | ({"model": model} if model else {})]} for name, model in names.items()}
    text = json.dumps({"providers": {"up": provider}, "models": targets})
    return parse(text.encode(), "spangate.yaml", environ={"A_KEY": key or ""}, kinds=KINDS)


async def looked(config: Config, *, patience: float = 5.0, **environ: str) -> Looked:
    sender = upstream_for(environ)
    try:
        return await look("up", config, sender, ProxyRules.parse(environ), patience)
    finally:
        await sender.aclose()


@asynccontextmanager
async def found(script: Script, **options: Any) -> AsyncIterator[tuple[Finding, Misbehaving]]:
    patience = options.pop("patience", 5.0)
    key = options.pop("key", KEY)
    async with Misbehaving(script, **options) as up:
        [finding] = (await looked(configured(up.base_url, key=key), patience=patience)).findings
        assert KEY not in finding.words
        yield finding, up


async def test_it_answers_with_its_key() -> None:
    async with found(play(http(200, body=MODELS))) as (finding, up):
        request = await up.request(0)
        assert (request.method, request.path, request.header(b"authorization")) == ("GET", "/v1/models", f"Bearer {KEY}".encode())
        assert finding.level == "ok"
        assert finding.told.startswith(f"127.0.0.1:{up.port} answers with its key: 2 models in ")


async def test_its_list_and_its_clock_are_handed_on() -> None:
    now = time.time()
    async with Misbehaving(play(http(200, [("Date", formatdate(now + 3600, usegmt=True))], MODELS))) as up:
        seen = await looked(configured(up.base_url))
    assert seen.models == ("gpt-5-mini", "qwen3:latest")
    assert [(each.host, round(each.ahead / 60)) for each in seen.readings] == [("127.0.0.1", 60)]


@pytest.mark.parametrize(
    ("answer", "level", "told", "mend"),
    [
        (error(401, f"Incorrect API key {KEY}"), "problem", "refuses its api_key (401)", "put one there"),
        (error(403), "problem", "refuses its api_key (403)", "put one there"),
        (error(404), "warning", "has no list of models (404)", "base_url"),
        (error(429), "warning", "used up", "account"),
        (error(503), "problem", "answers with status 503", "try again"),
        (http(301, [("Location", "https://else.example")]), "problem", "sends elsewhere (301)", "base_url"),
        (http(200, [("Content-Type", "text/html; charset=utf-8")], b"<html>"), "problem", "(text/html)", "/v1"),
        (http(200, body=b'{"object": "list", "data": []}'), "warning", "has no model", "pull"),
        (http(200, body=b"[1, 2"), "problem", "not with a list", "/v1"),
        (http(200, body=b'{"data": "none"}'), "problem", "not with a list", "/v1"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "problem", "can't be used", "base_url"),
    ],
)
async def test_what_it_answers_says_how_to_mend_it(answer: bytes, level: str, told: str, mend: str) -> None:
    async with found(play(answer, end="fin")) as (finding, _):
        assert (finding.level, told in finding.told, mend in finding.mend) == (level, True, True), finding


async def test_a_key_of_the_environment_is_told_by_its_name() -> None:
    async with Misbehaving(play(error(401))) as up:
        [finding] = (await looked(configured(up.base_url, environ=True))).findings
    assert "refuses the key of ${A_KEY} (401)" in finding.told


async def test_a_key_that_can_be_no_header() -> None:
    [finding] = (await looked(configured("http://127.0.0.1:1/v1", key="sk-CANARY\n0123"))).findings
    assert finding.words == "it can't be asked: a header holds a line break or a NUL: look at its api_key"


async def test_one_without_a_key_that_wants_one() -> None:
    async with found(play(error(401)), key=None) as (finding, _):
        assert finding.words.endswith("wants a key (401): set its api_key")


@pytest.mark.parametrize("script", [play(end="hold"), play(http(200, [("Content-Length", "100")], b"{"), end="hold")])
async def test_one_that_stalls_costs_the_patience_and_no_more(script: Script) -> None:
    began = asyncio.get_running_loop().time()
    async with found(script, patience=0.3) as (finding, _):
        assert asyncio.get_running_loop().time() - began < 2
        assert (finding.level, "gives no answer within 0.3 s" in finding.told) == ("problem", True)


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_one_that_closes(end: Any) -> None:
    async with found(play(end=end)) as (finding, _):
        assert (finding.level, finding.told.startswith("127.0.0.1:")) == ("problem", True)
    async with found(play(http(200, [("Content-Length", "100")], b"{"), end=end)) as (finding, _):
        assert finding.level == "problem"


async def test_slow_is_a_warning() -> None:
    async with found(play((http(200, body=MODELS), 2.1))) as (finding, _):
        assert (finding.level, finding.told.endswith("which is slow")) == ("warning", True)


async def test_nobody_listens() -> None:
    [finding] = (await looked(configured(f"http://127.0.0.1:{refusing_port()}/v1"))).findings
    assert finding.words.endswith("can't be used: connection refused: start it, or correct base_url")


async def test_a_certificate_that_nobody_vouches_for() -> None:
    async with found(play(http(200, body=MODELS)), tls=self_signed().server) as (finding, _):
        assert "certificate is not trusted" in finding.told
        assert "SSL_CERT_FILE" in finding.mend


async def test_tls_with_one_that_speaks_none() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        [finding] = (await looked(configured(f"https://127.0.0.1:{port}/v1"))).findings
    assert (finding.level, "TLS" in finding.words) == ("problem", True)


async def test_a_dead_proxy_is_named() -> None:
    proxy = f"http://user:s3cret-word@127.0.0.1:{refusing_port()}"
    [finding] = (await looked(configured("http://api.example/v1"), HTTP_PROXY=proxy)).findings
    assert "through the proxy of the environment" in finding.told
    assert "HTTP_PROXY" in finding.mend
    assert "s3cret" not in finding.words


async def test_a_script_asks_nobody() -> None:
    text = b"{providers: {up: {kind: scripted}}, models: {fast: {targets: [{provider: up}]}}}"
    seen = await looked(parse(text, "spangate.yaml", environ={}, kinds=KINDS))
    assert [each.words for each in seen.findings] == ["asks nobody: it is scripted"]


def test_models_that_are_listed_or_cannot_be_told(tmp_path: Path) -> None:
    config = configured("http://127.0.0.1:1/v1", models={"fast": "gpt-5-mini", "qwen3": None, "any-*": None})
    [finding] = known(config, {"up": ("gpt-5-mini", "qwen3:latest")})
    assert (finding.level, finding.told) == ("ok", "2 known to their providers")
    [finding] = known(config, {})
    assert finding.level == "off"


def test_a_slip_in_a_models_name_is_told_with_what_was_meant() -> None:
    [finding] = known(configured("http://127.0.0.1:1/v1", models={"fast": "gpt-5-mimi"}), {"up": ("gpt-5-mini",)})
    assert (finding.check, finding.level) == ("model fast", "warning")
    assert finding.told == 'up doesn\'t list "gpt-5-mimi"; did you mean "gpt-5-mini"?'


def test_names_that_are_passed_on() -> None:
    [finding] = known(configured("http://127.0.0.1:1/v1", models={"*": None}), {"up": ("gpt-5-mini",)})
    assert finding.words == "names are passed on as they come"
