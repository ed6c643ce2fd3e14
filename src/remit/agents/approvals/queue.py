"""The approvals of a ledger: requests, decisions and permits."""

from __future__ import annotations

import builtins
import functools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from remit.agents.approvals.approval import (
    Approval,
    ApprovalError,
    Permit,
    approval_of,
    arguments_hash,
    is_expired,
    is_request,
)
from remit.agents.approvals.decision import (
    ANSWER_EVENTS,
    append_decision,
    comparable_name,
    decision_entry,
    granted_action,
    order_ended_error,
    require_approver,
    require_new_vote,
    subject_of,
)
from remit.agents.approvals.persons import key_person, person_of_session
from remit.agents.approvals.webhook import Webhook, message_of
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
    time_text,
)


def _is_of(approval: Approval, action: tuple[str, ...], wanted: str) -> bool:
    """Return True if an approval is of an action with arguments of the hash ``wanted``."""
    requested = approval.requested_arguments
    stated = (
        approval.agent_id, approval.requested_by, approval.wo_id, approval.tool_id,
        approval.tool_digest,
    )  # fmt: skip
    is_known = action == stated and not isinstance(requested, Erased)
    return is_known and arguments_hash(requested) == wanted


def _answer_of(
    by: str, approval: Approval, answers: Sequence[LedgerEntry], granted: bool, arguments: Any,
    now: datetime,
) -> str:  # fmt: skip
    """Return the id of an answer of a person that counts and decides the same; empty if none does.

    A denial is the same for all arguments. An expired or used grant does not count.
    """
    if approval.state != "pending" and approval.usable(now) != granted:
        return ""
    for answer in answers:
        data, is_denial = answer.metadata, answer.event_type == "APPROVAL_DENIED"
        decider = comparable_name(str(data.get("decided_by", "")))
        if is_denial == granted or decider != comparable_name(by):
            continue
        if is_denial or (
            not isinstance(arguments, Erased)
            and data.get("arguments_hash") == arguments_hash(arguments)
            and not is_expired(data.get("expires"), now)
        ):
            return answer.id
    return ""


def action_fields(tool: Tool | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with which a request identifies its action, in addition to the arguments.

    The fields are ``arguments_hash``, and for a present tool ``tool_digest`` and ``parameters``.
    The hash is content, because it reveals something about the arguments.

    Args:
        tool: the tool as presently defined; None if the program no longer has it.
        arguments: the arguments with which it is to run.

    Raises:
        InvalidInputError: the arguments cannot be expressed as JSON.
    """
    fields: dict[str, Any] = {"arguments_hash": content(arguments_hash(arguments))}
    if tool is not None:
        fields |= {"tool_digest": tool.digest, "parameters": dict(tool.input_schema)}
    return fields


class ApprovalQueue:
    """The approvals of one ledger. Requests of all sessions are visible.

    A worker writes the ``APPROVAL_REQUESTED`` of its order by itself. A program that runs tools
    without an order, such as a gateway in front of MCP servers, calls :meth:`request`, and
    :meth:`permit` once the request is granted::

        approval = queue.request(
            tool, arguments, session_id=…, agent_id=…, requested_by=…
        )
        if approval.state == "granted":
            intent = LedgerEntry("TOOL_INTENT", …, metadata={
                …, "tool_id": tool.tool_id, "arguments": approval.arguments,
                "idempotency_key": approval.idempotency_key,
            })
            permit = queue.permit(approval.request_id)
            begin = permit.begin(intent, tool.digest, ledger.prepare)
            problem = ledger.transact(begin)
            # If problem is empty, the intent is recorded, and the tool may run.

    New requests are announced to the webhook of the settings, by a thread that :meth:`close` stops.
    :meth:`decide` writes a person's answer; the other methods except :meth:`request` write nothing.
    An object may be used by several threads.

    Args:
        ledger: the ledger.
        settings: ``[approvals]``; the default settings if omitted.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        settings: ApprovalSettings | None = None,
    ) -> None:
        self._ledger = ledger
        self._settings = default_settings().approvals if settings is None else settings
        self._webhook: Webhook | None = None
        if url := self._settings.webhook.get_secret_value():
            self._webhook = Webhook(url, self._settings.webhook_secret.get_secret_value())

    def pending(self, *, session_id: str | None = None) -> builtins.list[Approval]:
        """Return the pending requests, oldest first, without a limit.

        Malformed requests are left out. All requests are read.

        Args:
            session_id: requests of one session; None for all.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found = (
            self._approval(entry)
            for entry in self._ledger.query(
                event_type="APPROVAL_REQUESTED", session_id=session_id, order="asc"
            )
            if is_request(entry)
        )
        return [approval for approval in found if approval.state == "pending"]

    def list(self, *, session_id: str | None = None, limit: int = 100) -> Iterator[Approval]:
        """Yield requests in any state, latest first.

        Nothing is read before the first iteration.

        Args:
            session_id: requests of one session; None for all.
            limit: maximum number of ``APPROVAL_REQUESTED`` entries read; malformed ones are
                skipped.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        for entry in self._ledger.query(
            event_type="APPROVAL_REQUESTED", session_id=session_id, order="desc", limit=limit
        ):
            if is_request(entry):
                yield self._approval(entry)

    def get(self, request_id: str) -> Approval:
        """Return a request in its present state.

        Args:
            request_id: id of the ``APPROVAL_REQUESTED`` entry.

        Raises:
            ApprovalError: the ledger contains no such request, or the entry is malformed.
            LedgerError: the ledger cannot be read.
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
        """Request approval of an action outside work orders; return the request.

        A pending or usable request of the same agent, requester, tool, definition and requested
        arguments among the session's latest 100 is returned instead; one that was denied, used or
        expired is not. A new request is written as ``APPROVAL_REQUESTED`` and then announced to the
        webhook. The call does not wait for a decision.

        Args:
            tool: the tool as presently defined.
            arguments: the arguments with which it is to run.
            session_id: the session to which the request belongs; not empty.
            agent_id: the requesting client, or the agent that the client names; not empty.
            requested_by: the person or key on whose behalf it is requested; policies may forbid
                this person to approve. The person of the session if empty.
            subject_id: the person to whom the arguments relate; may be empty.

        Raises:
            InvalidInputError: the arguments cannot be recorded.
            LedgerError: the ledger cannot be read or written.
        """
        fields, wanted = action_fields(tool, arguments), arguments_hash(arguments)
        requester = requested_by or person_of_session(self._ledger, session_id)
        action = (agent_id, requester, "", tool.tool_id, tool.digest)
        now = self._ledger.wall_time
        for approval in self.list(session_id=session_id):
            if _is_of(approval, action, wanted) and (
                approval.state == "pending" or approval.usable(now)
            ):
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
                **fields,
            },
        )  # fmt: skip
        request_id = self._ledger.write(entry, subject_id=subject_id or None)
        self.announce(request_id)
        return self.get(request_id)

    def person_behind(self, key_id: str, user_id: str, name: str) -> str:
        """Return the person whom a caller represents, whatever user the caller's key names.

        A key represents the person who received its secret: the person of the key that requested it
        over the network, or the user named by a key that was made on the machine. A caller without
        a recorded key, such as a person who signed in with an account, is represented by user id or
        name. Read-only.

        Args:
            key_id: id of the caller's virtual key; empty if the caller has none.
            user_id: the caller's user id; may be empty.
            name: the caller's name, used if the ids name no person.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        person = key_person(self._ledger, key_id) if key_id else ""
        return (user_id or key_id or name) if person == key_id else person

    def announce(self, request_id: str) -> None:
        """Queue a webhook message about a request, without waiting.

        Does nothing if no webhook is configured. The message contains the arguments only if
        ``[approvals] webhook_content`` is set.

        Args:
            request_id: id of the request; its entry is read when the message is sent.
        """
        if self._webhook is not None:
            with_arguments = self._settings.webhook_content
            self._webhook.send(
                request_id, lambda: message_of(self.get(request_id), with_arguments=with_arguments)
            )

    def close(self) -> None:
        """Stop the webhook's thread, if any; wait at most 2 s. Queued messages may be lost."""
        if self._webhook is not None:
            self._webhook.close()

    def permit(self, request_id: str) -> Permit:
        """Return the permit of a granted request. Writes nothing.

        The permit itself checks whether it is expired or used, when an action begins with it.

        Args:
            request_id: id of the ``APPROVAL_REQUESTED`` entry.

        Raises:
            ApprovalError: there is no such request, or it is not granted.
            LedgerError: the ledger cannot be read.
        """
        request = self._request(request_id)
        for entry in self._answers(request_id):
            if entry.event_type == "APPROVAL_GRANTED":
                return Permit(request, entry)
        raise ApprovalError(
            f"{request_id} is not granted.",
            next_step=f"Run `remit approve {request_id}` to decide it.",
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
        may_repeat: bool = False,
    ) -> str:
        """Grant or deny a request, and return the id of the entry written.

        If a tool needs several people, each grant is an ``APPROVAL_SIGNED``, until the last of them
        grants the same arguments (``APPROVAL_GRANTED``). Expired signatures and those for other
        arguments do not count. One denial (``APPROVAL_DENIED``) is final; no policy restricts who
        denies. A final decision makes the waiting orders due; the tool is not run here. If another
        answer is written at the same time, all is checked again.

        Args:
            request_id: id of the ``APPROVAL_REQUESTED`` entry.
            granted: True to let the tool run.
            by: the recorded name of the person who decides.
            reason: recorded with the decision; the model sees it if the request is denied.
            arguments: arguments in place of the requested ones; they must fit the tool's schema.
                None for the requested ones. Required if an earlier answer has changed the
                arguments. Ignored for a denial.
            until: time at which an unused grant expires, at most and by default ``[approvals]
                valid_s`` from now; local time without a zone. Of several grants the earliest
                counts. Ignored for a denial.
            person: the person behind the name, see :meth:`person_behind`: two names of one person
                are one vote. The name itself if empty.
            subject_id: the person to whom the decision relates; the request's subject if empty.
            may_repeat: True to write nothing if the same ``by`` decided the same for the same
                arguments before, and that answer still counts; its id is returned.

        Raises:
            ApprovalError: there is no such request, or it is decided or void; the name is missing.
                For a grant also: the person may not approve the tool, or by its policy requested
                or granted it before or is a key of no person; the arguments were erased or changed.
            InvalidInputError: the arguments cannot be changed or do not fit the schema; ``until``
                is past or too late; ``by`` contains a NUL character or a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """
        if not comparable_name(by):
            raise ApprovalError(
                "The name of the person who decides is missing.", next_step="Pass it as `by`."
            )
        require_plain_text("by", by)
        reason = sound_text(reason)
        while True:
            request, answers = self._request(request_id), self._answers(request_id)
            approval = self._approval(request, answers)
            wanted = approval.requested_arguments if arguments is None else arguments
            if may_repeat and (
                earlier := _answer_of(
                    by, approval, answers, granted, wanted, self._ledger.wall_time
                )
            ):
                return earlier
            self._check_open(approval)
            data: dict[str, Any] = {"decided_by": by, "decision_reason": reason}
            if person and person != by:
                data["person"] = person
            event_type = "APPROVAL_DENIED"
            if granted:
                data |= granted_action(request, answers, arguments)
                data["expires"] = self._expiry(until)
                event_type = self._grant_event(approval, answers, data)
            entry = self._ledger.prepare(
                decision_entry(event_type, request, data),
                subject_id=subject_id or subject_of(request),
            )
            seen = frozenset(answer.id for answer in answers)
            written = self._ledger.transact(
                functools.partial(append_decision, entry, approval, seen)
            )
            if written:
                return written

    def _grant_event(
        self, approval: Approval, answers: Sequence[LedgerEntry], data: dict[str, Any]
    ) -> str:
        """Return the event type of a grant, and complete its metadata ``data``.

        Raises:
            ApprovalError: the person may not approve, or adds nobody to those who have granted.
        """
        by = data["decided_by"]
        require_approver(self._settings, approval.tool_id, [by, data.get("person", by)])
        now = self._ledger.wall_time
        earlier = [
            answer.metadata
            for answer in answers
            if answer.metadata.get("arguments_hash") == data["arguments_hash"]
            and answer.metadata.get("decided_by")
            and not is_expired(answer.metadata.get("expires", ""), now)
        ]
        require_new_vote(self._ledger, self._settings, approval, data, earlier)
        # A joint grant expires with its earliest part. All timestamps have one form, so they sort.
        data["expires"] = min([data["expires"], *(grant["expires"] for grant in earlier)])
        return "APPROVAL_SIGNED" if len(earlier) + 1 < approval.people else "APPROVAL_GRANTED"

    def _request(self, request_id: str) -> LedgerEntry:
        entry = None
        if (seq := parse_entry_id(request_id)) is not None:
            found = self._ledger.query(event_type="APPROVAL_REQUESTED", after=seq - 1, limit=1)
            entry = next(found, None)
        if entry is None or entry.id != request_id or not is_request(entry):
            raise ApprovalError(
                f"{request_id!r} is not an approval request.",
                next_step="Run `remit approve` to list the pending requests.",
            )
        return entry

    def _answers(self, request_id: str) -> builtins.list[LedgerEntry]:
        """Return people's recorded answers to a request, in ledger order."""
        found = (
            entry
            for event_type in ANSWER_EVENTS
            for entry in self._ledger.query(submission_id=request_id, event_type=event_type)
        )
        return sorted(filter(is_authentic, found), key=attrgetter("seq"))

    def _approval(
        self, request: LedgerEntry, answers: builtins.list[LedgerEntry] | None = None
    ) -> Approval:
        answers = self._answers(request.id) if answers is None else answers
        policy = self._settings.tools.get(str(request.metadata["tool_id"]))
        people = 1 if policy is None else policy.people
        return approval_of(self._ledger, request, answers, people)

    def _check_open(self, approval: Approval) -> None:
        if approval.state == "void":
            raise order_ended_error(approval)
        if approval.state != "pending":
            raise ApprovalError(
                f"{approval.decided_by} already {approval.state} {approval.request_id}."
            )

    def _expiry(self, until: datetime | None) -> str:
        """Return the time at which an unused grant expires, as recorded."""
        now = self._ledger.wall_time
        latest = now + timedelta(seconds=self._settings.valid_s)
        until = latest if until is None else until.astimezone(UTC)
        if not now < until <= latest:
            raise InvalidInputError(
                f"An approval cannot expire at {time_text(until)}.",
                next_step=f"Choose a time in the future, at the latest {time_text(latest)} "
                "([approvals] valid_s).",
            )
        return time_text(until)
