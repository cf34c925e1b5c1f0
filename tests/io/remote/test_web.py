"""Web servers as stores: their faults, and what hostile ones try."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from builders.inputs import content, found, read_while
from builders.stores import Web, web_server
from tracelink._io.remote import stores
from tracelink._io.remote import web as web_module
from tracelink._io.sources import Request, discover
from tracelink._model.errors import ChangedError, UnreadableError, UsageError
from tracelink._model.findings import Finding

DATA = bytes(range(256)) * 4096
Fault = Callable[[Web, BaseHTTPRequestHandler], bool]


def answered(handler: BaseHTTPRequestHandler, status: int, data: bytes = b"", **headers: str) -> bool:
    handler.answer(status, data, **headers)  # type: ignore[attr-defined]
    return True


def first(count: int, fault: Fault) -> Fault:
    """A fault of the first requests."""
    left = [count]

    def some(web: Web, handler: BaseHTTPRequestHandler) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fault(web, handler)

    return some


def busy(web: Web, handler: BaseHTTPRequestHandler) -> bool:
    return answered(handler, 503)


def cut(web: Web, handler: BaseHTTPRequestHandler) -> bool:
    """Announces a whole object, and sends a part of it."""
    handler.send_response(206)
    handler.send_header("Content-Length", "1000")
    handler.send_header("Content-Range", f"bytes 0-999/{len(DATA)}")
    handler.end_headers()
    handler.wfile.write(DATA[:10])
    handler.close_connection = True
    return True


def reset(web: Web, handler: BaseHTTPRequestHandler) -> bool:
    """Ends the connection without an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    return True


def silent(web: Web, handler: BaseHTTPRequestHandler) -> bool:
    time.sleep(0.5)
    return True


@pytest.mark.parametrize("fault", [busy, cut, reset, silent])
def test_what_fails_at_first_is_tried_again(web: Web, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_module, "PATIENCE", 0.2)
    web.objects["a.json"] = DATA
    web.fault = first(3, fault)
    (source,) = found(web.url("a.json")).sources
    assert content(source) == DATA
    web.fault = first(2, fault)
    assert content(source) == DATA
    assert 3 <= stores.store_of(web.url()).retries <= 5


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (busy, "the store cannot be used after 5 attempts (the server answers with status 503)"),
        (reset, "the store cannot be used after 5 attempts"),
        (lambda web, handler: answered(handler, 403), "access is denied"),
        (
            lambda web, handler: answered(handler, 400),
            "the store cannot be used (the server answers with status 400)",
        ),
    ],
)
def test_what_always_fails_is_one_finding(web: Web, fault: Fault, problem: str) -> None:
    web.fault = fault
    (finding,) = found(web.url("a.json")).findings
    assert finding.message.startswith(f"{web.url('a.json')}: {problem}")
    assert len(web.requests) <= 5


def test_a_server_that_does_not_exist() -> None:
    with web_server() as gone:
        pass
    (finding,) = found(gone.url("a.json")).findings
    assert "the store cannot be used after 5 attempts (" in finding.message


def test_there_is_nothing(web: Web) -> None:
    with pytest.raises(UsageError, match=r"/a\.json: there is no such object or folder"):
        found(web.url("a.json"))
    with pytest.raises(UsageError, match="is not an address"):
        found("http:///a.json")


def test_an_object_that_is_cut_off_is_an_error(web: Web) -> None:
    web.objects["a.json"] = DATA
    (source,) = found(web.url("a.json")).sources
    web.fault = cut
    with pytest.raises(UnreadableError, match=r"after 5 attempts \(it sent 10 of 65,536 bytes\)"):
        source.opener().read(5)


def endless(handler: BaseHTTPRequestHandler) -> bool:
    handler.end_headers()
    for _ in range(10_000):
        try:
            handler.wfile.write(bytes(1 << 20))
        except OSError:
            break
    handler.close_connection = True
    return True


def test_of_endless_ranges_only_what_is_needed_is_read(web: Web) -> None:
    def fault(web: Web, handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(206)
        handler.send_header("Content-Range", "bytes 0-9/100000")
        return endless(handler)

    web.fault = fault
    (source,) = found(web.url("a.json")).sources
    assert source.opener().read() == bytes(100_000)


def test_of_endless_objects_no_more_than_the_limit_is_read(web: Web) -> None:
    def fault(web: Web, handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(200)
        return endless(handler)

    web.fault = fault
    (finding,) = discover(Request([(web.url("a.json"), "")], max_unpacked=1 << 21)).findings
    assert "it has more than 2,097,152 bytes" in finding.message


def test_an_endless_page_is_not_read_to_its_end(web: Web) -> None:
    def fault(web: Web, handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/html")
        return endless(handler)

    web.fault = fault
    (finding,) = found(web.url("run/")).findings
    assert "the page of this folder is too long" in finding.message


def test_folders_without_end_are_not_followed_for_ever(web: Web) -> None:
    web.fault = lambda web, handler: answered(
        handler, 200, b'<a href="again/">a</a><a href="a.json">a</a>', **{"Content-Type": "text/html"}
    )
    folder = stores.store_of(web.url()).folder(web.url(), deep=True, most=1000)
    assert len(folder.entries) == web_module.DEEPEST + 1


def test_more_objects_than_the_limit_are_refused(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelink._io.remote.objects.MOST_OBJECTS", 3)
    web.objects |= {f"run/{number}": b"" for number in range(5)}
    (finding,) = found(web.url("run/")).findings
    assert "there are more than 3 objects" in finding.message


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/a", "data:text/plain,a"])
def test_redirects_stay_on_the_web(web: Web, target: str) -> None:
    web.fault = lambda web, handler: answered(handler, 302, Location=target)
    (finding,) = found(web.url("a.json")).findings
    assert "the server redirects to an address that is not followed" in finding.message


def test_a_redirect_to_another_server_has_no_password(web: Web) -> None:
    with web_server() as other:
        other.objects["b.json"] = DATA
        web.fault = lambda web, handler: answered(handler, 302, Location=other.url("b.json"))
        address = web.url("a.json").replace("://", "://user:secret-word@")
        (source,) = found(address).sources
        assert content(source) == DATA
        assert set(web.logins) == {"Basic dXNlcjpzZWNyZXQtd29yZA=="}
        assert set(other.logins) == {""}
        assert source.path == web.url("a.json")


def test_redirects_in_a_circle_are_an_error(web: Web) -> None:
    web.fault = lambda web, handler: answered(handler, 302, Location="/a.json")
    (finding,) = found(web.url("a.json")).findings
    assert "the server redirects to an address that is not followed" in finding.message


def test_links_out_of_the_folder_are_not_followed(web: Web) -> None:
    links = [
        "../up.json",
        "/absolute.json",
        "http://127.0.0.2/other.json",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "sub/../../up.json",
        "%2e%2e/up.json",
        "http://[broken",
        "in.json",
        "in.json#twice",
        ".hidden.json",
        "a%20b.json",
    ]
    page = "".join(f'<a href="{link}">a</a>' for link in links).encode()
    web.objects |= {"run/in.json": b"in", "run/a b.json": b"ab", "run/a%20b.json": b"ab", "up.json": b"up"}
    web.fault = lambda web, handler: (
        handler.path == "/run/" and answered(handler, 200, page, **{"Content-Type": "text/html"})
    )
    discovery = found(web.url("run/"))
    assert [source.path for source in discovery.sources] == [
        web.url("run/a%20b.json"),
        web.url("run/in.json"),
    ]
    (finding,) = discovery.findings
    assert finding.message.endswith("1 names lead out of the folder; these objects were skipped.")


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("other", [b"other", b""])
def test_an_object_that_changes_is_an_error(web: Web, tags: bool, other: bytes) -> None:
    web.tags = tags
    web.objects["a.json"] = DATA
    (source,) = found(web.url("a.json")).sources
    with pytest.raises(ChangedError, match=r"/a\.json: the object was changed since it was first read"):
        read_while(source, lambda: web.objects.update({"a.json": other}))
    with pytest.raises(ChangedError):
        content(source)
    del web.objects["a.json"]
    with pytest.raises(ChangedError, match="was removed"):
        content(source)


def test_a_pattern(web: Web) -> None:
    for name in (
        "run1/k_0.json",
        "run1/k_1.json",
        "run2/k_0.json",
        "run2/t_0.txt",
        "other/k_9.json",
        "run3/.k_1.json",
    ):
        web.objects[name] = name.encode()

    def names(pattern: str) -> list[str]:
        return [source.path.removeprefix(web.url()) for source in found(web.url(pattern)).sources]

    assert names("run*/k_?.json") == ["run1/k_0.json", "run1/k_1.json", "run2/k_0.json"]
    assert names("**/k_[09].json") == ["other/k_9.json", "run1/k_0.json", "run2/k_0.json"]
    assert names("run2*") == ["run2/k_0.json", "run2/t_0.txt"]


def test_a_seek_costs_a_range_and_reading_on_few_large_ones(web: Web) -> None:
    web.objects["a.json"] = DATA * 20
    (source,) = found(web.url("a.json")).sources
    del web.requests[:]
    with source.opener() as stream:
        stream.seek(10_000_000)
        assert stream.read(10) == (DATA * 20)[10_000_000:10_000_010]
        assert web.requests == ["/a.json bytes=10000000-10065535"]
        stream.seek(0)
        assert b"".join(iter(lambda: stream.read(1 << 16), b"")) == DATA * 20
    assert len(web.requests) <= 8


def test_nothing_is_written_to_a_web_server(web: Web) -> None:
    from tracelink._io.targets import check_folder

    with pytest.raises(UsageError, match="nothing can be written to web servers"):
        check_folder(web.url("a.json"))


def test_secrets_are_in_no_path_and_in_no_finding(web: Web) -> None:
    web.objects["rank3.json"] = b"{}"
    query = "?X-Amz-Credential=AKIASECRETKEY&X-Amz-Signature=0123456789abcdef&other=1"
    discovery = found(web.url(f"rank3.json{query}"))
    (source,) = discovery.sources
    assert (source.path, source.name, source.rank_hint and source.rank_hint.rank) == (
        web.url("rank3.json"),
        "rank3.json",
        3,
    )
    assert list(discovery.paths) == [source.path]
    assert web.requests[0].startswith(f"/rank3.json{query}")
    assert "SECRET" not in repr(source)
    assert "0123456789abcdef" not in repr(discovery)
    web.fault = busy
    with pytest.raises(UnreadableError) as caught:
        content(source)
    texts = [
        str(caught.value),
        repr(caught.value),
        str(caught.value.__cause__),
        *getattr(caught.value, "__notes__", []),
    ]
    assert not any("SECRET" in text or "0123456789abcdef" in text for text in texts)
    del web.objects["rank3.json"]
    (finding,) = found(web.url(f"rank3.json{query}")).findings
    assert isinstance(finding, Finding)
    assert "SECRET" not in str(finding)


def test_hosts_are_no_ranks(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracelink._io.names import host_in_path, rank_in_path

    assert host_in_path("http://node1:9000/trace.json") == ""
    assert rank_in_path("s3://rank7/trace.json") is None
    assert host_in_path("s3://bucket/node0/trace.json") == "node0"


def test_names_of_users_as_they_are_in_addresses(web: Web) -> None:
    web.objects["a b%.json"] = b"{}"
    web.objects["odd.json"] = b"{}"
    addresses: dict[str, Any] = {"rank_of": {web.url("odd.json?sig=secret-text"): 3}}
    (source,) = discover(Request([(web.url("odd.json?sig=secret-text"), "")], **addresses)).sources
    assert source.rank == 3


def test_addresses_that_differ_in_what_is_not_shown(web: Web) -> None:
    bodies = {"id=1": b"one", "id=2": b"two"}

    def by_query(web: Web, handler: BaseHTTPRequestHandler) -> bool:
        return answered(handler, 200, bodies[handler.path.partition("?")[2]])

    web.fault = by_query
    sources = found(*(web.url(f"download?{query}") for query in ("id=1", "id=2", "id=1"))).sources
    assert {source.path: content(source) for source in sources} == {
        web.url("download"): b"one",
        web.url("download#2"): b"two",
    }
    assert len(sources) == 2
