"""For whom a session works, and what the sessions that it starts come to."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from remit.agents.workorders.usage import Usage
from remit.kernel.budget import BudgetScope
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import MAX_ID_CHARS
from remit.ledger import LedgerPort, require_plain_text


@dataclass(frozen=True, slots=True)
class Caller:
    """The tool call that a sub-agent's session answers.

    Attributes:
        session_id: the caller's session.
        work_order_id: its order that made the call.
        agent_id: the agent that called.
        idempotency_key: of the call.
    """

    session_id: str
    work_order_id: str
    agent_id: str
    idempotency_key: str

    def to_dict(self) -> dict[str, str]:
        """As ``SESSION_START`` holds it."""
        return asdict(self)

    @classmethod
    def of(cls, recorded: Any) -> Caller | None:
        """The caller that a ``SESSION_START`` names; ``None`` where it names none."""
        if not isinstance(recorded, Mapping):
            return None
        return cls(*(str(recorded.get(name, "")) for name in cls.__slots__))


@dataclass(frozen=True, slots=True)
class Principal:
    """For whom a session works.

    Raises:
        InvalidInputError: the user or the person is not a text that every database keeps, or is
            longer than an id may be.

    Attributes:
        user_id: the user whose budget its calls count in; empty: nobody's.
        subject_id: the person of whom its content speaks, for erasure; empty: nobody.
        key_id: the virtual key for which it works, whose limits hold; empty: none.
        team_id: of that key; ``organisation_id`` too.
        callers: the calls that it is a part of, its own caller first.
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
        """The accounts of its key, and of the callers' sessions and orders: its calls count there
        too."""
        own = BudgetScope(key_id=self.key_id).path if self.key_id else ()
        return own + tuple(
            key
            for caller in reversed(self.callers)
            for key in BudgetScope(caller.session_id, caller.work_order_id, caller.agent_id).path
        )


NOBODY = Principal()
"""Of a session that works for anyone who talks to it."""


def sub_session_id(idempotency_key: str) -> str:
    """The session that answers a tool call: the same however often the call is made."""
    digest = hashlib.sha256(idempotency_key.encode()).digest()
    return f"SES-{base64.b32encode(digest[:10]).decode()}"


def callers_of(ledger: LedgerPort, session_id: str) -> tuple[Caller, ...]:
    """The calls that a recorded session is a part of, its own caller first."""
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
    """What a session's tools cost, and what the sub-agents among them used."""
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
    """What a session's exchanges add up to, with its tools and sub-agents."""
    used = Usage(ledger.query(session_id=session_id, event_type="EXCHANGE", with_content=False))
    used.include(tools_usage(ledger, session_id))
    return used
