"""The wire breaks as it is told to, and is whole again afterwards."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.servers.proxy import Mode, Proxy


@pytest.fixture
def echo() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(one: socket.socket) -> None:
        with one, suppress(OSError):
            while piece := one.recv(100):
                one.sendall(piece)

    def serve() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(one,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with Proxy(echo) as found:
        yield found


def said(one: socket.socket, what: bytes = b"hello") -> bytes:
    one.sendall(what)
    return one.recv(100)


@pytest.mark.parametrize("mode", [Mode.PASS, Mode.SLOW])
def test_what_is_sent_arrives(proxy: Proxy, mode: Mode) -> None:
    proxy.be(mode)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as one:
        assert said(one) == b"hello"


def test_a_cut_resets_what_stands_and_lets_new_ones_in(proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as one:
        assert said(one) == b"hello"
        proxy.cut()
        with pytest.raises(ConnectionError):
            assert said(one) == b"never"
            one.recv(1)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as one:
        assert said(one) == b"hello"


def test_half_open_lets_in_and_says_nothing(proxy: Proxy) -> None:
    proxy.be(Mode.HANG)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.2) as one:
        with pytest.raises(TimeoutError):
            said(one)
        proxy.be(Mode.PASS)
        proxy.cut()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as one:
        assert said(one) == b"hello"


def test_nobody_is_let_in(proxy: Proxy) -> None:
    proxy.be(Mode.REFUSE)
    with (
        pytest.raises(ConnectionError),
        socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as one,
    ):
        assert said(one) == b""
        raise ConnectionResetError
