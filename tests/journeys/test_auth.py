"""Keys, through the whole gateway: who may call, that nothing else decides it, and that no key is ever told."""

from __future__ import annotations

import ast
import signal
from pathlib import Path
from typing import Any

import pytest

from spangate.call.clock import Clock
from spangate.proxy import config

from case import CHAT, KEY, OTHER, PROVIDER_KEY, Pairs, Stumbling, case, key_hash, settings
from house.source import ROOT, dotted
from serving import serving
from upstream import Misbehaving, chat_answer, chat_completion, error, http, play

REFUSED = "This needs a valid API key: send it as 'Authorization: Bearer sg-…'."


# ---- which key is which caller


@pytest.mark.fault("KEY-05")
async def test_keys_that_share_a_beginning_are_different_keys(tmp_path: Path) -> None:
    stem = "sg-" + "a" * 40
    teams = {name: {"keys": [{"name": "ci", "hash": key_hash(stem + end)}]} for name, end in (("one", "1"), ("two", "2"))}
    async with case(tmp_path, key=stem + "1", teams=teams) as it:
        for key, team in ((stem + "1", "one"), (stem + "2", "two"), (stem + "1", "one")):
            assert (await it.ask(key=key, path="/v1/key", method="GET")).json()["team"] == team
        for wrong in (stem, stem + "3", stem + "11", stem + "1\xa0", stem[:20], stem.upper() + "1", f'"{stem}1"', stem + "1,"):
            assert (await it.ask(key=wrong)).status == 401
        spaced = await it.ask(headers=[("Authorization", f"Bearer  {stem}1 \t")], path="/v1/key", method="GET")
        assert spaced.json()["team"] == "one"  # white space around a value belongs to HTTP


@pytest.mark.fault("KEY-05")
@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", f"bearer {KEY}")],
        [("api-key", KEY)],
        [("x-api-key", KEY)],
        [("Authorization", "Basic dXNlcjpwYXNz"), ("x-api-key", KEY)],
    ],
)
async def test_a_key_is_taken_from_three_headers(tmp_path: Path, headers: Pairs) -> None:
    async with case(tmp_path) as it:
        answer = await it.ask(headers=headers, key="", path="/v1/key", method="GET")
        assert answer.json()["team"] == "search"


ADMIN_TOKEN = "a-token-for-nobody-but-the-admin"
ASKED = {"/v1/models": "GET", "/v1/key": "GET", CHAT: "POST", "/admin/sql": "POST", "/usage/sql": "POST"}


@pytest.mark.fault("KEY-06")
@pytest.mark.parametrize("host", ["localhost:4000/#@x", "a/v1/models?", "public.example", "127.0.0.1", "[::1]:80", "x@127.0.0.1"])
@pytest.mark.parametrize("path", ASKED)
async def test_the_host_header_decides_nothing(tmp_path: Path, host: str, path: str) -> None:
    method = ASKED[path]
    body = b'{"sql": "SELECT 1"}' if path.endswith("/sql") else None
    async with case(tmp_path, usage={"path": "usage.duckdb"}, server={"admin_token": ADMIN_TOKEN}) as it:
        headers = [("X-Forwarded-Host", "localhost"), ("X-Original-URL", "/healthz"), ("X-Rewrite-URL", "/healthz")]
        told = it.running.address.url.removeprefix("http://")
        # A team's key is nothing to /admin, and the admin's token nothing elsewhere.
        for key in ("sg-wrong", KEY if path.startswith("/admin") else ADMIN_TOKEN):
            data = it.request(body, path=path, method=method, headers=headers, key=key)
            answer = await it.raw(data.replace(f"Host: {told}".encode(), f"Host: {host}".encode()), rows=path == CHAT, method=method)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        if body is not None:
            good = it.request(body, path=path, key=ADMIN_TOKEN if path.startswith("/admin") else KEY)
            assert (await it.raw(good)).json()["rows"] == [[1]]


SIDEWAYS = ["/healthz/../v1/models", "//v1/models", "/v1//models", "/V1/models", "/v1/models/", "/%76%31/models", "/healthz;/v1/models"]
SIDEWAYS += ["/healthz/../admin/sql", "/usage/../admin/sql", "//admin/sql", "/admin//sql", "/Admin/sql", "/admin/sql/", "/%61dmin/sql"]
SIDEWAYS += ["/healthz/../usage/sql", "//usage/sql", "/USAGE/sql", "/usage/sql/", "/usage%2Fsql", "/usage/sql;/admin/sql"]


@pytest.mark.fault("KEY-06")
@pytest.mark.parametrize("path", SIDEWAYS)
async def test_only_the_path_as_it_stands_is_routed(tmp_path: Path, path: str) -> None:
    """Whoever shows the right key gets no further: there is nothing."""
    async with case(tmp_path, usage={"path": "usage.duckdb"}, server={"admin_token": ADMIN_TOKEN}) as it:
        for key in ("sg-wrong", KEY, ADMIN_TOKEN):
            for method in ("GET", "POST"):
                answer = await it.ask(b'{"sql": "SELECT 1"}', path=path, method=method, key=key)
                assert (answer.status, answer.error["code"]) == (404, "not_found")


# ---- no key


@pytest.mark.fault("KEY-08")
async def test_a_missing_key_of_any_kind_is_refused_alike(tmp_path: Path) -> None:
    expired = {"name": "old", "hash": key_hash("sg-expired"), "expires": "2020-01-01"}
    teams = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}, expired]}, "keyless": {}}
    async with case(tmp_path, teams=teams) as it:
        shown: list[Pairs] = [[], [("Authorization", "Bearer ")], [("Authorization", "Bearer")], [("Authorization", KEY)]]
        shown += [[("Authorization", f"Bearer {key}")] for key in ("None", "null", "undefined", "sg-", "sg-expired", "x" * 8000)]
        shown += [[("Authorization", f"Basic {KEY}")], [("api-key", "")], [("Authorization", "Bearer \x80\xff")], [("x-goog-api-key", KEY)]]
        told = set()
        for headers in shown:
            answer = await it.ask(headers=headers, key="")
            assert answer.status == 401, headers
            told.add(tuple(answer.error[name] for name in ("message", "type", "param", "code", "source")))
            assert answer.header("x-spangate-attempts") == "0"
        assert told == {(REFUSED, "authentication_error", None, "invalid_api_key", "gateway")}
        assert {seen.outcome for seen in it.running.kept.seen} == {"refused"}
        assert {seen.team for seen in it.running.kept.seen} == {""}
        assert not it.up.requests


@pytest.mark.fault("KEY-08")
async def test_without_teams_only_local_json_is_answered(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello")), key=None, teams={}) as it:
        assert (await it.ask()).status == 200
        assert (await it.ask(key="anything at all")).status == 200
        assert (await it.ask(path="/v1/models", method="GET")).status == 200
        port = it.running.address.port
        for host in (f"localhost:{port}", f"api.localhost:{port}", f"[::1]:{port}", "127.1.2.3"):
            assert (await ask_at(it, host)).status == 200
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", "localhost:x"):
            answer = await ask_at(it, host)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=application/json", "text/json", ""):
            assert (await it.ask(headers=[("Content-Type", kind)])).status == 401
        assert (await it.ask(headers=[("Content-Type", "Application/JSON ; charset=utf-8")])).status == 200


async def ask_at(it: Any, host: str) -> Any:
    told = it.running.address.url.removeprefix("http://")
    return await it.raw(it.request().replace(f"Host: {told}".encode(), f"Host: {host}".encode()), rows=1)


@pytest.mark.fault("KEY-08")
@pytest.mark.parametrize("value", ["", "sg-canary-in-the-wrong-place", "sha256:", None, "sha256:" + "0" * 63])
def test_an_empty_or_misplaced_key_is_a_mistake_of_the_file(tmp_path: Path, value: str | None) -> None:
    path = tmp_path / "spangate.yaml"
    path.write_text(settings("http://127.0.0.1:1/v1", teams={"search": {"keys": [{"name": "ci", "hash": value}]}}))
    with pytest.raises(config.ConfigMistakes) as told:
        config.load(path, environ={})
    assert "canary" not in str(told.value)


# ---- no key is told


@pytest.mark.fault("KEY-09")
async def test_a_key_is_told_nowhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    canary = "sk-live-CANARY123"
    script = [
        play(error(401, f"Incorrect API key provided: {PROVIDER_KEY}.", type="invalid_request_error", code="invalid_api_key")),
        play(error(403, f"{PROVIDER_KEY} may not", type="permission_error")),
        play(http(500, [("Content-Type", "text/html")], f"<p>{PROVIDER_KEY}</p>".encode())),
        play(http(502, [("Content-Type", "application/json")], f'{{"detail": "{PROVIDER_KEY}"}}'.encode())),
        play(error(400, f"Your key {PROVIDER_KEY} has a bad temperature", type="invalid_request_error")),
        play(error(429, f"Rate limit reached for {PROVIDER_KEY}", type="requests")),
        play(http(200, (), f'{{"error": {{"message": "{PROVIDER_KEY}"}}}}'.encode())),
    ]
    async with case(tmp_path, script) as it:
        for headers in ([("Authorization", f"Bearer {canary}")], [("x-api-key", canary)], [("Authorization", f"Bearer {KEY}, {canary}")]):
            assert (await it.ask(headers=headers, key="")).status in {400, 401}
        statuses = [(await it.ask()).status for _ in script]
        assert statuses == [502, 502, 502, 502, 400, 429, 502]
        told = [*it.log.lines, *map(repr, it.running.kept.seen), b"".join(it.heard).decode("latin-1")]
        assert not [line for line in told if canary in line]
    out, err = capfd.readouterr()
    assert "CANARY" not in out + err


@pytest.mark.fault("KEY-09")
async def test_the_program_tells_no_key(tmp_path: Path) -> None:
    refusing = play(error(401, f"Incorrect API key provided: {PROVIDER_KEY}."))
    async with Misbehaving(refusing) as up:
        with serving(tmp_path, up.base_url, "--log-level", "debug") as program:
            it = program.case(up)
            assert [(await it.ask(key=key)).status for key in (KEY, "sk-live-CANARY123")] == [502, 401]
            assert (await it.ask(path=f"{CHAT}?key={KEY}", key="")).status == 401
            assert (await it.ask({"model": "ok"})).status == 200
            program.process.send(signal.SIGTERM)
            ran, calls = await program.end()
        assert [call["status"] for call in calls] == [502, 401, 401, 200]
    assert not [told for told in (ran.out, ran.err, *program.process.heard, *written(tmp_path)) if "CANARY" in told]


def written(folder: Path) -> list[str]:
    """What the program has left in its folder."""
    return [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file() and path.name != "spangate.yaml"]


@pytest.mark.fault("KEY-09")
async def test_a_defect_inside_authentication_tells_no_key(tmp_path: Path) -> None:
    clock = Stumbling()
    teams = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY), "expires": "2999-01-01"}]}}
    async with case(tmp_path, clock=Clock(wall=clock.wall), teams=teams) as it:
        clock.stumbles_at = clock.asked + 2  # first the call's own beginning, then the key's end
        answer = await it.ask()
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert answer.error["message"] == "The gateway failed; its log knows why under this request_id."
        assert [line for line in it.log.unhandled if "the clock stands still" in line]
        it.log.unhandled.clear()


@pytest.mark.fault("KEY-11")
@pytest.mark.parametrize("name", ["api_key", "key", "api-key", "access_token", "Authorization"])
async def test_a_key_in_the_query_string_is_not_taken(tmp_path: Path, name: str) -> None:
    async with case(tmp_path) as it:
        for path, method in (("/v1/models", "GET"), (CHAT, "POST")):
            answer = await it.ask(path=f"{path}?{name}={KEY}", method=method, key="")
            assert answer.status == 401
        missing = await it.ask(path=f"/v1/nothing?{name}={KEY}", method="GET", key="")
        assert missing.status == 404


@pytest.mark.fault("KEY-11")
async def test_a_key_in_the_address_is_not_taken(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        target = f"http://{KEY}:{KEY}@{it.running.address.url.removeprefix('http://')}/v1/models"
        answer = await it.raw(it.request(path=target, method="GET", key=""), method="GET")
        assert answer.status == 401
        absolute = await it.raw(it.request(path=target.replace(f"{KEY}:{KEY}@", ""), method="GET"), method="GET")
        assert absolute.status == 200


# ---- the caller's and the provider's


@pytest.mark.fault("KEY-12")
async def test_the_callers_and_the_providers_credentials_never_meet(tmp_path: Path) -> None:
    sent = [("x-api-key", KEY), ("api-key", KEY), ("x-goog-api-key", "g-CANARY"), ("Cookie", "sid=CANARY")]
    sent += [
        ("OpenAI-Organization", "org-CANARY"),
        ("OpenAI-Project", "proj-CANARY"),
        ("x-amz-security-token", "CANARY"),
        ("Proxy-Authorization", "Basic CANARY"),
    ]
    back = [("Authorization", f"Bearer {PROVIDER_KEY}"), ("x-api-key", PROVIDER_KEY), ("x-echo", PROVIDER_KEY), ("Set-Cookie", "k=1")]
    async with case(tmp_path, play(http(200, back, chat_completion("Hello")))) as it:
        answer = await it.ask(headers=sent)
        assert answer.status == 200
        assert not {name for name, _ in answer.headers} & {"authorization", "x-api-key", "x-echo", "set-cookie"}
        request = it.up.requests[0]
        assert request.raw.count(b"CANARY") == 1
        assert request.header(b"authorization") == f"Bearer {PROVIDER_KEY}".encode()
        assert KEY.encode() not in request.raw


@pytest.mark.fault("KEY-12")
@pytest.mark.parametrize(("status", "told"), [(200, 502), (400, 400), (401, 502), (500, 502)])
async def test_a_provider_that_echoes_its_request_tells_no_key(tmp_path: Path, status: int, told: int) -> None:
    async with case(tmp_path, lambda request: play(http(status, (), b'{"error": {"message": %b}}' % quoted(request.raw)))) as it:
        answer = await it.ask()
        assert answer.status == told
        assert PROVIDER_KEY.encode() not in answer.body


def quoted(raw: bytes) -> bytes:
    return b'"' + raw.replace(b"\\", b"").replace(b'"', b"'").replace(b"\r\n", b" ") + b'"'


# ---- constant time, and who pays


@pytest.mark.fault("KEY-15")
def test_keys_are_found_by_digest_and_compared_in_constant_time() -> None:
    tree = ast.parse((ROOT / "proxy/callers.py").read_text("utf-8"))
    assert "hmac.compare_digest" in {dotted(each) for each in ast.walk(tree) if isinstance(each, ast.Call)}
    compared = [
        ast.unparse(each)
        for each in ast.walk(tree)
        if isinstance(each, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in each.ops)
    ]
    assert [told for told in compared if "digest" in told or "hash" in told or told.startswith("key ")] == []


@pytest.mark.fault("KEY-17")
async def test_nothing_that_a_client_says_changes_who_pays(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        headers = [("x-team-id", "other"), ("x-spangate-team", "other"), ("x-user-role", "admin"), ("baggage", "team=other")]
        headers += [("x-spangate-tags", "team=other,role=admin"), ("x-spangate-user", "root"), ("x-spangate-organisation", "x")]
        body = {"metadata": {"team": "other", "key": OTHER[:12]}, "user": "admin", "team": "other", "organisation": "x"}
        assert (await it.ask(body, headers=headers)).status == 200
        (seen,) = await it.running.kept.count(1)
        assert (seen.organisation, seen.team, seen.key) == ("default", "search", "ci")
        assert (seen.user, seen.tags) == ("root", {"team": "other", "role": "admin"})  # labels, and no more
