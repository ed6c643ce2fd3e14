"""Approvals: exact arguments, what the policy asks for, until when; a person's yes or no."""

from __future__ import annotations

import json
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.ledger import is_authentic
from remit.server.api.routes import name_of
from remit.server.console.pages import Asked, Page, Redirect, Sources, View

_LISTED = 12


def show(sources: Sources, asked: Asked) -> Page:
    """What waits, and what was decided lately; or one request."""
    if asked.rest:
        one = sources.approvals.get(asked.rest)
        return Page(
            "approvals.html.j2", {"waiting": [], "decided": [], "one": _shown(one), "before": ""}
        )
    requests = sources.ledger.query(
        event_type="APPROVAL_REQUESTED", order="desc", after=asked.query.get("before"),
        limit=_LISTED, with_content=False,
    )  # fmt: skip
    ids = [entry.id for entry in filter(is_authentic, requests)]
    found = [sources.approvals.get(entry_id) for entry_id in ids]
    return Page(
        "approvals.html.j2",
        {
            "waiting": [_shown(one) for one in found if one.state == "pending"],
            "decided": [_shown(one) for one in found if one.state != "pending"],
            "one": None,
            "before": ids[-1] if len(ids) == _LISTED else "",
        },
    )


def change(sources: Sources, asked: Asked) -> Redirect:
    """Grant or deny a request, in the name of the key's owner."""
    verdict = asked.form.get("verdict")
    if verdict not in ("grant", "deny"):
        raise InvalidInputError("Say whether it is granted or denied.")
    request_id = asked.rest
    sources.runtime.approvals.decide(
        request_id,
        granted=verdict == "grant",
        by=name_of(asked.identity),
        reason=asked.form.get("reason", "").strip()[:2000],
        arguments=_arguments(asked.form.get("arguments", ""), asked.form.get("were", "")),
        person=asked.identity.person,
    )
    return Redirect(f"/console/approvals/{request_id}")


def _arguments(text: str, were: str) -> dict[str, Any] | None:
    """Arguments that the person changed; ``None`` where they are as they were shown."""
    if not text.strip() or text.replace("\r\n", "\n").strip() == were.replace("\r\n", "\n").strip():
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"The arguments are not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise InvalidInputError("The arguments are not a JSON object.")
    return found


def _shown(one: Any) -> dict[str, Any]:
    shown: dict[str, Any] = one.to_dict()
    shown["usable"] = one.usable()
    return shown


VIEWS = (View("/console/approvals", show, change, "manage_keys"),)
