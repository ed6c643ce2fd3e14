"""An index on a web server, an honest one and others."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tuf.ngclient import Updater

from index_tests.making import (
    SETTINGS,
    Handler,
    archive,
    client,
    listed,
    publisher,
    refused,
    root_json,
    serving,
)
from remit_index import PackageIndex


def moved_to(top: Path, url: str, **changed: Any) -> PackageIndex:
    """The index that was added, at another place."""
    return client(top, location=url, **changed)


def test_a_plain_web_server(served: Path) -> None:
    file = archive(served, version="1.1.0-a.1+b")
    publisher(served).publish(file)
    with serving(Handler, served / "served") as url:
        index = client(served, location=f"{url}/")
        index.add(root_json(served))
        assert index.fetch("PKG-EXAMPLE-001", "1.1.0-a.1+b").data == file.read_bytes()
        publisher(served).publish(archive(served, version="1.2.0"))
        publisher(served).rotate("timestamp")
        index.refresh()
        assert listed(index) == [("PKG-EXAMPLE-001", "1.2.0")]


def test_a_client_that_others_wrote(served: Path) -> None:
    """The reference client of TUF, with nothing of ours."""
    publisher(served).rotate("targets")
    state, into = served / "reference", served / "into"
    state.mkdir()
    into.mkdir()
    with serving(Handler, served / "served") as url:
        updater = Updater(
            str(state),
            f"{url}/metadata/",
            str(into),
            f"{url}/targets/",
            bootstrap=root_json(served),
        )
        updater.refresh()
        target = updater.get_targetinfo("packages/PKG-EXAMPLE-001/1.0.0.tar.gz")
        assert target is not None
        got = Path(updater.download_target(target))
    assert got.read_bytes() == (served / "PKG-EXAMPLE-001-1.0.0.tar.gz").read_bytes()


class _Breaking(Handler):
    """Says that more comes than does, of the files with that end."""

    end = ""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        if not self.path.endswith(self.end):
            super().copyfile(source, outputfile)
            return
        outputfile.write(source.read(200))
        outputfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True


class _BreakingLater(_Breaking):
    end = ".targets.json"


class _Pouring(Handler):
    chunk = bytes(1 << 16)
    pause_s = 0.0

    def do_GET(self) -> None:  # noqa: N802
        if self.path.endswith("root.json"):
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(self.chunk)
                time.sleep(self.pause_s)
        except OSError:
            self.close_connection = True


class _Dripping(_Pouring):
    chunk = b" "
    pause_s = 0.02


class _NoHttp(Handler):
    def handle(self) -> None:
        self.request.sendall(b"this is no http\r\n\r\n" * 10)


class _TooLongHead(Handler):
    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 5000 + b"\r\n")


@pytest.mark.parametrize(
    ("handler", "code", "match"),
    [
        (_Breaking, "index_unreachable", "broke off"),
        (_BreakingLater, "index_unreachable", "broke off"),
        (_Pouring, "index_mixed", "more bytes of timestamp.json"),
        (_Dripping, "index_unreachable", "not come after 0.4 s"),
        (_NoHttp, "index_unreachable", None),
        (_TooLongHead, "index_unreachable", None),
    ],
)
def test_a_bad_server(
    served: Path, team: PackageIndex, handler: Any, code: str, match: str | None
) -> None:
    publisher(served).publish(archive(served, version="1.1.0"))
    with serving(handler, served / "served") as url:
        refused(moved_to(served, url, download_s=0.4), code, match)
    team.refresh()
    assert listed(team) == [("PKG-EXAMPLE-001", "1.1.0")]


def test_a_server_that_is_silent_or_down(served: Path, team: PackageIndex) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        refused(moved_to(served, url, timeout_s=0.3), "index_unreachable", "silent for 0.3 s")
    refused(moved_to(served, url), "index_unreachable", ": Connection refused;")


def test_other_answers(served: Path, team: PackageIndex) -> None:
    class Answering(Handler):
        def do_GET(self) -> None:  # noqa: N802
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving(Answering, served / "served") as url:
        for status in (204, 206, 304, 401, 403, 404, 429, 500, 503):
            refused(moved_to(served, url), "index_unreachable", f"status {status}")


def _redirecting(target: str) -> Any:
    class Redirecting(Handler):
        def do_GET(self) -> None:  # noqa: N802
            if self.path.startswith("/served"):
                super().do_GET()
                return
            self.send_response(302)
            self.send_header("Location", target.replace("PATH", self.path))
            self.end_headers()

    return Redirecting


def test_redirects(served: Path, team: PackageIndex) -> None:
    for target, match in (
        ("https://127.0.0.1:9/", "another scheme"),
        ("file:///etc/passwd", "neither a directory"),
        ("ftp://127.0.0.1/", "neither a directory"),
        ("http://index.invalid/PATH", "unencrypted http beyond"),
        ("http://user:secret@127.0.0.1:9/", "user or a password"),
        ("http://[::1", "no URL"),
        ("/again", "redirected more than 2 times"),
    ):
        with serving(_redirecting(target), served / "served") as url:
            error = refused(moved_to(served, url), "index_unreachable", match)
            assert "secret" not in str(error.value)
    publisher(served).publish(archive(served, version="1.1.0"))
    with serving(_redirecting("/servedPATH"), served) as url:  # on the server
        index = moved_to(served, url)
        index.refresh()
        assert listed(index) == [("PKG-EXAMPLE-001", "1.1.0")]
        assert index.fetch("PKG-EXAMPLE-001").data


def test_an_encoding_is_not_undone(served: Path, team: PackageIndex) -> None:
    """Servers that say that a ``.tar.gz`` is an encoded ``.tar`` send the same bytes."""

    class Encoding(Handler):
        def end_headers(self) -> None:
            if self.path.endswith(".gz"):
                self.send_header("Content-Encoding", "gzip")
            super().end_headers()

    with serving(Encoding, served / "served") as url:
        got = moved_to(served, url).fetch("PKG-EXAMPLE-001")
        assert got.data == (served / "PKG-EXAMPLE-001-1.0.0.tar.gz").read_bytes()


def test_a_proxy_is_used_and_its_password_not_shown(
    served: Path, team: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Proxy(Handler):
        def do_GET(self) -> None:  # noqa: N802
            seen.append(self.path)
            self.path = self.path.removeprefix("http://index.invalid")
            super().do_GET()

    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    with serving(Proxy, served / "served") as url:
        monkeypatch.setenv("http_proxy", url.replace("//", "//me:secret@"))
        index = PackageIndex(
            served / "root", "team", "http://index.invalid", SETTINGS, insecure_http=True
        )
        index.refresh()
        assert seen[0] == "http://index.invalid/metadata/2.root.json"
        count = len(seen)
    error = refused(index, "index_unreachable", "proxy")
    assert "secret" not in repr(error.value.__cause__) + str(error.value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(Handler, served / "served") as url:
        moved_to(served, url).refresh()
    assert len(seen) == count
