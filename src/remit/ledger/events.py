"""The event types: writer, metadata keys and meaning, and the rights of each tier.

``docs/events.md`` shows this table; tests compare the page, and every entry that the suite writes,
with it. A tier may write the events of its own writers.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from remit.ledger.entry import LedgerEntry
from remit.ledger.record import columns_of


@dataclass(frozen=True, slots=True)
class Event:
    """An event type of Remit, a row of the table :data:`EVENTS`; immutable.

    Attributes:
        name: the event type.
        writer: the part of Remit that writes the event; empty if none does yet.
        keys: metadata keys that are always present.
        meaning: the meaning in one line.
        optional: metadata keys that are present if they apply.
    """

    name: str
    writer: str
    keys: tuple[str, ...]
    meaning: str
    optional: tuple[str, ...] = ()


_WO = ("provenance", "scope")
_EXCHANGE = (
    "agent_id", "session_id", "work_order_id", "tier", "contract_id", "framework_id",
    "prompt", "response", "outcome", "input_tokens", "output_tokens", "context_hash",
    "dispatch_entry_id", "model_id", "finish_reason", "latency_ms",
)  # fmt: skip

_SAID = (*_WO, "request_id", "tool_id", "decided_by", "decision_reason")
_GRANT = ("arguments_hash", "tool_digest", "expires", "arguments", "person", "on_behalf_of")

_DECIDED = ("proposal_id", "kind", "package_id", "by", "role", "decision_reason")

_TABLE = (
    Event("DISPATCH", "gateway", ("contract_id", "agent_id", "session_id"),
          "Remit is about to send a call; the entry is durable before the first byte is sent."),
    Event("EXCHANGE", "gateway", _EXCHANGE,
          "One call to a model: the request and the whole answer or error.",
          ("tools", "content_blocks", "parameters", "contract_version", "key_id", "attempt",
           "retry_of", "provider_id", "requested_model_id", "decision_id", "propensity",
           "explored", "canary", "cost_usd", "price_version", "cost_certainty", "over_bound",
           "raised_bound", "changed", "dropped", "wire", "system", "answer", "cut", "headers",
           "request_hash", "claim", "batch_bounds", "wire_answer", "stream", "created",
           "cached_from",
           "fallback_from", "server_tool_uses", "cached_input_tokens", "cache_write_tokens",
           "reasoning_tokens", "audio_input_tokens", "audio_output_tokens", "audio_seconds",
           "time_to_first_token_ms", "policy_epoch", "error_code",
           "error_message", "user_id", "team_id", "organisation_id", "charged_to",
           "response_id", "continues",
           "conversation_id", "stored", "asked", "replied",
           "batch_id", "batch_dispatch_id", "custom_id", "request_line", "labels")),
    Event("CONVERSATION_CHANGED", "server", ("conversation_id", "session_id", "agent_id"),
          "A conversation of the Responses API was created or deleted, or items were added or"
          " removed; or the metadata of a stored chat completion changed. `conversation_id` is"
          " then its `EXCHANGE`.",
          ("key_id", "continues", "items", "labels", "removed", "removed_at")),
    Event("PROMPT_REJECTED", "gateway",
          ("agent_id", "session_id", "contract_id", "error_code", "error_message"),
          "Remit refused a request and sent nothing. Under a virtual key, the entry states "
          "the key and the requested model.",
          ("key_id", "requested_model_id", "provider_id", "user_id", "team_id")),
    Event("EXCHANGE_ORPHANED", "gateway",
          ("dispatch_entry_id", "session_id", "agent_id", "contract_id", "settlement",
           "settled_tokens"),
          "The process that sent a call ended before it recorded the answer.",
          ("work_order_id", "key_id", "attempt", "cost_usd", "cost_certainty", "user_id", "team_id",
           "organisation_id", "charged_to")),
    Event("BUDGET_ALLOCATED", "budget", ("scope", "session_id", "token_limit", "turn_limit"),
          "A scope received its limits, from `by`. The decision `RESET` begins a new window "
          "of them; `WINDOW_SHORTENED` ends a window whose start was far in the future.",
          ("work_order_id", "agent_id", "key_id", "user_id", "team_id", "organisation_id",
           "usd_limit", "requests_per_minute", "tokens_per_minute", "window", "time_zone",
           "window_end", "on_short", "passed", "by", "before")),
    Event("BUDGET_DEBIT", "budget",
          ("scope", "session_id", "input_tokens", "output_tokens", "model_id"),
          "Tokens or money spent outside the gateway were charged to a scope.",
          ("work_order_id", "agent_id", "key_id", "user_id", "team_id", "organisation_id",
           "cost_usd", "charged_to")),
    Event("BUDGET_WARNING", "gateway",
          ("session_id", "agent_id", "contract_id", "error_code", "error_message"),
          "A call was sent over its limit, because the budget only warns."),
    Event("THOUGHT_RECORD", "trail",
          ("thought_id", "type", "task_id", "agent_id", "session_id", "position", "content",
           "thought_timestamp", "hash"),
          "A plan, an analysis, a decision or a reflection, in the chain of its task.",
          ("scope", "erased", "decision_id", "prompt", "context", "skipped", "profiles", "scoring",
           "route", "attempts", "stages", "propensity", "exploration", "not_drawn", "canary",
           "model_id", "outcome", "key_id", "recorded_by")),
    Event("SESSION_START", "sessions", _WO,
          "A session began. The entry names the agent and everything about it that no package"
          " defines. `overrides` are the settings that differ from those of the packages.",
          ("user_id", "caller", "schedule", "order_id", "key_id", "team_id", "organisation_id",
           "settings_sha256", "overrides", "package_id", "instructions", "own_tools",
           "own_contracts", "own_providers", "criteria", "output_schema_sha256")),
    Event("SESSION_END", "sessions", (*_WO, "turn_count", "total_cost"),
          "A session ended."),
    Event("TURN_RECORDED", "sessions",
          (*_WO, "turn_number", "user_message", "response"),
          "A turn of a conversation: message and response. `outcome` is present if the "
          "response is not the agent's answer: `cancelled`, `abandoned`, `notice`, "
          "`degraded`. `effects` are the tool effects that the next prompt reports.",
          ("outcome", "effects")),
    Event("ORDER_SUBMITTED", "queue",
          ("queue", "kind", "agent_id", "session_id", "task", "priority", "max_attempts", "by"),
          "An order was submitted to the workers; the same commit adds its row to the queue.",
          ("key_id", "user_id", "model_id", "due", "tokens", "usd", "forked_from")),
    Event("ORDER_CHANGED", "queue", ("session_id", "by"),
          "Somebody paused (`PAUSED`), resumed (`RESUMED`), stopped (`STOPPED`) or retried "
          "(`RETRIED`) a submitted order.", ("error_code",)),
    Event("ORDER_ENDED", "queue", ("session_id", "attempts"),
          "A submitted order was completed (`COMPLETED`), failed (`FAILED`) or was cancelled "
          "(`CANCELLED`).", ("by", "turn_entry_id", "figures", "error_code", "error_message")),
    Event("THREAD_OPENED", "supervisor", (*_WO, "thread_id", "title", "commitment"),
          "A turn left a topic open for later turns and sessions.", ("due",)),
    Event("THREAD_CLOSED", "supervisor", (*_WO, "thread_id"), "An open thread was closed."),
    Event("WO_PLANNED", "supervisor",
          (*_WO, "wo_type", "tier_target", "input_context", "constraints",
           "acceptance_criteria", "parent_wo_id"),
          "A work order was planned.",
          ("turn_number", "step", "depends_on", "attempt", "answering", "attention", "handed_to")),
    Event("WO_DISPATCHED", "supervisor", _WO,
          "A work order was given to the worker.",
          ("prior_results",)),
    Event("WO_EXECUTING", "worker", _WO,
          "The worker started or resumed the order.",
          ("contract_version", "contract_digest", "prompt_pack_digest", "resumed")),
    Event("LLM_CALL", "worker",
          (*_WO, "exchange_entry_id", "dispatch_entry_id", "outcome", "model_id",
           "input_tokens", "output_tokens", "latency_ms"),
          "The worker called a model; the `EXCHANGE` contains the prompt and the answer.",
          ("left_out",)),
    Event("TOOL_INTENT", "worker", (*_WO, "tool_id", "arguments", "idempotency_key"),
          "A tool is about to run. `approval` is the request whose approval this run uses up;"
          " `sub_session_id` is the session of a sub-agent.",
          ("attempt", "sub_session_id", "price_usd", "approval", "tool_digest", "key_id")),
    Event("TOOL_CALL", "worker",
          (*_WO, "tool_id", "status", "arguments", "result", "arguments_bytes",
           "result_bytes", "tool_error", "idempotency_key"),
          "A tool ran or was refused. `fault` is present if the tool itself failed, not its "
          "input; `note` names converted arguments and a shortened result.",
          ("key_id", "fault", "note")),
    Event("MCP_MESSAGE", "mcp",
          (*_WO, "server", "method", "status", "arguments", "result", "tool_error"),
          "A message with content, other than a tool call, passed between a client and an MCP "
          "server behind the gateway.", ("key_id",)),
    Event("TOOL_PINNED", "tools",
          ("server", "origin", "tool_id", "definition_hash", "definition"),
          "The definition of an MCP server's tool at its first use. The decision `CHANGED` is"
          " a different definition, which is refused until a person accepts it (`ACCEPTED`, "
          "`by`). Other texts of a server (`server:prompt:NAME`) are pinned in the same way.",
          ("stated_hashes", "replaces", "by")),
    Event("APPROVAL_REQUESTED", "worker or server",
          (*_WO, "tool_id", "arguments", "idempotency_key", "kind"),
          "A tool call waits for a person; `parameters` is the tool's schema.",
          ("attempt", "arguments_hash", "tool_digest", "parameters", "requested_by",
           "instead_of")),
    Event("APPROVAL_SIGNED", "approvals", _SAID,
          "One of several required people approved a tool call.", _GRANT),
    Event("APPROVAL_GRANTED", "approvals", _SAID,
          "A person approved one run of a tool call with the arguments of that hash, until "
          "`expires`. `arguments` is present if the person changed them.", _GRANT),
    Event("APPROVAL_DENIED", "approvals", _SAID,
          "A person denied a tool call.", ("person",)),
    Event("APPROVAL_DELEGATED", "approvals", ("delegator", "delegate", "until", "decision_reason"),
          "A person let another approve in their place for a limited time. Only earlier versions "
          "write it."),
    Event("WO_COMPLETED", "worker", (*_WO, "output_result", "cost"),
          "A work order ended with a result."),
    Event("WO_FAILED", "worker or supervisor", (*_WO, "error_code", "error_message", "cost"),
          "The work order ended without a result."),
    Event("WO_CHAIN_COMPLETE", "supervisor",
          (*_WO, "work_order_ids", "trace_hash", "cost", "outcome"),
          "All orders of a turn ended."),
    Event("WO_QUALITY_GATE", "supervisor",
          (*_WO, "work_order_ids", "trace_hash", "verdict", "reasons", "attempt"),
          "A result was checked before it was delivered."),
    Event("ESCALATION", "supervisor", (*_WO, "reasons", "work_order_ids"),
          "No result passed the quality gate."),
    Event("DEGRADATION", "supervisor", (*_WO, "error_code", "error_message"),
          "A turn's plan failed; the agent answered without a plan or did not answer."),
    Event("INSTALLED", "packages",
          ("package_id", "version", "operation", "operation_id", "previous_version",
           "archive_sha256", "manifest_sha256", "manifest", "source", "signature",
           "permissions_widened", "approved_by", "by"),
          "A package was installed, upgraded or rolled back; the entry contains its manifest."),
    Event("REMOVED", "packages", ("package_id", "version", "operation_id", "by"),
          "A package was removed."),
    Event("GATE_PASSED", "gates", ("gate", "errors", "problems", "registry_sha256", "by"),
          "A gate passed.", ("verified_entries", "resume_at")),
    Event("GATE_FAILED", "gates", ("gate", "errors", "problems", "registry_sha256", "by"),
          "A gate failed."),
    Event("FEEDBACK", "learning",
          ("target_entry_id", "target_type", "source", "by", "session_id"),
          "A person, a program or a judge graded the result of an exchange, work order, turn "
          "or decision: by a `score` from 0 to 1, a `label`, or both. Later feedback of the "
          "same source, `by` and `key_id` on the same target replaces it (`replaces`).",
          ("score", "label", "reason", "key_id", "user_id", "idempotency_key", "replaces")),
    Event("SIGNAL_OBSERVED", "learning or supervisor", (),
          "A learning loop observed a signal."),
    Event("SIGNAL_PROPOSED", "learning",
          ("proposal_id", "kind", "target", "package_id", "version", "base_version", "digest",
           "evidence", "evidence_count", "evidence_sha256", "holds", "predicted", "replay", "diff",
           "reason", "by", "role"),
          "A learner proposed a change as a package version, or the rollback of an adopted "
          "one (`rolls_back`). The entry names the entries of its evidence.", ("rolls_back",)),
    Event("SIGNAL_ADOPTED", "learning",
          (*_DECIDED, "version", "previous_version", "policy_epoch"),
          "A person or an erasure adopted a proposal: its package was installed, or the change "
          "that it `rolls_back` was undone, and `policy_epoch` began.",
          ("key_id", "rolls_back", "compared")),
    Event("SIGNAL_CANARY", "learning", (*_DECIDED, "policy_epoch"),
          "A canary of a proposal began (`STARTED`) or ended without an adoption (`STOPPED`). At "
          "the start the entry states its terms, and at the end the comparison (`compared`).",
          ("key_id", "share", "usd", "tolerance", "for_key", "task", "rules", "heads",
           "compared")),
    Event("SIGNAL_REJECTED", "learning", _DECIDED, "A person rejected a proposal.", ("key_id",)),
    Event("SIGNAL_ROLLED_BACK", "learning",
          (*_DECIDED, "version", "previous_version", "policy_epoch"),
          "An adopted proposal was undone: `version` is in force now (empty: no version). "
          "`erasure_id` is present if content of the proposal was erased.",
          ("key_id", "erasure_id")),
    Event("ERASURE", "ledger", ("target", "requested_by", "erased_count", "erased_hash"),
          "Content was erased on request, by law, or because its retention ended.",
          ("erased_entry_id", "erased_session_id", "erased_event_type", "retention_days",
           "withdrawn")),
    Event("ARCHIVED", "ledger", ("first", "end", "root", "entries", "left", "carried", "by"),
          "The entries from `first` to before `end` were archived. `root` is the tree hash at"
          " `end`, `left` states which `entries` leave the database, and `carried` is the "
          "state from which checks continue."),
    Event("INDEXED", "ledger", ("of", "entries", "actions", "part", "parts"),
          "All entries of a session or work order (`of`) until this one: their numbers, and for "
          "each tool action or model call the entries that belong to it."),
    Event("EVALUATION_REGISTERED", "router",
          ("route", "code", "rules", "prompts", "choices", "count", "number"),
          "The choices of a route for `count` prompts were fixed before an evaluation: `prompts` "
          "and `choices` are their SHA-256, `number` counts registrations of these prompts."),
    Event("KEY_CREATED", "auth",
          ("key_id", "name", "prefix", "requested_by", "role", "models", "agents", "tiers",
           "expires", "user_id", "team_id", "organisation_id"),
          "A virtual key was created, or received a new secret or other permissions; `hash` "
          "is the SHA-256 of the secret.",
          ("rotated", "old_until", "hash", "at", "changed", "pass_through",
           "pass_through_unpriced")),
    Event("KEY_REVOKED", "auth", ("key_id", "name", "prefix", "requested_by"),
          "A virtual key was revoked.", ("at", "changed")),
    Event("OWNER_NAMED", "auth", ("kind", "owner_id", "name", "by"),
          "A user, team or organisation was declared (`CREATED`) or renamed (`RENAMED`)."),
    Event("CONFIG_CHANGED", "packages or ledger", ("by",),
          "The trusted package keys, a waiver, the settings or the prices changed (`settings`, "
          "`price_changes`: each with its former and its new value), or the ledger was forked.",
          ("file", "sha256", "policy", "waiver", "distribution_version", "settings",
           "settings_sha256", "overrides", "prices", "price_changes", "fork")),
    Event("TENANT_CREATED", "tenants", ("tenant", "origin", "verifier_key", "place", "by"),
          "A tenant was created: a root with its own log. `verifier_key` is the log's key."),
    Event("TENANT_CHECKPOINT", "tenants",
          ("tenant", "origin", "size", "root", "checkpoint", "verifier_key", "extends",
           "consistency"),
          "The signed head of a tenant's log, with the proof that it extends the earlier head of "
          "`extends` entries; with the decision `FORKED`, the first head under another origin."),
    Event("TENANT_MOVED", "tenants",
          ("tenant", "origin", "size", "root", "from_place", "place", "move_id", "by"),
          "The whole ledger of a tenant was moved to another database; the entry states its head."),
    Event("TENANT_OLD_PLACE_REMOVED", "tenants", ("tenant", "place", "move_id", "by"),
          "The former database of a moved tenant was removed with its content."),
    Event("TENANT_REMOVED", "tenants",
          ("tenant", "origin", "size", "root", "place", "exported", "removal_id", "by"),
          "A tenant was removed and its data erased; the entry states the last head of its log."),
)  # fmt: skip

EVENTS: dict[str, Event] = {event.name: event for event in _TABLE}
"""Every event type by name."""

# Of the lower tiers; all other writers are the kernel's.
_WRITERS = {
    "ho1": frozenset({"worker", "trail"}),
    "ho2": frozenset({"supervisor", "sessions", "trail"}),
}
_OF_ANY_TIER = frozenset({"gateway", "trail"})  # Written in the name of the caller.
_OPERATOR = "OPERATOR"
_BETWEEN = re.compile(", | or ")

KERNEL_ROWS = "coalesce(tier, 'hot') = 'hot'"
"""A condition on ``entries`` for entries of the kernel: :func:`is_authentic` in SQL."""


def may_write(tier: str, event_type: str) -> bool:
    """Return True if a handle of a tier may write entries of an event type.

    ``hot`` may write all. A program's own event types are allowed to every tier. Of Remit's events,
    ``ho1`` may write those whose writers include the worker or the trail, and ``ho2`` those of the
    supervisor, the sessions or the trail.

    Args:
        tier: ``hot``, ``ho2`` or ``ho1``; another tier raises KeyError for an event of Remit.
        event_type: the event type of an entry.
    """
    event = EVENTS.get(event_type)
    return event is None or tier == "hot" or not _WRITERS[tier].isdisjoint(_writers(event.writer))


def is_authentic(entry: LedgerEntry) -> bool:
    """Return True if the recorded writer of an entry may write such entries.

    The writer is the tier in the entry's metadata. ``hot``, or no tier, is the kernel, which may
    write every event except those whose writers all belong to a single lower tier: worker and trail
    to ``ho1``; supervisor, sessions and trail to ``ho2``. A lower tier may write the events of its
    writers, of the gateway and of the trail; an unknown tier those of the gateway and the trail. An
    approval under a lower tier, which waits for it, is authentic only if the ``agent_class`` in its
    ``provenance`` is ``OPERATOR``. A program's own event types are always authentic.

    Code that acts on an entry (an approval, installation, key, limit or waiver) calls this first,
    so that an entry written by a worker has no effect. No signature is checked.

    Args:
        entry: the entry; its content is not needed.
    """
    event = EVENTS.get(entry.event_type)
    if event is None:
        return True
    writers = _writers(event.writer)
    tier = columns_of(entry.metadata).tier
    # Approvals are written for the tier that waits.
    if "approvals" in writers and tier in _WRITERS:
        provenance = entry.metadata.get("provenance")
        return isinstance(provenance, dict) and provenance.get("agent_class") == _OPERATOR
    if tier is None or tier == "hot":
        return not any(writers <= own for own in _WRITERS.values())
    return bool(writers & (_WRITERS.get(tier, frozenset()) | _OF_ANY_TIER))


@functools.cache
def _writers(named: str) -> frozenset[str]:
    return frozenset(_BETWEEN.split(named))
