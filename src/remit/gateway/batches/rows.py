"""The rows of open batches in ``batches``, ``batch_lines`` and ``holds``."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from remit.gateway.auth import Identity
from remit.gateway.key_queries import hidden_name
from remit.kernel.exchange import PromptRequest

_CALLER = (
    "contract_id", "agent_id", "framework_id", "work_order_id", "session_id", "tier",
)  # fmt: skip
_OWNERS = ("name", "role", "key_id", "user_id", "team_id", "organisation_id")
BOUNDS = "batch_bounds"
"""Metadata of the ``EXCHANGE`` that made a batch: for each request its custom id and its row."""
NO_PRICE = -1
"""Of a request whose model has no price."""


class Row(NamedTuple):
    """A row of ``batches``.

    Immutable.

    Attributes:
        batch_id: id of the ``EXCHANGE``, a slash, and the provider's id.
        provider_id: the provider.
        caller: the caller as JSON text (:func:`caller_text`).
        entry_id: the ``EXCHANGE`` that created the batch.
        dispatch_entry_id: its ``DISPATCH``.
        created_ms: time of creation, in milliseconds since 1970.
    """

    batch_id: str
    provider_id: str
    caller: str
    entry_id: str
    dispatch_entry_id: str
    created_ms: int


class LineRow(NamedTuple):
    """The columns of ``batch_lines`` that describe a request.

    Immutable.

    Attributes:
        position: place in the batch, from 0.
        endpoint: name of the endpoint, such as ``openai.chat``.
        model_id: the model.
        tokens: upper bound of input and output tokens.
        tokens_in: upper bound of the input tokens.
        nano: upper bound of the cost in nano-dollars; a fixed value stands for an unpriced model.
    """

    position: int
    endpoint: str
    model_id: str
    tokens: int
    tokens_in: int
    nano: int


def hold_name(batch_id: str) -> str:
    """Return the reservation id of a batch in the table ``holds``."""
    return f"batch:{batch_id}"


def line_name(batch_id: str, custom_id: str) -> str:
    """Return the name under which a request's custom id is stored in ``batch_lines``."""
    return hidden_name(batch_id, custom_id)


def caller_text(request: PromptRequest, identity: Identity) -> str:
    """Return the JSON text of a batch's caller for its row. The text contains no person's name.

    Args:
        request: the request that created the batch.
        identity: the caller.
    """
    caller: dict[str, Any] = {name: getattr(request, name) or "" for name in _CALLER}
    caller["subject_id"] = ""  # The audit expects the key in the rows of every version.
    caller["identity"] = {name: getattr(identity, name) for name in _OWNERS}
    return orjson.dumps(caller).decode()


def caller_of(row: Row, subject_id: str | None) -> tuple[PromptRequest, Identity]:
    """Return the request's attribution and the identity of the caller who created a batch.

    Args:
        row: the batch's row.
        subject_id: the person whom the batch's entry names; None for nobody.
    """
    fields = orjson.loads(row.caller)
    identity = Identity(**fields.pop("identity"))
    fields.pop("subject_id")  # an earlier version wrote the person here
    request = PromptRequest(
        prompt="", prompt_pack_id="", agent_class="", package_id="", max_tokens=None,
        temperature=None, subject_id=subject_id, **fields,
    )  # fmt: skip
    return request, identity
