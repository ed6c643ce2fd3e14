"""A store that cannot be written between ``DISPATCH`` and ``EXCHANGE``: the answer is kept."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest

from remit.gateway.budget import BudgetScope, TokenBudgeter, audit_budgets
from tests.server.console.client import Visitor, signed_in
from tests.server.running import Served, new_session, prompt, serving
from tests.support.postgres import PostgresServer
from tests.support.upstream import Upstream
from tests.support.waiting import until

_LOG_BYTES = 48_000  # what a server may write to its log while no file may grow beyond it


class Store(Protocol):
    """A server on a store that can be made to fail."""

    served: Served

    def fail(self) -> None:
        """Nothing can be written from now on."""

    def mend(self) -> None:
        """It can again."""


class Sqlite:
    """A full disk, as the kernel tells it: no file may be longer."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._limits = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
        log = Path(f"{served.store}-wal")
        until(lambda: served.call("openai", "hi")[0] == 200 and log.stat().st_size > 2 * _LOG_BYTES)

    def fail(self) -> None:
        limits = (_LOG_BYTES, self._limits[1])
        resource.prlimit(self.served.process.pid, resource.RLIMIT_FSIZE, limits)

    def mend(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.served.process.pid, resource.RLIMIT_FSIZE, self._limits)


class Postgres:
    """A database server that is killed, and started again."""

    def __init__(self, served: Served, server: PostgresServer) -> None:
        self.served = served
        self._server = server
        self._is_down = False

    def fail(self) -> None:
        self._server.kill()
        self._is_down = True

    def mend(self) -> None:
        if self._is_down:
            self._server.start()
            self._is_down = False


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    root = tmp_path_factory.mktemp("paid") / "root"
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            one: Any = Sqlite(stack.enter_context(serving(root, upstream.url)))
        else:
            directory = Path(tempfile.mkdtemp(prefix="remit-paid-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            server = PostgresServer(directory)
            stack.callback(server.stop)
            served = serving(root, upstream.url, database=server.database())
            one = Postgres(stack.enter_context(served), server)
        yield one


@pytest.fixture(autouse=True)
def _mended(store: Store) -> Iterator[None]:
    yield
    store.mend()


@pytest.fixture
def asking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def _is_ready(served: Served) -> tuple[bool, str]:
    status, body, _ = served.ask("GET", "/readyz", token="")
    return status == 200, json.loads(body).get("reason", "")


def _dispatched(served: Served, session: str) -> None:
    until(lambda: bool(served.entries("DISPATCH", session)))


def _fails_before_the_answer(store: Store, session: str) -> None:
    """From between ``DISPATCH`` and ``EXCHANGE`` on nothing can be written, and it is noticed."""
    _dispatched(store.served, session)
    store.fail()
    # Of two lost connections the reader's may be the first to be noticed.
    until(lambda: "the ledger cannot be" in _is_ready(store.served)[1])


def _held(served: Served, session: str) -> int:
    return sum(state.reserved_tokens for state in TokenBudgeter(served.ledger).status(
        BudgetScope(session)
    ))  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_put_on_record_and_given_when_the_store_is_back(
    store: Store, asking: ThreadPoolExecutor, stream: bool
) -> None:
    served, session = store.served, new_session()
    TokenBudgeter(served.ledger).allocate(BudgetScope(session), 100_000)
    # The first looks at pages before there is a console, the second was signed in.
    visitor, path = (signed_in(served), "/") if stream else (Visitor(served), "/console/login")
    call: Future[Any] = asking.submit(
        served.call, "openai", "hello [[delay=1.5]]", session=session, stream=stream
    )
    _fails_before_the_answer(store, session)
    status, body, headers = served.call("openai", "no", session=new_session())
    assert status == 503
    refused = json.loads(body)["error"]
    assert refused["code"] in ("record_unavailable", "auth_unavailable")
    if refused["code"] == "record_unavailable":
        assert "not sent to a provider" in refused["message"]
    assert headers["retry-after"] == "1"
    page = visitor.get(path)
    if isinstance(store, Postgres):  # where nothing can be read either
        assert page.status == 503
        assert "does not answer" in page.text
        assert page.headers["retry-after"] == "1"
    assert not call.done()  # nothing is answered that is not on record
    store.mend()
    status, body, _ = call.result(60)
    assert status == 200, body
    assert served.exchange(session).metadata["outcome"] == "success"
    until(lambda: _is_ready(served)[0])
    until(lambda: visitor.get(path).status == 200)
    assert _held(served, session) == 0
    assert audit_budgets(served.ledger).equal
    assert served.call("openai", "yes")[0] == 200


def test_who_hung_up_meanwhile_leaves_a_whole_record(store: Store) -> None:
    served, session = store.served, new_session()
    call = served.request(prompt("hello [[delay=1.5]]"), f"x-remit-session: {session}")
    with served.connected(call):
        _fails_before_the_answer(store, session)
    store.mend()
    until(lambda: bool(served.entries("EXCHANGE", session)))
    assert served.exchange(session).metadata["outcome"] in ("success", "error")


def test_an_answer_without_file_descriptors(store: Store, asking: ThreadPoolExecutor) -> None:
    served, session = store.served, new_session()
    call = asking.submit(served.call, "openai", "hello [[delay=1.5]]", session=session)
    _dispatched(served, session)
    limits = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
    try:
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        assert call.result(60)[0] == 200
    finally:
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, limits)
    assert served.exchange(session).metadata["outcome"] == "success"


def test_an_ending_server_tries_until_its_drain_ends(
    store: Store, asking: ThreadPoolExecutor
) -> None:
    """The last one: the server is gone after it."""
    served, session = store.served, new_session()
    call = asking.submit(served.call, "openai", "hello [[delay=1.5]]", session=session)
    _fails_before_the_answer(store, session)
    served.process.send_signal(signal.SIGTERM)
    with pytest.raises(TimeoutError):
        call.result(1)
    store.mend()
    assert call.result(60)[0] == 200
    assert served.process.wait(60) == 0
    assert served.exchange(session).metadata["outcome"] == "success"
