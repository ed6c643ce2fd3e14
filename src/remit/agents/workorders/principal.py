"""The user, person and key that a session works for, and the usage of sub-agents' sessions."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from remit.agents.workorders.order import Usage
from remit.kernel.budget import BudgetScope
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import MAX_ID_CHARS
from remit.ledger import LedgerPort, require_plain_text


@dataclass(frozen=True, slots=True)
class Caller:
    """The tool call that a sub-agent's session answers.

    Attributes:
        session_id: session of the calling agent.
        work_order_id: order that made the call.
        agent_id: calling agent.
        idempotency_key: key of the tool call.
    """

    session_id: str
    work_order_id: str
    agent_id: str
    idempotency_key: str

    def to_dict(self) -> dict[str, str]:
        """Return the caller as ``SESSION_START`` records it."""
        return asdict(self)

    @classmethod
    def of(cls, recorded: Any) -> Caller | None:
        """Return the caller from the ``caller`` field of a ``SESSION_START``.

        None if the field is no object; absent members become empty texts.

        Args:
            recorded: the field's value.
        """
        if not isinstance(recorded, Mapping):
            return None
        return cls(*(str(recorded.get(name, "")) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class Principal:
    """The user, person and key that a session works for.

    Raises:
        InvalidInputError: the user or the person is longer than an id may be, or contains
            characters that not every database stores.

    Attributes:
        user_id: user whose budget is charged; empty for none.
        subject_id: person whom the content is about, for erasure; empty for nobody.
        callers: the calls that the session is a part of, from its own caller outwards.
        key_id: virtual key whose limits apply; empty for none.
        team_id: team of that key.
        organisation_id: organisation of that key.
    """

    user_id: str = ""
    subject_id: str = ""
    callers: tuple[Caller, ...] = ()
    key_id: str = ""
    team_id: str = ""
    organisation_id: str = ""

    def __post_init__(self) -> None:
        for name, value in (("user", self.user_id), ("subject_id", self.subject_id)):
            require_plain_text(name, value)
            if len(value) > MAX_ID_CHARS:
                raise InvalidInputError(
                    f"{name} has {len(value):,} characters; an id has at most {MAX_ID_CHARS}."
                )

    @property
    def charged_to(self) -> tuple[str, ...]:
        """Accounts that calls are charged to as well as those of the session.

        They belong to the key, and to the sessions and orders of the callers.
        """
        own = BudgetScope(key_id=self.key_id).path if self.key_id else ()
        return own + tuple(
            key
            for caller in reversed(self.callers)
            for key in BudgetScope(caller.session_id, caller.work_order_id, caller.agent_id).path
        )


NOBODY = Principal()
"""Of a session that works for anyone who talks to it."""


def sub_session_id(idempotency_key: str) -> str:
    """Return the id of the session that answers a tool call: ``SES-`` and 16 characters.

    Equal keys give equal ids.

    Args:
        idempotency_key: idempotency key of the tool call.
    """
    digest = hashlib.sha256(idempotency_key.encode()).digest()
    return f"SES-{base64.b32encode(digest[:10]).decode()}"


def callers_of(ledger: LedgerPort, session_id: str) -> tuple[Caller, ...]:
    """Return the calls that a recorded session is a part of, from its own caller outwards.

    Empty for a session that no agent called.

    Args:
        ledger: contains the sessions.
        session_id: the session.
    """
    found: list[Caller] = []
    while (caller := _caller_of(ledger, session_id)) is not None and caller not in found:
        found.append(caller)
        session_id = caller.session_id
    return tuple(found)


def _caller_of(ledger: LedgerPort, session_id: str) -> Caller | None:
    for entry in ledger.query(
        session_id=session_id, event_type="SESSION_START", limit=1, with_content=False
    ):
        return Caller.of(entry.metadata.get("caller"))
    return None


def tools_usage(ledger: LedgerPort, session_id: str) -> Usage:
    """Return the prices of a session's tools together with the usage of its sub-agents.

    Read from the ``TOOL_INTENT`` entries; each sub-agent's session counts once.

    Args:
        ledger: a handle that may read the session and its sub-agents' sessions.
        session_id: the session.
    """
    used, seen = Usage(), set()
    for entry in ledger.query(session_id=session_id, event_type="TOOL_INTENT", with_content=False):
        if price := entry.metadata.get("price_usd"):
            used.pay(price)
        name = entry.metadata.get("sub_session_id")
        if name and name not in seen:
            seen.add(name)
            used.include(session_usage(ledger, str(name)))
    return used


def session_usage(ledger: LedgerPort, session_id: str) -> Usage:
    """Return the usage of a session's exchanges, with its tools and sub-agents. Read-only.

    Args:
        ledger: contains the session.
        session_id: the session.
    """
    used = Usage(ledger.query(session_id=session_id, event_type="EXCHANGE", with_content=False))
    used.include(tools_usage(ledger, session_id))
    return used
