"""The server: who gets the file, limits, signals, the port."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.handover import PATH, PATIENCE, QUICK, TRACE, Answer, Handover, received, request
from tracelink._model.errors import TraceError
from tracelink._open.server import (
    HOST,
    MAX_HEAD,
    MAX_HEADERS,
    REFUSAL,
    UI,
    Limits,
    Request,
    Step,
    listen,
    port_holder,
    reserved_port,
)

LARGE = 40 << 20
"""More than the buffers between two ends of a connection hold."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(TRACE)
    return path


@pytest.fixture
def handover(trace: Path) -> Iterator[Handover]:
    with Handover(trace) as serving:
        yield serving


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.json"
    path.write_bytes(TRACE)
    os.truncate(path, LARGE)
    return path


class TestTheUi:
    def test_gets_the_file_as_it_is_and_leave_to_read_it(self, handover: Handover) -> None:
        answer = handover.get()
        assert (answer.status, answer.body) == (200, TRACE)
        assert answer.headers == {
            "content-type": "application/octet-stream",
            "content-length": str(len(TRACE)),
            "accept-ranges": "none",
            "access-control-allow-origin": UI,
            "vary": "Origin",
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            "connection": "close",
        }

    def test_having_it_ends_the_server(self, handover: Handover) -> None:
        handover.get()
        assert handover.end() is True
        assert handover.steps == [(Step.FETCHED, "")]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(handover.address)

    def test_may_ask_for_leave_first(self, handover: Handover) -> None:
        answer = handover.get(method="OPTIONS", Access_Control_Request_Method="GET")
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == UI
        assert answer.headers["access-control-allow-methods"] == "GET"
        assert "access-control-allow-private-network" not in answer.headers
        assert handover.get().body == TRACE

    def test_may_ask_for_leave_to_reach_this_machine(self, handover: Handover) -> None:
        asked = {"Access_Control_Request_Method": "GET", "Access_Control_Request_Private_Network": "true"}
        assert (
            handover.get(method="OPTIONS", **asked).headers["access-control-allow-private-network"] == "true"
        )

    def test_gets_the_whole_where_it_asks_for_a_part(self, handover: Handover) -> None:
        answer = handover.get(Range="bytes=5-9")
        assert (answer.status, answer.body) == (200, TRACE)

    def test_gets_a_large_file_whole(self, large: Path) -> None:
        with Handover(large) as serving:
            answer = serving.get()
        assert answer.body == large.read_bytes()
        assert serving.loaded is True

    def test_gets_what_was_opened_even_if_the_path_leads_elsewhere_by_now(self, trace: Path) -> None:
        with Handover(trace) as serving:
            trace.rename(trace.with_name("kept.json"))
            trace.write_text("something else")
            assert serving.get().body == TRACE


class TestNobodyElse:
    @pytest.mark.parametrize(
        "path",
        [
            "/",
            "/trace.json",
            "/the-token/",
            "/the-token/trace.jso",
            f"{PATH}?",
            f"{PATH}/..",
            "//the-token/trace.json",
        ],
    )
    def test_another_path_gets_nothing(self, handover: Handover, path: str) -> None:
        assert handover.get(path).raw == REFUSAL
        assert handover.steps == []

    @pytest.mark.parametrize(
        "origin",
        [
            "https://evil.example",
            "null",
            "http://ui.perfetto.dev",
            f"{UI}:443",
            f"{UI}.evil.example",
            "",
            None,
        ],
    )
    def test_another_origin_gets_nothing_and_the_user_hears_of_it(
        self, handover: Handover, origin: str | None
    ) -> None:
        assert handover.get(Origin=origin).raw == REFUSAL
        assert handover.steps == [(Step.OTHER_ORIGIN, origin or "")]

    def test_another_origin_has_no_leave_either(self, handover: Handover) -> None:
        asked = {"Origin": "https://evil.example", "Access_Control_Request_Method": "GET"}
        assert handover.get(method="OPTIONS", **asked).raw == REFUSAL

    @pytest.mark.parametrize(
        "host", ["evil.example:9001", "localhost:9001", "127.0.0.1", "127.0.0.1:9002", None]
    )
    def test_a_page_that_has_a_name_for_this_machine_gets_nothing(
        self, handover: Handover, host: str | None
    ) -> None:
        assert handover.get(Host=host).raw == REFUSAL

    @pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS"])
    def test_another_method_gets_nothing(self, handover: Handover, method: str) -> None:
        assert handover.get(method=method).raw == REFUSAL

    def test_leave_to_do_more_than_to_get_is_not_given(self, handover: Handover) -> None:
        answer = handover.get(method="OPTIONS", Access_Control_Request_Method="PUT")
        assert answer.raw == REFUSAL

    def test_a_refusal_says_nothing_of_the_server(self, handover: Handover) -> None:
        assert handover.get("/").headers == {"content-length": "0", "connection": "close"}

    def test_what_is_refused_can_still_be_fetched_by_the_ui(self, handover: Handover) -> None:
        handover.get("/status", method="POST")
        handover.get(Origin="null")
        assert handover.get().body == TRACE

    def test_it_listens_on_the_loopback_address_alone(self, handover: Handover) -> None:
        assert handover.address[0] == "127.0.0.1"
        for address in (("127.0.0.2", handover.address[1]), ("::1", handover.address[1])):
            with pytest.raises(OSError):  # noqa: PT011  refused, or a machine without that address
                socket.create_connection(address, timeout=1)


class TestASecondFetch:
    def test_gets_nothing_after_the_first(self, handover: Handover) -> None:
        with handover.connect() as second:
            assert handover.get().body == TRACE
            handover.end()
            try:
                second.sendall(request())
            except ConnectionError:
                return
            assert received(second) == b""

    def test_gets_nothing_during_the_first(self, large: Path) -> None:
        with Handover(large) as serving, serving.connect() as first:
            first.sendall(request())
            begun = first.recv(1)
            assert serving.get().raw == REFUSAL
            assert len(Answer(begun + received(first)).body) == LARGE

    def test_gets_the_file_where_the_first_broke_off(self, large: Path) -> None:
        with Handover(large) as serving:
            with serving.connect() as first:
                first.sendall(request())
                first.recv(1)
                first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert len(fetched_at_last(serving).body) == LARGE
            assert serving.end() is True
            assert [step for step, _ in serving.steps] == [Step.FETCHED, Step.BROKEN_OFF, Step.FETCHED]

    def test_gets_the_file_where_the_first_is_stuck(self, large: Path) -> None:
        with Handover(large, QUICK) as serving, serving.connect() as first:
            first.sendall(request())
            first.recv(1)
            assert len(fetched_at_last(serving).body) == LARGE
            assert serving.end() is True


class TestWhoAsksBadly:
    @pytest.mark.parametrize(
        "asked",
        [
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            f"GET {PATH}\r\n\r\n".encode(),
            f"GET {PATH} HTTP/2.0\r\n\r\n".encode(),
            f"get {PATH} HTTP/1.1\r\n\r\n".encode(),
            request(f"http://{HOST}{PATH}"),
            request().replace(b"Accept: */*", f"Origin: {UI}".encode()),
            request().replace(b"Accept: */*", f"Accept: */*\r\n Origin: {UI}".encode()),
            request().replace(b"Accept: */*", b"Accept : */*"),
            request(**{f"X{number}": "1" for number in range(MAX_HEADERS)}),
            request(Accept="x" * MAX_HEAD),
            b"\x16\x03\x01" + bytes(100) + b"\r\n\r\n",
        ],
    )
    def test_gets_not_even_an_answer(self, handover: Handover, asked: bytes) -> None:
        assert handover.send(asked).raw == b""

    def test_and_endlessly_is_cut_off(self, handover: Handover) -> None:
        with handover.connect() as connection:
            pieces = 0
            with suppress(ConnectionError):
                while pieces < PATIENCE * 100:
                    connection.sendall(b"x" * 1024)
                    pieces += 1
                    time.sleep(0.01)
        assert MAX_HEAD <= pieces * 1024 < 40 * MAX_HEAD

    @pytest.mark.parametrize("begun", [b"", b"GET ", request()[:-2]])
    def test_slowly_is_cut_off(self, trace: Path, begun: bytes) -> None:
        with Handover(trace, QUICK) as serving:
            began = time.monotonic()
            assert serving.send(begun).raw == b""
            assert time.monotonic() - began < PATIENCE / 2

    def test_and_often_does_not_block_the_ui_for_ever(self, trace: Path) -> None:
        limits = Limits(idle=PATIENCE, head=0.5, chunk=1, connections=4)
        with Handover(trace, limits) as serving, ExitStack() as stuck:
            for _ in range(8):
                stuck.enter_context(serving.connect())
            assert fetched_at_last(serving).body == TRACE


class TestTheEnd:
    def test_comes_where_nobody_asks(self, trace: Path) -> None:
        began = time.monotonic()
        with Handover(trace, Limits(idle=0.3)) as serving:
            assert serving.end() is False
        assert time.monotonic() - began < PATIENCE

    def test_is_not_put_off_by_who_is_refused(self, trace: Path) -> None:
        began = time.monotonic()
        with Handover(trace, Limits(idle=0.5)) as serving:
            with suppress(OSError):  # nobody listens any more
                while time.monotonic() - began < PATIENCE:
                    serving.get("/")
            assert serving.end() is False
        assert time.monotonic() - began < PATIENCE

    def test_does_not_come_while_the_file_is_fetched(self, large: Path) -> None:
        with Handover(large, Limits(idle=0.2, chunk=PATIENCE)) as serving:
            with serving.connect() as slow:
                slow.sendall(request())
                begun = slow.recv(1)
                time.sleep(0.8)
                assert len(Answer(begun + received(slow)).body) == LARGE
            assert serving.end() is True

    def test_comes_where_a_browser_that_has_everything_does_not_hang_up(self, trace: Path) -> None:
        with Handover(trace, QUICK) as serving, serving.connect() as held:
            held.sendall(request())
            assert Answer(received(held)).body == TRACE
            assert serving.end() is True

    def test_comes_with_an_error_where_the_file_becomes_shorter(self, large: Path) -> None:
        with Handover(large) as serving:
            with serving.connect() as connection:
                connection.sendall(request())
                connection.recv(1)
                os.truncate(large, len(TRACE))
                assert len(received(connection)) < LARGE
            serving.end()
            assert isinstance(serving.error, TraceError)
            assert "became shorter" in serving.error.problem

    def test_comes_where_nobody_hears_what_happens(
        self, trace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(self: Handover, step: Step, detail: str) -> None:
            raise BrokenPipeError

        monkeypatch.setattr(Handover, "_observe", gone)
        with Handover(trace) as serving:
            serving.get()
            serving.end()
            assert isinstance(serving.error, BrokenPipeError)


class TestThePort:
    def test_that_is_taken_is_said_with_who_has_it(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            with pytest.raises(TraceError) as caught, reserved_port(port):
                pass
        assert f"127.0.0.1:{port} is taken by" in str(caught.value)
        assert f"(process {os.getpid()})" in str(caught.value)
        assert "fetches only from port 9001" in caught.value.advice

    def test_that_two_reserved_is_of_who_listens_first(self) -> None:
        with reserved_port(0) as first, reserved_port(first.getsockname()[1]) as second:
            listen(first)
            with pytest.raises(TraceError, match="is taken by"):
                listen(second)

    def test_that_is_taken_on_all_addresses_is_taken_here(self) -> None:
        with socket.create_server(("", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(TraceError, match="is taken"), reserved_port(port):
                pass

    def test_of_another_user_is_taken_by_nobody_that_is_known(self, tmp_path: Path) -> None:
        (tmp_path / "net").mkdir()
        line = "0: 0100007F:2329 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 4711 1"
        (tmp_path / "net" / "tcp").write_text(f"header\n{line}\n")
        assert port_holder(9001, tmp_path) == ""

    def test_can_be_used_again_at_once(self, trace: Path) -> None:
        with Handover(trace) as serving:
            serving.get()
            serving.end()
            with reserved_port(serving.address[1]) as door:
                door.listen()


@given(st.binary(max_size=300))
def test_no_bytes_are_more_than_a_request_or_none(head: bytes) -> None:
    asked = Request.parse(head)
    assert asked is None or (asked.target.startswith("/") and asked.method.isupper())


@given(
    st.from_regex(r"/[!-~]{0,40}", fullmatch=True),
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True),
        st.from_regex(r"[!-~]{0,20}", fullmatch=True),
        max_size=9,
    ),
)
def test_a_request_is_read_as_it_was_written(target: str, headers: dict[str, str]) -> None:
    lines = [f"GET {target} HTTP/1.1", *(f"{name.title()}: {value}" for name, value in headers.items())]
    head = "\r\n".join([*lines, "", ""]).encode()
    assert Request.parse(head) == Request("GET", target, headers)


def fetched_at_last(serving: Handover) -> Answer:
    """The file, once whoever has the claim on it loses it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(ConnectionError):
            answer = serving.get()
            if answer.status == 200 and len(answer.body) == int(answer.headers["content-length"]):
                return answer
        assert time.monotonic() < deadline
        time.sleep(0.05)
