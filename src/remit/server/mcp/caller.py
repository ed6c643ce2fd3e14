"""Who calls a tool, and in whose name it then acts."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

import orjson

from remit.gateway.auth import Identity
from remit.kernel.errors import RemitError

__all__ = ["DEVELOPER", "LOCAL", "Caller", "NotAllowedError", "calling", "current_caller"]

DEVELOPER = Identity("developer", "operator", key_id="dev")
"""Whoever asks over HTTP in dev mode."""

LOCAL = Identity("local-operator", "operator", key_id="local", user_id="local-operator")
"""Whoever starts ``remit mcp`` over stdio; the user is there to be given a budget."""


class NotAllowedError(RemitError):
    """Who calls may not do this."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    Attributes:
        identity: as the key tells.
    """

    identity: Identity

    @property
    def role(self) -> str:
        """The role, as :data:`remit.gateway.auth.ROLES` names it."""
        return self.identity.role

    @property
    def held(self) -> bool:
        """Whether it is held to what is its own; those that operate a root are not."""
        return self.role == "agent"

    @property
    def owner(self) -> str:
        """Whose own that is: the same for all keys of one user.

        Without a key it is the agent's in the one session that its token was made for.
        """
        identity = self.identity
        if identity.user_id:
            return f"user:{identity.user_id}"
        if identity.key_id:
            return f"key:{identity.key_id}"
        if identity.session_id:  # as JSON: names hold anything
            return f"token:{orjson.dumps([identity.session_id, identity.name]).decode()}"
        return f"name:{identity.name}"

    def may(self, permission: str) -> bool:
        """Whether its role has a permission (:data:`remit.gateway.auth.PERMISSIONS`)."""
        return self.identity.may(permission)

    def agent_id(self, asked: str) -> str:
        """The agent in whose name it acts: the one that is asked for, else its own.

        Raises:
            NotAllowedError: the key may not act as that agent.
        """
        agents = self.identity.agents
        found = asked or (agents[0] if agents else self.identity.name)
        if not self.identity.may_act_as(found):
            raise NotAllowedError(
                f"This key may not act as the agent {found!r}.",
                next_step="Leave agent_id out, or ask the operator for a key that may.",
            )
        return found

    def session_id(self, asked: str) -> str:
        """The session that it works in: the one that is asked for, else that of its token.

        Raises:
            NotAllowedError: its token is for another session.
        """
        own = self.identity.session_id
        if own and asked and asked != own:
            raise NotAllowedError(
                "This token is for another session.", next_step="Leave session_id out."
            )
        return asked or own


calling: ContextVar[Caller] = ContextVar("remit_mcp_caller")
"""Set by the server around each call; a tool's thread sees it too."""


def current_caller() -> Caller:
    """Who calls the tool that this code runs for.

    Raises:
        LookupError: no call is being answered; nobody is ever assumed.
    """
    return calling.get()
