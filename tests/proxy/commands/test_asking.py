"""proxy/commands/asking.py: who is asked, and what is said if nobody answers."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spangate.exporters.usage.settings import Usage
from spangate.proxy.commands.asking import Place, ask, place_of
from spangate.proxy.commands.failure import FAILED, UNUSABLE, Failure

from accounts import accounts, ended
from case import case
from upstream import chat_answer, play

COUNT = "SELECT count(*) FROM calls"
KEPT = Usage(path="usage.duckdb", retention=30000 * 86400.0)  # the tests' calls are of 2023

SORRY = b'{"error": {"message": "Usage can\'t be read\\u001bnow"}}'


def place(folder: Path) -> Place:
    return Place(KEPT, (), folder)


@contextmanager
def speaking(folder: Path, said: bytes) -> Iterator[None]:
    """Something else that listens where a gateway would."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "usage.duckdb.sock"))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(said)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join()


async def test_a_running_gateway_is_asked(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello")), usage={"path": "usage.duckdb"}) as it:
        await it.ask()
        answer = await asyncio.to_thread(ask, place(tmp_path), "SELECT team FROM calls WHERE status = $status", {"status": 200})
        assert (answer.columns, answer.rows) == (("team",), [["search"]])
        with pytest.raises(Failure, match="Candidate bindings") as failed:
            await asyncio.to_thread(ask, place(tmp_path), "SELECT nothing FROM calls")
        assert failed.value.code == UNUSABLE
        assert "\n" not in failed.value.message


async def test_without_one_the_file_is_opened_and_what_waits_is_moved(tmp_path: Path) -> None:
    async with accounts(tmp_path, start=False) as usage:
        usage.record(ended())
    assert not (tmp_path / "usage.duckdb").exists()
    assert (await asyncio.to_thread(ask, place(tmp_path), COUNT)).rows == [[1]]
    assert (await asyncio.to_thread(ask, place(tmp_path), COUNT, [])).rows == [[1]]
    with pytest.raises(Failure, match="one SELECT is allowed") as failed:
        await asyncio.to_thread(ask, place(tmp_path), "DELETE FROM calls")
    assert failed.value.code == UNUSABLE


def test_where_nothing_is_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="isn't there yet") as failed:
        ask(place(tmp_path), COUNT)
    assert failed.value.code == FAILED
    assert list(tmp_path.iterdir()) == []


HOLDER = """
import sys
from pathlib import Path
from spangate.exporters.usage.store import Store
store = Store(Path(sys.argv[1]))
store.open()
print("open", flush=True)
sys.stdin.read()
store.close()
"""


def test_a_file_that_another_process_holds(tmp_path: Path) -> None:
    path = tmp_path / "usage.duckdb"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as holder:
        assert holder.stdout
        assert holder.stdin
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(Failure, match=f"is held by process {holder.pid}, which answers no questions here") as failed:
            ask(place(tmp_path), COUNT, patience=0.2)
        assert failed.value.code == FAILED
        threading.Timer(0.3, holder.stdin.close).start()
        assert ask(place(tmp_path), COUNT, patience=10).rows == [[0]]


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "usage.duckdb").write_bytes(b"nothing of the kind" * 1000)
    with pytest.raises(Failure, match=r"usage\.duckdb can't be opened: ") as failed:
        ask(place(tmp_path), COUNT)
    assert failed.value.code == FAILED


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "gave no answer"),
        (b"SSH-2.0-x\r\n", "gave no answer"),
        (b"HTTP/1.1 503 x\r\ncontent-length: 5\r\n\r\nnope\n", "the gateway answered 503"),
        (b"HTTP/1.1 503 x\r\ncontent-length: %d\r\n\r\n%s" % (len(SORRY), SORRY), r"^Usage can't be read\?now$"),
    ],
)
def test_a_gateway_that_gives_no_answer(tmp_path: Path, said: bytes, told: str) -> None:
    with speaking(tmp_path, said), pytest.raises(Failure, match=told) as failed:
        ask(place(tmp_path), COUNT)
    assert failed.value.code == FAILED


def test_where_usage_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of(None, {}).path == Path("spangate.duckdb")
    file = tmp_path / "conf" / "gateway.yaml"
    file.parent.mkdir()
    file.write_text(json.dumps({"providers": {"o": {"kind": "openai", "api_key": "${NOT_SET}"}}, "usage": {"path": "u.duckdb"}}))
    assert place_of(file, {}).path == tmp_path / "conf" / "u.duckdb"
    file.write_text("usage: {}\nprices: [{model: m, input: 1, output: 2}]\n")
    found = place_of(file, {})
    assert (found.path.name, found.prices[0].model) == ("spangate.duckdb", "m")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("usage: {enabled: false}\n", "keeps no usage: take `usage: "),
        ("usage:\n", "usage of .* can't be used"),
        ("usage: {path: 7}\n", "usage of .* can't be used: `spangate check -c .*` says why"),
        ("usage: {path: '${NOT_SET}'}\n", "usage of .* names a variable that isn't set here"),
        ("usage: {}\nprices: [{model: m}]\n", r"prices\[0\] of .* can't be used"),
    ],
)
def test_a_configuration_that_names_no_place(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "spangate.yaml"
    file.write_text(text)
    with pytest.raises(Failure, match=told) as failed:
        place_of(file, {})
    assert failed.value.code == UNUSABLE
