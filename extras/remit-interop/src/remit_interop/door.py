"""The place where models of attached runs are called: this process on loopback, or a server."""

from __future__ import annotations

from typing_extensions import override

from remit.gateway.auth import AgentTokens, agent_secret
from remit.kernel.loops import Closeable
from remit.runtime import Conversation, Runtime
from remit.server import LoopbackServer
from remit_interop.run import Run


class Door(Closeable):
    """Attaches runs of other frameworks' agents to sessions of a runtime.

    Args:
        runtime: the open root.
        url: of a ``remit serve`` of the same root; left out, the endpoints are served by this
            process, on loopback, until the door is closed.

    Raises:
        RemitError: no port can be listened on.
    """

    def __init__(self, runtime: Runtime, url: str = "") -> None:
        self._tokens = AgentTokens(agent_secret(runtime.root))
        self._own = None if url else LoopbackServer(runtime)
        self.url = self._own.url if self._own is not None else url.rstrip("/")

    def attach(self, session: Conversation, task: str, *, key: str | None = None) -> Run:
        """Return a run of a foreign agent, which is a context manager.

        Args:
            session: of the :class:`~remit.runtime.Agent` whose tools, limits and approvals hold.
            task: the work to do, for the record.
            key: names the run within its session; a run that was interrupted, or waited for a
                person, continues under the same key and task.
        """
        return Run(session, task, key, self.url, self._tokens)

    @override
    def close(self) -> None:
        """Take no more calls, and wait for those that run."""
        if self._own is not None:
            self._own.close()
