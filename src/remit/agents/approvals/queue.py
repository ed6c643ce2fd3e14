"""The queue of approvals: what waits for a person, and what people said, by name."""

from __future__ import annotations

import builtins
import functools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from remit.agents.approvals.approval import (
    Approval,
    ApprovalError,
    approval_of,
    is_late,
    is_request,
    person_behind,
    person_of_session,
)
from remit.agents.approvals.decision import (
    SAID,
    append_decision,
    decision_entry,
    ended,
    exactly,
    subject_of,
)
from remit.agents.approvals.permit import Permit, arguments_hash
from remit.agents.approvals.policy import Policy, Vote, same
from remit.agents.approvals.webhook import Webhook
from remit.agents.tools import Tool
from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import sound_text
from remit.kernel.settings import ApprovalSettings, default_settings
from remit.ledger import (
    Erased,
    LedgerClient,
    LedgerEntry,
    content,
    is_authentic,
    parse_entry_id,
    require_plain_text,
)

__all__ = ["Approval", "ApprovalError", "ApprovalQueue", "asked"]

_LONGEST_DELEGATION = timedelta(days=30)


def asked(tool: Tool | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a request says of the exact action beside its arguments.

    Args:
        tool: as it is defined now; ``None`` where it is not known any more.
        arguments: what it is to run with.
    """
    said: dict[str, Any] = {"arguments_hash": content(arguments_hash(arguments))}
    if tool is not None:
        said |= {"tool_digest": tool.digest, "parameters": dict(tool.input_schema)}
    return said


class Caller(Protocol):
    """A caller of the server, by the parts of its identity that say who it is."""

    @property
    def key_id(self) -> str: ...
    @property
    def user_id(self) -> str: ...
    @property
    def name(self) -> str: ...


class ApprovalQueue:
    """The approvals of one ledger. The queue is the kernel's, so it sees all entries.

    A worker asks for its order (``APPROVAL_REQUESTED``) by itself. What runs tools without an
    order, such as a gateway in front of MCP servers, asks with :meth:`request` and begins with
    :meth:`permit`::

        approval = queue.request(tool, arguments, session_id=…, agent_id=…, requested_by=…)
        if approval.state == "granted":
            intent = LedgerEntry("TOOL_INTENT", …, metadata={… "tool_id", "arguments":
                approval.arguments, "idempotency_key": approval.idempotency_key})
            begin = queue.permit(approval.request_id).begin(intent, tool.digest, ledger.prepare)
            problem = ledger.transact(begin)  # empty: the intent is on record, the tool may run

    Args:
        ledger: whose requests these are.
        settings: ``[approvals]``; as shipped when left out.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        settings: ApprovalSettings | None = None,
    ) -> None:
        self._ledger = ledger
        self._settings = default_settings().approvals if settings is None else settings
        self._policy = Policy(ledger, self._settings)
        self._webhook: Webhook | None = None
        if url := self._settings.webhook.get_secret_value():
            self._webhook = Webhook(url, self._settings.webhook_secret.get_secret_value())

    def pending(self, *, session_id: str | None = None) -> builtins.list[Approval]:
        """Pending requests, the oldest first; of one session, or of all."""
        found = (
            self._approval(entry)
            for entry in self._ledger.query(
                event_type="APPROVAL_REQUESTED", session_id=session_id, order="asc"
            )
            if is_request(entry)
        )
        return [approval for approval in found if approval.state == "pending"]

    def list(self, *, session_id: str | None = None, limit: int = 100) -> Iterator[Approval]:
        """All requests, the latest first, with their outcomes."""
        for entry in self._ledger.query(
            event_type="APPROVAL_REQUESTED", session_id=session_id, order="desc", limit=limit
        ):
            if is_request(entry):
                yield self._approval(entry)

    def get(self, request_id: str) -> Approval:
        """One request in its present state.

        Raises:
            ApprovalError: the ledger has no such request.
        """
        return self._approval(self._request(request_id))

    def request(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        *,
        session_id: str,
        agent_id: str,
        requested_by: str = "",
        subject_id: str = "",
    ) -> Approval:
        """Ask for an action outside of any work order.

        The same action that waits in the session for the same client, or that was granted there
        and not used yet, is given back instead: one that calls again finds what was decided.

        Args:
            tool: as it is defined now.
            arguments: what it is to run with; they have a JCS encoding.
            session_id: whose history this is part of.
            agent_id: who asks: a client, or the agent that it names.
            requested_by: the person or key behind it, who may be kept from approving.
            subject_id: the person whom the arguments speak of; may be empty.

        Raises:
            InvalidInputError: the arguments cannot be recorded.
        """
        said, wanted = asked(tool, arguments), arguments_hash(arguments)
        whose = (agent_id, requested_by or person_of_session(self._ledger, session_id), "")
        for approval in self.list(session_id=session_id):
            if (approval.agent_id, approval.requested_by, approval.wo_id) != whose:
                continue
            before = approval.requested_arguments
            if (approval.tool_id, approval.tool_digest) != (tool.tool_id, tool.digest) or (
                isinstance(before, Erased) or arguments_hash(before) != wanted
            ):
                continue
            if approval.state == "pending" or (approval.state == "granted" and approval.usable()):
                return approval
        entry = LedgerEntry(
            event_type="APPROVAL_REQUESTED",
            submission_id=session_id,
            decision="APPROVAL_REQUESTED",
            reason=f"APPROVAL_REQUESTED for {session_id}",
            metadata={
                "provenance": {
                    "agent_id": agent_id, "agent_class": "OPERATOR", "session_id": session_id,
                },
                "scope": {"tier": "hot"},
                "tool_id": tool.tool_id,
                "arguments": dict(arguments),
                "idempotency_key": f"{session_id}/approval/{secrets.token_hex(8)}",
                "kind": "approval",
                **({"requested_by": requested_by} if requested_by else {}),
                **said,
            },
        )  # fmt: skip
        request_id = self._ledger.write(entry, subject_id=subject_id or None)
        self.announce(request_id)
        return self.get(request_id)

    def person_behind(self, caller: Caller) -> str:
        """Return the person whom a caller counts as, whatever the caller's key names.

        A key counts as the person who received its secret: the person of the key that asked for it
        over the network, or the user that a key made on the machine names. A caller whose key is
        not recorded here, such as a person who signed in with an account, is its user id or name.
        """
        key = caller.key_id
        person = person_behind(self._ledger, key) if key else ""
        return (caller.user_id or key or caller.name) if person == key else person

    def announce(self, request_id: str) -> None:
        """Tell the webhook of a request that was written, where there is one; returns at once."""
        if self._webhook is not None:
            self._webhook.send(request_id, functools.partial(self._message, request_id))

    def close(self) -> None:
        """End the webhook's thread."""
        if self._webhook is not None:
            self._webhook.close()

    def permit(self, request_id: str) -> Permit:
        """What a granted request lets begin, once.

        Raises:
            ApprovalError: there is no such request, or it is not granted.
        """
        request = self._request(request_id)
        for entry in self._said(request_id):
            if entry.event_type == "APPROVAL_GRANTED":
                return Permit(request, entry)
        raise ApprovalError(
            f"{request_id} is not granted.",
            next_step=f"Decide it with `remit approve {request_id}`.",
        )

    def decide(
        self,
        request_id: str,
        *,
        granted: bool,
        by: str,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        until: datetime | None = None,
        person: str = "",
        subject_id: str = "",
    ) -> str:
        """Grant or deny a request; returns the id of the entry that says so.

        Where the tool needs several people, the entry is an ``APPROVAL_SIGNED`` until the last
        of them grants the same arguments; anybody's no is the end of it.

        Args:
            request_id: id of the ``APPROVAL_REQUESTED``.
            granted: whether the tool may run.
            by: the name of who decides, for the record.
            reason: a word for the record, and for the model when denied.
            arguments: what the tool is to run with instead of what was asked for; they must fit
                its schema. Where somebody has changed them already, say which ones are meant.
            until: when the approval ends, unused; at most ``[approvals] valid_s`` from now, which
                it is when left out.
            person: the person behind that name, as :meth:`person_behind` finds for a
                caller; two names of one person are one person. The name itself if empty.
            subject_id: the person whom the decision speaks of; the request's person if empty.

        Raises:
            ApprovalError: there is no such request, it is decided, or its order has ended; who
                decides may not; what it is for was erased.
            InvalidInputError: the arguments do not fit; ``until`` is past or too late.
        """
        if not same(by):
            raise ApprovalError(
                "The name of the person who decides is missing.", next_step="Give it as `by`."
            )
        require_plain_text("by", by)
        reason = sound_text(reason)
        while True:
            request, said = self._request(request_id), self._said(request_id)
            approval = self._approval(request, said)
            self._check_open(approval)
            about: dict[str, Any] = {"decided_by": by, "decision_reason": reason}
            if person and person != by:
                about["person"] = person
            event_type = "APPROVAL_DENIED"
            if granted:
                about |= exactly(request, said, arguments)
                about["expires"] = self._expiry(until)
                event_type = self._signed_or_granted(approval, said, about)
            entry = self._ledger.prepare(
                decision_entry(event_type, request, about),
                subject_id=subject_id or subject_of(request),
            )
            seen = frozenset(one.id for one in said)
            written = self._ledger.transact(
                functools.partial(append_decision, entry, approval, seen)
            )
            if written:
                return written

    def _signed_or_granted(
        self, approval: Approval, said: Sequence[LedgerEntry], about: dict[str, Any]
    ) -> str:
        """Which event a yes is, by those who said yes to the same action before."""
        by = about["decided_by"]
        vote = self._policy.vote(approval, by, about.get("person", by))
        exact = about["arguments_hash"]
        agreed = [
            one
            for one in said
            if one.metadata.get("arguments_hash") == exact
            and one.metadata.get("decided_by")
            and not is_late(one.metadata.get("expires", ""))
        ]
        others = [Vote.of(one) for one in agreed]
        self._policy.check(approval, vote, others)
        about |= vote.named()
        # What they grant together ends with the first of them; all times have one form.
        about["expires"] = min([about["expires"], *(one.metadata["expires"] for one in agreed)])
        return "APPROVAL_SIGNED" if len(others) + 1 < approval.people else "APPROVAL_GRANTED"

    def delegate(
        self, *, by: str, to: str, until: datetime, reason: str = "", subject_id: str = ""
    ) -> str:
        """Let somebody approve in one's place for a time; returns the id of the entry.

        It is for tools whose approvers are named (``[approvals.tools.TOOL] approvers``), is not
        passed on by who gets it, and ends early by delegating again until now.

        Args:
            by: who delegates.
            to: who approves in their place.
            until: when it ends, at most 30 days from now.
            reason: for the record.
            subject_id: the person whom the reason speaks of; may be empty.

        Raises:
            InvalidInputError: a name is missing, both are one, or it would last too long.
        """
        require_plain_text("by", by)
        require_plain_text("to", to)
        reason = sound_text(reason)
        if not same(by) or not same(to) or same(by) == same(to):
            raise InvalidInputError(
                "A delegation is from one person to another.", next_step="Name both, by two names."
            )
        if until > datetime.now(UTC) + _LONGEST_DELEGATION:
            raise InvalidInputError(
                f"A delegation lasts {_LONGEST_DELEGATION.days} days at most.",
                next_step="Delegate for a shorter time, and again later.",
            )
        return self._ledger.write(
            LedgerEntry(
                event_type="APPROVAL_DELEGATED",
                submission_id="approvals",
                decision="DELEGATED",
                reason="Approvals delegated",
                metadata={
                    "delegator": by,
                    "delegate": to,
                    "until": _stated(until),
                    "decision_reason": reason,
                },
            ),
            subject_id=subject_id or None,
        )

    def _message(self, request_id: str) -> dict[str, Any]:
        """What the webhook is sent about a request."""
        approval = self.get(request_id)
        data = {
            name: getattr(approval, name)
            for name in (
                "request_id", "wo_id", "session_id", "agent_id", "requested_by", "tool_id", "kind",
                "requested_at", "people",
            )
        }  # fmt: skip
        if self._settings.webhook_content:
            data["arguments"] = approval.arguments
        return {"type": "approval.requested", "timestamp": approval.requested_at, "data": data}

    def _request(self, request_id: str) -> LedgerEntry:
        entry = None
        if (seq := parse_entry_id(request_id)) is not None:
            found = self._ledger.query(event_type="APPROVAL_REQUESTED", after=seq - 1, limit=1)
            entry = next(found, None)
        if entry is None or entry.id != request_id or not is_request(entry):
            raise ApprovalError(
                f"{request_id!r} is not a request for approval.",
                next_step="`remit approve` lists what waits.",
            )
        return entry

    def _said(self, request_id: str) -> builtins.list[LedgerEntry]:
        """What people said to a request, in ledger order."""
        found = (
            entry
            for event_type in SAID
            for entry in self._ledger.query(submission_id=request_id, event_type=event_type)
        )
        return sorted(filter(is_authentic, found), key=lambda entry: int(entry.id[4:], 16))

    def _approval(
        self, request: LedgerEntry, said: builtins.list[LedgerEntry] | None = None
    ) -> Approval:
        said = self._said(request.id) if said is None else said
        return approval_of(self._ledger, request, said, self._policy.people)

    def _check_open(self, approval: Approval) -> None:
        if approval.state == "void":
            raise ended(approval)
        if approval.state != "pending":
            raise ApprovalError(
                f"{approval.request_id} is decided already.",
                next_step=f"It was {approval.state} by {approval.decided_by}; "
                f"`remit approve {approval.request_id}` shows it.",
            )

    def _expiry(self, until: datetime | None) -> str:
        """When the approval ends, unused."""
        now = datetime.now(UTC)
        latest = now + timedelta(seconds=self._settings.valid_s)
        until = latest if until is None else until.astimezone(UTC)
        if not now < until <= latest:
            raise InvalidInputError(
                f"An approval cannot hold until {_stated(until)}.",
                next_step=f"It holds until {_stated(latest)} at most ([approvals] valid_s).",
            )
        return _stated(until)


def _stated(moment: datetime) -> str:
    """A time as entries state it."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
