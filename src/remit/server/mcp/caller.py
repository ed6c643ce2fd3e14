"""The caller of a tool, and in whose name it acts."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

import orjson

from remit.gateway.auth import Identity
from remit.kernel.errors import RemitError

LOCAL = Identity("local-operator", "operator", key_id="local", user_id="local-operator")
"""The caller over stdio, who started ``remit mcp``; the user id lets a budget be set."""


class NotAllowedError(RemitError):
    """The caller may not do this."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a tool.

    Attributes:
        identity: as its key was authenticated.
    """

    identity: Identity

    @property
    def restricted(self) -> bool:
        """Whether it sees only what is its own, as agents do."""
        return self.identity.role == "agent"

    @property
    def owner(self) -> str:
        """The owner of what it records: one for all keys of a user.

        Without a key, the agent in the one session that its token was made for.
        """
        identity = self.identity
        if identity.user_id:
            return f"user:{identity.user_id}"
        if identity.key_id:
            return f"key:{identity.key_id}"
        if identity.session_id:  # as JSON: names hold anything
            return f"token:{orjson.dumps([identity.session_id, identity.name]).decode()}"
        return f"name:{identity.name}"

    def agent_id(self, requested: str) -> str:
        """The agent in whose name it acts: the requested one, else its own.

        Raises:
            NotAllowedError: the key may not act as that agent.
        """
        agents = self.identity.agents
        found = requested or (agents[0] if agents else self.identity.name)
        if not self.identity.may_act_as(found):
            raise NotAllowedError(
                f"This key may not act as the agent {found!r}.",
                next_step="Leave agent_id out, or ask the operator for a key that may.",
            )
        return found

    def session_id(self, requested: str) -> str:
        """The session that it works in: the requested one, else that of its token.

        Raises:
            NotAllowedError: its token is for another session.
        """
        own = self.identity.session_id
        if own and requested not in ("", own):
            raise NotAllowedError(
                "This token is for another session.", next_step="Leave session_id out."
            )
        return requested or own


calling: ContextVar[Caller] = ContextVar("remit_mcp_caller")
"""Set by the server around each call, for the tool's thread too."""


def current_caller() -> Caller:
    """The caller of the running tool.

    Raises:
        LookupError: no tool is running; there is no default.
    """
    return calling.get()
