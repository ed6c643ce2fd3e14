"""``remit serve`` on a root that was grown, with somebody signed in."""

from __future__ import annotations

import http.client
import json
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from benchmarks.gateways import processes, rig
from benchmarks.gateways.launch import Launch, bearer, chat_url, running
from benchmarks.gateways.ours import ask
from benchmarks.gateways.target import Target
from benchmarks.rounds import new_directory


@dataclass
class Served:
    """A running server.

    Attributes:
        url: of the console.
        target: its chat endpoint, with a key that may call.
        pid: of its process.
        cookie: of a login as operator.
    """

    url: str
    target: Target
    pid: int
    cookie: str = ""
    _connection: http.client.HTTPConnection = field(init=False)

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=300)

    def get(self, path: str) -> bytes:
        """A page, over one connection that is kept.

        Raises:
            RuntimeError: it is none.
        """
        self._connection.request("GET", path, headers={"cookie": self.cookie})
        reply = self._connection.getresponse()
        body = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path}: {reply.status} {reply.getheader('location')}")
        return body

    def sign_in(self, key: str) -> None:
        """Wait until the key counts, and keep its cookie."""
        form = urlencode({"key": key, "next": "/"})
        kind = {"content-type": "application/x-www-form-urlencoded"}
        for _ in range(100):
            self._connection.request("POST", "/console/login", form, kind)
            reply = self._connection.getresponse()
            reply.read()
            if reply.status == 303:
                self.cookie = str(reply.getheader("set-cookie")).partition(";")[0]
                return
            time.sleep(0.1)
        raise RuntimeError("nobody could sign in")


@contextmanager
def serving(root: Path, scratch: Path) -> Iterator[Served]:
    """The server of a root in front of an upstream that answers at once."""
    ours, others = processes.cores()
    with rig.upstream(others) as upstream:
        environment = {"OPENAI_BASE_URL": f"{upstream.url}/v1", "OPENAI_API_KEY": "x"}
        remit: list[str | Path] = [sys.executable, "-m", "remit"]

        def key(role: str) -> str:
            name = f"{role}-{uuid.uuid4().hex[:8]}"
            line = ["key", "create", "--name", name, "--role", role, "--json", "--root"]
            return str(json.loads(ask([*remit, *line, root], environment))["key"])

        port, operator = processes.free_port(), key("operator")
        target = Target(chat_url(port), bearer(key("agent")))
        command = [*remit, "serve", "--host", "127.0.0.1", "--port", str(port), "--root", root]
        launch = Launch(command, target, environment)
        with running(launch, new_directory(scratch), ours) as gateway:
            served = Served(f"http://127.0.0.1:{port}", target, gateway.pid)
            served.sign_in(operator)
            yield served
