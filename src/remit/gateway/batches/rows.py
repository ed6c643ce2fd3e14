"""What is kept of batches that are out: rows of ``batches``, ``batch_lines`` and ``holds``."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from remit.gateway.auth import Identity
from remit.gateway.lookup import hidden_name
from remit.kernel.exchange import PromptRequest

__all__ = [
    "BOUNDS", "NO_PRICE", "LineRow", "Row", "caller_of", "caller_text", "hold_name", "line_name",
]  # fmt: skip

_CALLER = (
    "contract_id", "agent_id", "framework_id", "work_order_id", "session_id", "tier",
)  # fmt: skip
_OWNERS = ("name", "role", "key_id", "user_id", "team_id", "organisation_id")
BOUNDS = "batch_bounds"
"""Metadata of the ``EXCHANGE`` that made a batch: for each request its custom id and its row."""
NO_PRICE = -1
"""Of a request whose model has no price."""


class Row(NamedTuple):
    """A row of ``batches``."""

    batch_id: str
    provider_id: str
    caller: str
    entry_id: str
    dispatch_entry_id: str
    created_ms: int


class LineRow(NamedTuple):
    """What a row of ``batch_lines`` says of a request."""

    position: int
    endpoint: str
    model_id: str
    tokens: int
    tokens_in: int
    nano: int


def hold_name(batch_id: str) -> str:
    """What a batch holds, in the table ``holds``."""
    return f"batch:{batch_id}"


def line_name(batch_id: str, custom_id: str) -> str:
    """Return what stands for a request's custom id in ``batch_lines``."""
    return hidden_name(batch_id, custom_id)


def caller_text(request: PromptRequest, identity: Identity) -> str:
    """Return whose a batch is, for its row. Only the batch's entry names the person."""
    caller: dict[str, Any] = {name: getattr(request, name) or "" for name in _CALLER}
    caller["subject_id"] = ""  # The audit expects the key in the rows of every version.
    caller["identity"] = {name: getattr(identity, name) for name in _OWNERS}
    return orjson.dumps(caller).decode()


def caller_of(row: Row, subject_id: str | None) -> tuple[PromptRequest, Identity]:
    """Return whose a batch is.

    Args:
        row: the batch's row.
        subject_id: the person whom the batch's entry names.
    """
    fields = orjson.loads(row.caller)
    identity = Identity(**fields.pop("identity"))
    fields.pop("subject_id")  # an earlier version wrote the person here
    request = PromptRequest(
        prompt="", prompt_pack_id="", agent_class="", package_id="", max_tokens=None,
        temperature=None, subject_id=subject_id, **fields,
    )  # fmt: skip
    return request, identity
