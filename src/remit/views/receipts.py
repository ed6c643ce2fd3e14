"""Receipts: the facts that an extract proves about each tool action and model call.

A receipt is derived from the records of an :class:`~remit.ledger.Extract` and from nothing else, so
everybody who has the file derives the same receipt. A receipt contains no content: arguments and
results appear as their commitments. ``docs/receipts.md`` states the rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.ledger import Extract, LedgerEntry, entry_id, is_authentic
from remit.views.entries import is_foreign

_APPROVALS = ("APPROVAL_SIGNED", "APPROVAL_GRANTED", "APPROVAL_DENIED")
_RULES = (
    ("SESSION_START", "package_id"), ("EXCHANGE", "policy_epoch"),
    ("WO_EXECUTING", "contract_version"), ("EXCHANGE", "contract_version"),
    ("WO_EXECUTING", "contract_digest"), ("WO_EXECUTING", "prompt_pack_digest"),
    ("SESSION_START", "settings_sha256"), ("APPROVAL_REQUESTED", "tool_digest"),
    ("TOOL_INTENT", "tool_digest"),
)  # fmt: skip
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Receipt:
    """The facts about a tool action or model call, without any content.

    Attributes:
        entry_id: the entry that ends the action.
        entry_hash: SHA-256 of that entry's record, 64 hex digits.
        origin: the log's name.
        run: the session or work order, as in an index.
        number: the action's place among the actions of the run, from 1.
        count: number of actions that the index of the run names.
        previous: the entry that ends the action before; empty for the first action.
        kind: ``tool`` or ``model``.
        actor: kind and id. Without a work order: ``agent`` and the key's id, or without a key
            ``human`` and the user's id. Otherwise ``agent`` and the agent's id, or ``unnamed``.
        agent_id: the agent.
        model: the model that chose the tool, or that was called; empty if no record names it.
        tool: the tool's id; the provider's id for a model call; the log's name if the answer came
            from the record.
        target: the MCP server or provider; the log's name if the tool ran in the process itself, or
            if the answer came from the record.
        cached_from: the entry with the answer, if it came from the record; else empty.
        arguments: hex digits of the commitment to the arguments or prompt; empty without one.
        result: hex digits of the commitment to the result or answer; empty without one.
        policy: the recorded rules: versions and digests of package, contract, prompt pack, settings
            and tool, and the policy epoch.
        decision: ``allow``, ``deny`` or ``require-approval``.
        approvals: the decisions of persons, oldest first: ``decision``, ``by``, ``at``, and
            ``expires`` and ``on_behalf_of`` if they are recorded.
        outcome: ``success``, ``failure`` or ``blocked``.
        error_code: the recorded code or status; empty for a success.
        began: time at which Remit admitted the action; the time of its end if Remit did not.
        ended: time of the entry that ends the action.
    """

    entry_id: str
    entry_hash: str
    origin: str
    run: Mapping[str, str]
    number: int
    count: int
    previous: str
    kind: str
    actor: tuple[str, str]
    agent_id: str
    model: str
    tool: str
    target: str
    cached_from: str
    arguments: str
    result: str
    policy: Mapping[str, Any]
    decision: str
    approvals: Sequence[Mapping[str, str]]
    outcome: str
    error_code: str
    began: str
    ended: str

    @property
    def policy_name(self) -> str:
        """Name of the policy: the agent's package, or the agent."""
        return str(self.policy.get("package_id") or self.agent_id or "gateway")

    @property
    def policy_version(self) -> str:
        """The recorded rules except the package, joined by ``/``; ``unversioned`` without rules.

        Each is cut at 12 characters, except the policy epoch, which is ``epoch-N``.
        """
        return "/".join(
            f"epoch-{value}" if name == "policy_epoch" else str(value)[:_SHORT]
            for name, value in self.policy.items()
            if name != "package_id"
        ) or "unversioned"  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the facts as lines for people; texts that somebody chose are in quotes.

        The lines are the place in the run, the actor and model, the tool or provider with its
        target, the commitment to the arguments, the policy with the decision, each approval, and
        the outcome with its times. A missing previous entry is ``none``, a missing commitment
        ``-``.
        """
        who, name = self.actor
        yield f"action {self.number} of {self.count}, after {self.previous or 'none'}"
        yield f"actor: {who} {name!r}, agent: {self.agent_id!r}, model: {self.model!r}"
        cached = f", answer from the record: {self.cached_from!r}" if self.cached_from else ""
        yield f"{self.kind}: {self.tool!r}, target: {self.target!r}{cached}"
        yield f"arguments: {self.arguments or '-'}"
        policy = f"{self.policy_name} {self.policy_version}"
        yield f"policy: {policy!r}, decision: {self.decision}"
        for one in self.approvals:
            yield ", ".join(f"{name}: {value!r}" for name, value in one.items())
        code = f" ({self.error_code!r})" if self.error_code else ""
        yield f"outcome: {self.outcome}{code}, began: {self.began}, ended: {self.ended}"


def read_receipts(extract: Extract) -> list[Receipt]:
    """Return the receipts of the actions whose records are in an extract, in order.

    An action is left out if one of its records is missing; so is a call that was refused because
    the session is another caller's, unless the extract is of that refusal. The others keep their
    numbers. The extract of a range has no receipts. The ledger is not read.

    Args:
        extract: the verified extract of a run or of one action.
    """
    rows, records, is_action = extract.actions, extract.records, "entry" in extract.of
    return [
        _receipt(extract, number, rows)
        for number, row in enumerate(rows, 1)
        if records.keys() >= {*row}
        and (
            is_action or not is_foreign(records[row[0]]["event_type"], records[row[0]]["metadata"])
        )
    ]


def _receipt(extract: Extract, number: int, rows: Sequence[Sequence[int]]) -> Receipt:
    seq, *related = rows[number - 1]
    end = extract.records[seq]
    meta, kind = end["metadata"], "tool" if end["event_type"] == "TOOL_CALL" else "model"
    own = [one for one in (extract.records[part] for part in related) if _is_authentic(one)]
    last = {one["event_type"]: one["metadata"] for one in [*own, end]}
    start, intent = last.get("SESSION_START", {}), last.get("TOOL_INTENT", {})
    origin, agent_id = extract.signed.checkpoint.origin, _named(meta, "agent_id")
    sent = next((one for one in reversed(own) if one["event_type"] == "DISPATCH"), None)
    tool, target = _provider(meta, sent, origin) if kind == "model" else _server(meta, origin)
    outcome, code = _outcome(end)
    approvals = [*_approvals(own, intent.get("approval"))]
    is_granted = "approval" in intent and any(one["decision"] == "GRANTED" for one in approvals)
    decision = "deny" if outcome == "blocked" else "require-approval" if is_granted else "allow"
    admitted = [one["timestamp"] for one in own if one["event_type"] in ("DISPATCH", "TOOL_INTENT")]
    asked, answered = ("arguments", "result") if kind == "tool" else ("prompt", "response")
    return Receipt(
        entry_id=end["id"], entry_hash=hashlib.sha256(canonical_json(end)).hexdigest(),
        origin=origin, run=extract.run, number=number, count=len(rows),
        previous=entry_id(rows[number - 2][0]) if number > 1 else "", kind=kind,
        actor=_actor(meta, start, agent_id), agent_id=agent_id,
        model=_model(meta, last), tool=tool, target=target, cached_from=_cached_from(meta),
        arguments=_commitment(meta.get(asked)),
        result=_commitment(meta.get("answer") or meta.get(answered)),
        policy=_policy(last, tool),
        decision=decision, approvals=approvals, outcome=outcome, error_code=code,
        began=admitted[-1] if admitted else end["timestamp"], ended=end["timestamp"],
    )  # fmt: skip


def _policy(last: Mapping[str, Mapping[str, Any]], tool: str) -> dict[str, Any]:
    """Return the rules that the records name, the tool's definition last."""
    found = {name: last[event][name] for event, name in _RULES if name in last.get(event, ())}
    own = last.get("SESSION_START", {}).get("own_tools")
    if isinstance(own, dict) and tool in own and "TOOL_CALL" in last:
        found.setdefault("tool_digest", own[tool])
    return found


def _is_authentic(record: Mapping[str, Any]) -> bool:
    metadata = record["metadata"]
    return is_authentic(LedgerEntry(record["event_type"], "", "", "", metadata=metadata))


def _named(metadata: Mapping[str, Any], name: str) -> str:
    provenance = metadata.get("provenance")
    found = {**(provenance if isinstance(provenance, dict) else {}), **metadata}.get(name)
    return found if isinstance(found, str) else ""


def _actor(metadata: Mapping[str, Any], start: Mapping[str, Any], agent_id: str) -> tuple[str, str]:
    """Return the kind and id of the actor: without a work order, the key or else the user."""
    if not _named(metadata, "work_order_id"):
        if key_id := _named(metadata, "key_id"):
            return "agent", key_id
        if user := _named(metadata, "user_id") or _named(start, "user_id"):
            return "human", user
    return "agent", agent_id or "unnamed"


def _model(metadata: Mapping[str, Any], last: Mapping[str, Mapping[str, Any]]) -> str:
    names = (metadata.get("model_id"), metadata.get("requested_model_id"),
             last.get("LLM_CALL", {}).get("model_id"))  # fmt: skip
    return next((name for name in names if isinstance(name, str) and name), "")


def _cached_from(metadata: Mapping[str, Any]) -> str:
    found = metadata.get("cached_from")
    return found if isinstance(found, str) else ""


def _provider(
    metadata: Mapping[str, Any], sent: Mapping[str, Any] | None, origin: str
) -> tuple[str, str]:
    """Return a model call's provider, as tool and as target; else the name of the log twice."""
    if _cached_from(metadata):
        return origin, origin
    provider = metadata.get("provider_id")
    if not provider and sent is not None and isinstance(sent["reason"], str):
        provider = sent["reason"].removeprefix("Dispatching to ").partition("/")[0]
    name = provider if isinstance(provider, str) and provider else origin
    return name, name


def _server(metadata: Mapping[str, Any], origin: str) -> tuple[str, str]:
    """Return the id of a tool and its MCP server; the log's name for a tool of the process."""
    tool_id = str(metadata.get("tool_id") or "unnamed")
    server, gap, _ = tool_id.partition("__")
    return tool_id, server if gap and server else origin


def _outcome(end: Mapping[str, Any]) -> tuple[str, str]:
    """Return the outcome of an action and its error code."""
    event, meta = end["event_type"], end["metadata"]
    if event == "EXCHANGE_ORPHANED":
        return "failure", "outcome_unknown"
    if event == "TOOL_CALL":
        status = str(meta.get("status"))
        outcome = {"ok": "success", "refused": "blocked"}.get(status, "failure")
    else:
        status = str(meta.get("error_code") or meta.get("outcome"))
        outcome = "success" if meta.get("outcome") == "success" else "failure"
        outcome = "blocked" if event == "PROMPT_REJECTED" else outcome
    return outcome, "" if outcome == "success" else status


def _approvals(own: Sequence[Mapping[str, Any]], request: Any) -> Iterator[dict[str, str]]:
    """Yield the decisions about a request; about all requests of the action if it is ``None``."""
    for one in own:
        meta = one["metadata"]
        if one["event_type"] in _APPROVALS and request in (None, meta.get("request_id")):
            found = {"decision": one["event_type"].removeprefix("APPROVAL_"),
                     "by": str(meta.get("decided_by")), "at": one["timestamp"]}  # fmt: skip
            more = {name: meta.get(name) for name in ("expires", "on_behalf_of")}
            yield found | {name: value for name, value in more.items() if isinstance(value, str)}


def _commitment(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    return str(value.get("$content", value.get("$messages", ""))).removeprefix("hmac-sha256:")
