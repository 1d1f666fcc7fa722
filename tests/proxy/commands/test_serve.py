"""The gateway in a terminal: what it says first, whom it refuses to begin for, how it ends."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from openai import APIStatusError, OpenAI

from program import PATIENCE, PROGRAM, Process, environment, left_in, running, spangate

YAML = """\
providers:
  script:
    kind: scripted
    script:
      - {when: {contains: hang}, answer: {text: one two three}, fault: {stall_after: 1}}
models: {fast: {targets: [{provider: script}]}}
"""
EXPIRED = f"{{name: ci, hash: 'sha256:{'0' * 64}', expires: 2020-01-01}}"


def address(process: Process) -> str:
    """What a client's base_url is, once the gateway listens."""
    listens = process.until("listens on")
    process.until("export OPENAI_BASE_URL=")
    return listens.split()[-1]


def write(folder: Path, more: str = "") -> None:
    (folder / "spangate.yaml").write_text(YAML + more, encoding="utf-8")


def ask(url: str, key: str = "any") -> str | None:
    with OpenAI(base_url=url, api_key=key, max_retries=0) as client:
        answer = client.chat.completions.create(model="fast", messages=[{"role": "user", "content": "Hello there"}])
        return answer.choices[0].message.content


def test_a_call_goes_through_and_sigterm_ends_well(tmp_path: Path) -> None:
    write(tmp_path)
    with running("serve", "--port", "0", folder=tmp_path) as gateway:
        url = address(gateway)
        assert ask(url) == "Hello there"
        line = json.loads(gateway.until("req_", stdout=True))
        gateway.send(signal.SIGTERM)
        ended = gateway.end()
    assert (line["status"], line["outcome"], line["model"], line["input_tokens"]) == (200, "completed", "fast", 2)
    assert (ended.code, ended.out, ended.err) == (0, "", "stopped; nothing lost\n")
    assert left_in(tmp_path) == ["spangate.duckdb", "spangate.duckdb.spool", "spangate.yaml"]
    assert "".join(gateway.heard[:7]) == (
        f"spangate 0.1.0 listens on {url}\n"
        "  callers  open to programs on this machine, with any key or none\n"
        "  calls    one line each on stdout\n"
        "  traces   off (set OTEL_EXPORTER_OTLP_ENDPOINT, or telemetry.otlp.endpoint)\n"
        "  usage    spangate.duckdb\n"
        "  file     spangate.yaml, a change is taken within 2 s\n"
        f"export OPENAI_BASE_URL={url}\n"
    )


def test_what_is_kept_is_for_its_user_alone(tmp_path: Path) -> None:
    write(tmp_path)
    with running("serve", "--port", "0", folder=tmp_path) as gateway:
        ask(address(gateway))
        log = tmp_path / "spangate.duckdb.wal"
        until = time.monotonic() + 20
        while not log.exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        kept = list(tmp_path.glob("spangate.duckdb*"))
        assert {path.stat().st_mode & 0o077 for path in kept} == {0}
        gateway.send(signal.SIGTERM)
        assert gateway.end().code == 0


def test_a_configuration_from_a_pipe_is_read_once(tmp_path: Path) -> None:
    command = [*PROGRAM, "serve", "--port", "0", "-c", "/dev/stdin"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path), encoding="utf-8", bufsize=1, **pipes) as popen:  # type: ignore[call-overload]
        popen.stdin.write(YAML)
        popen.stdin.close()
        popen.stdin = None
        gateway = Process(popen)
        assert ask(address(gateway)) == "Hello there"
        gateway.send(signal.SIGHUP)
        gateway.until("is in use")
        gateway.send(signal.SIGTERM)
        ended = gateway.end()
    assert (ended.code, ended.err) == (0, "stopped; nothing lost\n")
    assert "  file     /dev/stdin, a pipe that was read once\n" in gateway.heard
    assert [line for line in gateway.heard if "ERROR" in line or "WARNING" in line] == []
    assert left_in(tmp_path) == ["spangate.duckdb", "spangate.duckdb.spool"]


def test_one_interrupt_drains_and_a_second_ends_at_once(tmp_path: Path) -> None:
    write(tmp_path)
    with running("serve", "--port", "0", folder=tmp_path) as gateway:
        url = address(gateway)
        with (
            OpenAI(base_url=url, api_key="any", max_retries=0) as client,
            client.chat.completions.create(model="fast", messages=[{"role": "user", "content": "hang"}], stream=True) as stream,
        ):
            assert next(iter(stream)).choices
            gateway.send(signal.SIGINT)
            gateway.until("stopping: calls still running: 1, for at most 30 s; Ctrl-C ends them at once")
            while ready(url):
                pass
            gateway.send(signal.SIGINT)
            assert gateway.end().code == 130


def ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url.replace("/v1", "/readyz"), timeout=5):
            return True
    except urllib.error.HTTPError:
        return False


def test_teams_need_their_keys(tmp_path: Path) -> None:
    write(tmp_path, "teams: {search: {}, empty: {}}\n")
    key = re.findall("OPENAI_API_KEY=(.*)", spangate("keys", "new", "search", folder=tmp_path).out)[0]
    with running("serve", folder=tmp_path, SPANGATE_PORT="0") as gateway:
        url = address(gateway)
        assert ask(url, key) == "Hello there"
        with pytest.raises(APIStatusError, match="valid API key"):
            ask(url)
        gateway.send(signal.SIGTERM)
        assert gateway.end().code == 0
    said = "".join(gateway.heard)
    assert "  callers  1 key of 1 team\n" in said
    assert "warning: teams.empty: has no key, so that nobody can call as it: spangate keys new empty" in said
    assert key not in said


def test_a_change_while_it_runs_is_told_by_its_place(tmp_path: Path) -> None:
    write(tmp_path)
    with running("serve", "--port", "0", folder=tmp_path) as gateway:
        url = address(gateway)
        write(tmp_path, "teams: {search: {}}\n")
        assert re.match(r"\S+ \S+ INFO configuration: teams\.search: added\n", gateway.until("configuration: "))
        gateway.until("is in use")
        with pytest.raises(APIStatusError, match="valid API key"):
            ask(url)
        gateway.send(signal.SIGTERM)
        assert gateway.end().code == 0


def test_a_mistake_while_it_runs_is_told_and_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    with running("serve", "--port", "0", folder=tmp_path) as gateway:
        url = address(gateway)
        write(tmp_path, "polices: {}\n")
        told = gateway.until("polices")
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ERROR kept the running configuration: spangate.yaml:7:", told)
        assert 'did you mean "policies"?' in told
        assert ask(url) == "Hello there"
        gateway.send(signal.SIGTERM)
        assert gateway.end().code == 0


@pytest.mark.fault("KEY-08")
@pytest.mark.parametrize(
    ("more", "arguments", "told"),
    [
        ("teams: {search: {}}\n", [], "spangate: no team has a key, so nobody could call: spangate keys new search\n"),
        (f"teams: {{search: {{keys: [{EXPIRED}]}}}}\n", [], "spangate: every key has expired, so nobody could call: spangate keys new"),
        ("", ["--host", "0.0.0.0"], "spangate: 0.0.0.0 is reachable from other machines and there is no team"),
        ("", ["--host", "a..b"], "spangate: --host: must be an IP address or a host name\n"),
        ("", ["--port", "65536"], "spangate: --port: must be a port, 0 to 65535"),
        ("polices: {}\n", [], "spangate.yaml:7:"),
        ("teams: {search: {keys: [{name: ci, hash: ''}]}}\n", [], "spangate.yaml:7:"),
        ("", ["-c", "other.yaml"], "other.yaml: there is no such file: `spangate init` writes one\n"),
    ],
)
def test_it_does_not_begin_for(more: str, arguments: list[str], told: str, tmp_path: Path) -> None:
    write(tmp_path, more)
    ran = spangate("serve", *arguments, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(told)
    assert len(ran.err.splitlines()) == 1


def test_without_a_file_and_without_a_key_it_says_what_to_do(tmp_path: Path) -> None:
    ran = spangate("serve", folder=tmp_path)
    told = "there is neither a spangate.yaml here nor OPENAI_API_KEY: `spangate init` writes the file, `spangate demo` needs neither"
    assert (ran.code, ran.out, ran.err) == (2, "", f"spangate: {told}\n")


def test_without_a_file_a_key_is_enough(tmp_path: Path) -> None:
    with running("serve", "--port", "0", folder=tmp_path, OPENAI_API_KEY="sk-of-nobody-else") as gateway:
        address(gateway)
        gateway.send(signal.SIGINT)
        assert gateway.end().code == 0
    said = "".join(gateway.heard)
    assert "  file     none: every model goes to OpenAI (`spangate init` writes one)\n" in said
    assert "sk-of-nobody-else" not in said


@pytest.mark.fault("KEY-08")
def test_open_to_everyone_is_warned_about(tmp_path: Path) -> None:
    write(tmp_path)
    with running("serve", "--host", "0.0.0.0", "--port", "0", "--open", folder=tmp_path) as gateway:
        listens = gateway.until("listens on").split()[-1]
        pasted = gateway.until("export OPENAI_BASE_URL=")
        assert pasted.strip().endswith(listens.replace("0.0.0.0", "127.0.0.1"))
        assert ask(pasted.strip().partition("=")[2]) == "Hello there"
        gateway.send(signal.SIGTERM)
        assert gateway.end().code == 0
    said = "".join(gateway.heard)
    assert "  callers  open to everyone, with any key or none\n" in said
    assert "warning: --open: whoever reaches this address spends your provider's key\n" in said


def test_its_last_line_says_what_waits(tmp_path: Path) -> None:
    """The second gateway never gets the database, which the first holds."""
    write(tmp_path)
    with running("serve", "--port", "0", folder=tmp_path) as first:
        assert ask(address(first)) == "Hello there"
        assert spangate("sql", "SELECT 1", folder=tmp_path).code == 0, "so the first has the database"
        with running("serve", "--port", "0", folder=tmp_path) as second:
            assert ask(address(second)) == "Hello there"
            second.send(signal.SIGTERM)
            last = second.end().err.splitlines()[-1]
        first.send(signal.SIGTERM)
        assert first.end().err == "stopped; nothing lost\n"
    assert last == "stopped; nothing lost; rows wait in spangate.duckdb.spool for the next start"


def test_its_last_line_counts_what_was_lost(tmp_path: Path) -> None:
    write(tmp_path)
    dead = refusing()
    with running("serve", "--port", "0", folder=tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{dead}") as gateway:
        assert ask(address(gateway)) == "Hello there"
        gateway.send(signal.SIGTERM)
        ended = gateway.end()
    assert ended.code == 0
    assert re.fullmatch(r"stopped; lost: \d+ items of telemetry", ended.err.splitlines()[-1])


def refusing() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    write(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        ran = spangate("serve", "--port", str(port), folder=tmp_path)
    told = f"127.0.0.1:{port} is taken, perhaps by another spangate (`lsof -i :{port}` shows it): choose another with --port"
    assert (ran.code, ran.out, ran.err) == (1, "", f"spangate: {told}\n")


def test_a_port_that_is_taken_by_a_gateway_of_the_same_folder(tmp_path: Path) -> None:
    """The address is asked for before the database, which the other holds: one line, not two."""
    write(tmp_path)
    with running("serve", "--port", "0", folder=tmp_path) as gateway:
        url = address(gateway)
        port = url.removesuffix("/v1").rpartition(":")[2]
        ask(url)
        ran = spangate("serve", "--port", port, folder=tmp_path)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith(f"spangate: 127.0.0.1:{port} is taken, ")
        assert len(ran.err.splitlines()) == 1
        gateway.send(signal.SIGTERM)
        assert gateway.end().code == 0


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full 2>/dev/full"])
def test_streams_that_are_closed_or_full_cost_lines_alone(tmp_path: Path, streams: str) -> None:
    write(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = ["sh", "-c", f'exec "$@" {streams}', "sh", *PROGRAM, "serve", "--port", str(port)]
    with subprocess.Popen(started, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.DEVNULL) as gateway:
        try:
            wait_for(port)
            assert [ask(f"http://127.0.0.1:{port}/v1") for _ in range(3)] == ["Hello there"] * 3
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(PATIENCE) == 0
        finally:
            gateway.kill()


def wait_for(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {port}")


def test_a_proxy_that_cannot_be_used_is_told_in_a_line(tmp_path: Path) -> None:
    write(tmp_path)
    ran = spangate("serve", "--port", "0", folder=tmp_path, ALL_PROXY="socks5://user:secret@proxy:1080")
    told = "spangate: ALL_PROXY names no proxy that can be used: write http://host:port or https://host:port.\n"
    assert (ran.code, ran.err) == (2, told)
