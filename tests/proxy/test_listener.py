"""proxy/listener.py: connections are accepted; those beyond what there are files for are shut, and nothing keeps others away for long."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from spangate.proxy.listener import ENOUGH, Listener, ask_for_files, bound, files_for_clients, most_clients

from gateway import until


class Greeting(asyncio.Protocol):
    """Says hello."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(b"hello")


@contextmanager
def files(limit: int) -> Iterator[None]:
    """This process may open so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def listening(*sockets: socket.socket, present: Callable[[], int] | None = lambda: 0) -> Iterator[Listener]:
    listener = Listener(sockets, Greeting, present)
    listener.start()
    try:
        yield listener
    finally:
        listener.close()


def next_file() -> int:
    """The number that whatever is opened next has."""
    number = os.dup(0)
    os.close(number)
    return number


def clients(count: int) -> list[socket.socket]:
    made = [socket.socket() for _ in range(count)]
    for each in made:
        each.setblocking(False)
    return made


async def said(client: socket.socket, port: int, *, leaves: bool = True) -> bytes:
    """What a client hears before it leaves; nothing, if it is shut out."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(client, ("127.0.0.1", port))
        async with asyncio.timeout(10):
            return await loop.sock_recv(client, 100)
    except ConnectionError:
        return b""
    finally:
        if leaves:
            client.close()


def kept(limit: int) -> int:
    """A quarter, 32 at the least, but a half of so few that this would be more."""
    return min(max(limit // 4, 32), limit // 2)


async def test_who_connects_is_answered() -> None:
    [sock] = await bound("127.0.0.1", 0)
    port = sock.getsockname()[1]
    with listening(sock) as listener:
        assert await asyncio.gather(*(said(each, port) for each in clients(100))) == [b"hello"] * 100
        assert listener.refused == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_who_left_before_being_accepted_harms_nobody() -> None:
    [sock] = await bound("127.0.0.1", 0)
    port = sock.getsockname()[1]
    with listening(sock):
        for each in clients(3):  # the loop has had no turn yet
            each.setblocking(True)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            each.connect(("127.0.0.1", port))
            each.close()
        assert await said(*clients(1), port) == b"hello"


async def test_a_name_has_all_of_its_addresses() -> None:
    sockets = await bound("localhost", 0)
    with listening(*sockets):
        for sock in sockets:
            reader, writer = await asyncio.open_connection(*sock.getsockname()[:2])
            assert await reader.read(5) == b"hello"
            writer.close()


async def test_an_address_is_one_listeners() -> None:
    [sock] = await bound("127.0.0.1", 0)
    with listening(sock), pytest.raises(OSError, match="in use"):
        await bound("127.0.0.1", sock.getsockname()[1])
    with pytest.raises(OSError, match=r"assign|available"):
        await bound("192.0.2.1", 0)  # of documentation: nobody's


@pytest.mark.fault("RES-13")
async def test_some_files_are_kept_for_others_than_clients() -> None:
    [sock] = await bound("127.0.0.1", 0)
    port, ours = sock.getsockname()[1], clients(20)
    with listening(sock) as listener:
        limit = next(number for number in range(10_000) if number - kept(number) == next_file() + 5)
        with files(limit):
            room = files_for_clients() - next_file()
            heard = await asyncio.gather(*(said(each, port, leaves=False) for each in ours))
            assert room == heard.count(b"hello") == 5
            assert heard.count(b"") == listener.refused == 15
            for each in ours:
                each.close()
        assert await said(*clients(1), port) == b"hello"


@pytest.mark.fault("RES-13")
async def test_who_comes_when_there_is_no_file_left_is_answered_when_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    [sock] = await bound("127.0.0.1", 0)
    port, ours = sock.getsockname()[1], clients(3)
    with listening(sock):
        with files(next_file()):
            answers = [asyncio.ensure_future(said(each, port)) for each in ours]
            await until(lambda: bool(caplog.messages))
        assert await asyncio.gather(*answers) == [b"hello"] * 3
    assert len(caplog.messages) == 1, "said once, however often it is tried"
    assert "no connection can be accepted" in caplog.messages[0]


@pytest.mark.fault("RES-13")
async def test_no_more_clients_come_than_could_all_call_at_once() -> None:
    [sock] = await bound("127.0.0.1", 0)
    port, present = sock.getsockname()[1], most_clients()
    with listening(sock, present=lambda: present) as listener:
        assert await said(*clients(1), port) == b""
        present -= 1
        assert await said(*clients(1), port) == b"hello"
        assert listener.refused == 1


async def test_whoever_runs_the_gateway_is_let_in_as_long_as_there_are_files() -> None:
    [sock] = await bound("127.0.0.1", 0)
    port, ours = sock.getsockname()[1], clients(20)
    with listening(sock, present=None) as listener, files(next_file() + 25):
        assert await asyncio.gather(*(said(each, port, leaves=False) for each in ours)) == [b"hello"] * 20
        assert listener.refused == 0
        for each in ours:
            each.close()


async def test_who_only_begins_when_it_closes_is_let_go() -> None:
    [sock] = await bound("127.0.0.1", 0)
    [ours] = clients(1)
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    listener = Listener([sock], lambda: begun.set() or Greeting(), lambda: 0)
    listener.start()
    await loop.sock_connect(ours, sock.getsockname())
    await begun.wait()  # its protocol is made, and has no connection yet
    listener.close()
    async with asyncio.timeout(10):
        while await loop.sock_recv(ours, 100):
            pass
    ours.close()


@pytest.mark.parametrize(("limit", "most"), [(2400, 1152), (1024, 464), (256, 80), (96, 12), (40, 5)])
def test_each_client_may_want_a_connection_to_its_provider(limit: int, most: int) -> None:
    with files(limit):
        assert most_clients() == most


@pytest.mark.parametrize(("limit", "most"), [(1024, 768), (256, 192), (100, 68), (40, 20)])
def test_a_share_of_the_files_is_for_clients(limit: int, most: int) -> None:
    with files(limit):
        assert files_for_clients() == most


def test_as_many_files_are_asked_for_as_may_be_had() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with files(256):
        ask_for_files()
        ask_for_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH), hard)
