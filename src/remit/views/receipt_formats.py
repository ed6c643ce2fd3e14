"""Receipts in public formats: AgentBoundary Action Receipts and Agent Action Capsules.

A capsule, and an Action Receipt of version 0.2, name the previous receipt of the run by its hash,
so a missing, moved or inserted receipt breaks the chain. All formats name the ledger entry and its
hash; the extract of the same action proves that entry. ``docs/receipts.md`` states the meaning of
each member.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from remit.kernel.canonical import canonical_json, exact_json, sha256_hex
from remit.ledger import Erased, LedgerClient
from remit.views.receipts import Receipt

PublicFormat = Literal["agentboundary", "agentboundary-0.2", "capsule"]

_NO_ARGUMENTS = sha256_hex(canonical_json({}))
_CONTENT = {"tool": ("arguments", "result"), "model": ("context_hash", "answer", "response")}
# AgentBoundary 0.2: how the value of a member is known. All members without an entry are observed.
_KNOWN = {
    "receipt_id": "inferred", "tool.capability": "inferred", "target.system": "inferred",
    "policy.name": "inferred", "policy.version": "inferred", "execution.result_ref": "inferred",
    "actor.type": "inferred", "agent.framework_version": "synthesized",
    "target.environment": "synthesized",
}  # fmt: skip
_WEIGHTS = {"observed": 2, "inferred": 1, "synthesized": 0}
_META = ("version", "provenance", "completeness_score", "receipt_hash")


def public_receipts(
    ledger: LedgerClient, receipts: Iterable[Receipt], kind: PublicFormat
) -> Iterator[dict[str, Any]]:
    """Yield the receipts of a run in a public format, as JSON data in the order of ``receipts``.

    In ``capsule`` and ``agentboundary-0.2`` each receipt names the hash of the receipt before.
    Errors are raised while iterating.

    Args:
        ledger: the ledger, for the hashes of arguments and results; erased ones are replaced by
            their commitments.
        receipts: all receipts of the run, in order.
        kind: the format.

    Raises:
        EntryArchivedError: an entry is in a segment that is not attached.
        LedgerError: the ledger cannot be read.
    """
    made: dict[str, Any] | None = None
    for receipt in receipts:
        hashes = _hashes(ledger, receipt)
        if kind == "capsule":
            made = _capsule(receipt, *hashes, made)
        else:
            made = _action_receipt(receipt, hashes[0], made, kind)
        yield made


def _hashes(ledger: LedgerClient, receipt: Receipt) -> tuple[str, str]:
    """Return the SHA-256 of arguments and result, as JCS; their commitments if they were erased.

    The arguments of a model call are its exact request. The second text is empty without a result.
    """
    meta = ledger.read(receipt.entry_id).metadata
    asked, *answers = _CONTENT[receipt.kind]
    arguments = meta.get(asked)
    if isinstance(arguments, Erased) or (arguments is None and receipt.arguments):
        arguments_hash = receipt.arguments
    elif receipt.kind == "model":
        arguments_hash = str(arguments) if arguments else _NO_ARGUMENTS
    else:
        arguments_hash = _NO_ARGUMENTS if arguments is None else sha256_hex(exact_json(arguments))
    result = next((meta[name] for name in answers if name in meta), None)
    is_erased = isinstance(result, Erased)
    found = "" if result is None or is_erased else sha256_hex(exact_json(result))
    return arguments_hash, receipt.result if is_erased else found


def _action_receipt(
    receipt: Receipt, arguments_hash: str, prior: dict[str, Any] | None, kind: PublicFormat
) -> dict[str, Any]:
    """Return an Action Receipt of AgentBoundary, version 0.1 or 0.2-alpha."""
    place = f"{receipt.origin}/{receipt.entry_id}"
    reference = f"{place}?sha256={receipt.entry_hash}&action={receipt.number}"
    execution = {"status": receipt.outcome, "completed_at": receipt.ended,
                 "result_ref": reference}  # fmt: skip
    if receipt.error_code:
        execution["error_code"] = receipt.error_code
    made: dict[str, Any] = {
        "version": "agentboundary/v0.1",
        "receipt_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{place}?sha256={receipt.entry_hash}")),
        "issued_at": receipt.began,
        "actor": dict(zip(("type", "id"), receipt.actor, strict=True)),
        "agent": {"framework": "remit", "framework_version": "1", "model": receipt.model or "none"},
        "tool": {"name": receipt.tool, "capability": _capability(receipt)},
        "target": {"system": receipt.target, "environment": "prod"},
        "arguments_hash": arguments_hash,
        "policy": {"name": receipt.policy_name, "version": receipt.policy_version,
                   "decision": receipt.decision},
        "execution": execution,
    }  # fmt: skip
    if receipt.cached_from:
        made["target"]["resource_id"] = receipt.cached_from
    if receipt.decision == "require-approval":
        granted = receipt.approvals[-1]
        made["approval"] = {"approver": {"id": granted["by"]}, "approved_at": granted["at"]}
    if kind == "agentboundary-0.2":
        made["version"] = "agentboundary/v0.2-alpha"
        if prior is not None:
            made["prior_receipt"] = {name: prior[name] for name in ("receipt_id", "receipt_hash")}
        paths = [path for path in _paths(made) if path not in _META]
        made["provenance"] = {path: _KNOWN.get(path, "observed") for path in paths}
        weight = sum(_WEIGHTS[one] for one in made["provenance"].values())
        made["completeness_score"] = weight * 1000 // (2 * len(paths)) / 1000
    return {**made, "receipt_hash": sha256_hex(canonical_json(made))}


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted path of each leaf of a receipt."""
    if not isinstance(value, dict):
        yield path
        return
    for name, item in value.items():
        yield from _paths(item, f"{path}.{name}" if path else name)


def _capability(receipt: Receipt) -> str:
    if receipt.kind == "model":
        return "model.cached" if receipt.cached_from else "model.call"
    return f"tool.{re.sub('[^a-z0-9._-]', '-', receipt.tool.lower())}"


def _capsule(
    receipt: Receipt, arguments_hash: str, result_hash: str, parent: dict[str, Any] | None
) -> dict[str, Any]:
    """Return an Agent Action Capsule, format 4."""
    ((_, run),) = receipt.run.items()
    is_human = receipt.decision == "require-approval" or (
        receipt.outcome == "blocked"
        and any(one["decision"] == "DENIED" for one in receipt.approvals)
    )
    verdict = {"success": "executed", "failure": "errored", "blocked": "denied"}[receipt.outcome]
    disposition: dict[str, Any] = {
        "decision": "reject" if verdict == "denied" else "accept",
        "approver": "human" if is_human else "policy", "human_disposed": is_human,
        "verdict_class": verdict,
    }  # fmt: skip
    if is_human:
        disposition["authority"] = receipt.approvals[-1]["by"]
    made: dict[str, Any] = {
        "spec_version": "draft-mih-scitt-agent-action-capsule-05", "format_version": "4",
        "canonicalization_id": "jcs", "action_id": f"{run}#{receipt.number}",
        "action_type": "decide", "operator": receipt.origin, "developer": receipt.agent_id,
        "timestamp": receipt.ended, "domain": "action", "provenance": "gate",
        "epoch_id": f"{receipt.policy_name}@{receipt.policy_version}", "disposition": disposition,
        "references": [{"type": "remit-ledger-record", "digest_alg": "SHA-256",
                        "digest": receipt.entry_hash}],
    }  # fmt: skip
    mode, is_call = "not_applicable", receipt.kind == "model" and not receipt.cached_from
    source = f"?cached_from={receipt.cached_from}" if receipt.cached_from else ""
    if receipt.outcome != "blocked":
        is_confirmed = receipt.outcome == "success" and bool(result_hash)
        mode = "confirmed" if is_confirmed else "dispatched_unconfirmed"
        made["effect"] = {
            "status": "confirmed" if is_confirmed else "failed", "request_digest": arguments_hash,
            "type": "inference_completion" if is_call else _capability(receipt),
            "effect_attestation": "gate_executed",
            "external_ref": receipt.entry_id + source,
        }  # fmt: skip
        if is_confirmed:
            made["effect"]["response_digest"] = result_hash
    if is_call and receipt.model:
        made["model_attestation"] = {"model_id": receipt.model, "provider": receipt.tool}
    if parent is not None:
        made["chain"] = {"parent_capsule_id": parent["capsule_id"], "relation": "follows"}
    made["assurance"] = {"attestation_mode": "self_attested", "effect_mode": mode,
                         "ledger_mode": "chained" if parent else "standalone"}  # fmt: skip
    return {**made, "capsule_id": sha256_hex(canonical_json(made))}
