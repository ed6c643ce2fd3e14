"""Approvals: exact arguments, what the policy asks for, until when; a person's yes or no."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from remit.agents import Approval, ApprovalError
from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.kernel.json_text import load_exact
from remit.ledger import Erased, is_authentic
from remit.server.api.routes import name_of
from remit.server.console.forms import see
from remit.server.console.lengths import LONGEST, Shortened
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.replies import Answer
from remit.views import wording
from remit.views.entries import plain

_LISTED = 12
_LONGEST_EDITED = 40_000  # characters of a form's field, encoded


def show(sources: Sources, asked: Asked) -> Page:
    """What waits, and what was decided lately; or one request."""
    if asked.rest:
        try:
            one = _shown(sources.approvals.get(asked.rest), alone=True)
        except ApprovalError as error:
            raise NotFoundError(error.message) from error
        return Page("approvals.html.j2", {"waiting": [], "decided": [], "one": one, "before": ""})
    requests = sources.ledger.query(
        event_type="APPROVAL_REQUESTED", order="desc", after=asked.query.get("before"),
        limit=_LISTED, with_content=False,
    )  # fmt: skip
    ids = [entry.id for entry in filter(is_authentic, requests)]
    found = []
    for entry_id in ids:
        with suppress(ApprovalError):  # an entry that asks for nothing
            found.append(sources.approvals.get(entry_id))
    return Page(
        "approvals.html.j2",
        {
            "waiting": [_shown(one) for one in found if one.state == "pending"],
            "decided": [_shown(one) for one in found if one.state != "pending"],
            "one": None,
            "before": ids[-1] if len(ids) == _LISTED else "",
        },
    )


def change(sources: Sources, asked: Asked) -> Answer:
    """Grant or deny a request, in the name of the key's owner.

    A yes holds for the arguments that the page showed, or those that were written there.
    """
    verdict = asked.form.get("verdict")
    if verdict not in ("grant", "deny"):
        raise InvalidInputError("Say whether it is granted or denied.")
    request_id = asked.rest
    arguments = None
    if verdict == "grant":
        arguments = _arguments(sources.approvals.get(request_id), asked)
    sources.runtime.approvals.decide(
        request_id,
        granted=verdict == "grant",
        by=name_of(asked.identity),
        reason=asked.form.get("reason", "").strip()[:2000],
        arguments=arguments,
        person=sources.runtime.approvals.person_behind(asked.identity),
    )
    return see(f"/console/approvals/{quote(request_id, safe='')}")


def _arguments(one: Approval, asked: Asked) -> Mapping[str, Any] | None:
    """What is granted; ``None`` leaves it to the queue."""
    if isinstance(one.arguments, Erased):
        return None
    shown = _exact(one.arguments)
    if asked.form.get("shown") != _digest(shown):
        raise ApprovalError(
            "The arguments are not those that the page showed.",
            next_step="Open the request again, and look at them.",
        )
    text = asked.form.get("arguments", "").replace("\r\n", "\n").strip()
    if not text or text == shown:
        return one.arguments if isinstance(one.arguments, Mapping) else None
    found = load_exact(text.encode("utf-8", "replace"))
    if not isinstance(found, dict):
        raise InvalidInputError("The arguments are not a JSON object.")
    return found


def _shown(one: Approval, *, alone: bool = False) -> dict[str, Any]:
    shown: dict[str, Any] = one.to_dict()
    erased = isinstance(one.arguments, Erased)
    exact = wording.text_of(plain(one.arguments)) if erased else _exact(one.arguments)
    is_long = len(exact) > LONGEST
    changed = not erased and one.arguments != one.requested_arguments
    asked_for = Shortened().cut(plain(one.requested_arguments)) if changed else None
    return {
        **shown,
        "usable": one.usable(),
        "arguments": exact if alone or not is_long else "",
        "requested_arguments": asked_for,
        "decision_reason": wording.text_of(plain(one.decision_reason)),
        "changed": changed,
        "erased": erased,
        "digest": _digest(exact),
        "editable": not erased and len(quote(exact)) < _LONGEST_EDITED,
    }


def _exact(arguments: Any) -> str:
    """Arguments as JSON in which nothing is invisible."""
    return wording.visible_json(wording.pretty_json(arguments))


def _digest(shown: str) -> str:
    return hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()


VIEWS = (View("/console/approvals", show, change, "approve"),)
