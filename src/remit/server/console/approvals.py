"""The pages of approval requests, and the decisions of people."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import quote

from remit.agents import Approval, ApprovalError
from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.kernel.json_text import load_exact
from remit.ledger import Erased, LedgerEntry, is_authentic
from remit.operations import name_of
from remit.server.asgi import Answer
from remit.server.console.forms import see
from remit.server.console.length_limits import LONGEST, Shortened
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import amounts_of
from remit.server.console.sessions import decoded, read_talks
from remit.views import wording
from remit.views.entries import plain

_LISTED = 12
_LONGEST_EDITED = 40_000  # A form field must fit the limit of a request body.


def show(sources: Sources, asked: Asked) -> Page:
    """Return the page of the 12 latest approval requests, waiting ones first, or a request's page.

    An older request is on a later page, even if it waits. Entries that are no valid requests are
    left out.

    Args:
        sources: the data sources.
        asked: the request; ``rest`` is the id of one approval request, and ``before`` of its query
            an entry id before which older ones are listed.

    Raises:
        NotFoundError: the path names a request that does not exist.
        InvalidInputError: ``before`` is not an entry id.
        LedgerError: the ledger cannot be read.
    """
    if asked.rest:
        try:
            one = _shown(sources, sources.approvals.get(asked.rest), alone=True)
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
        with suppress(ApprovalError):  # The entry is not a valid request.
            found.append(sources.approvals.get(entry_id))
    return Page(
        "approvals.html.j2",
        {
            "waiting": [_shown(sources, one) for one in found if one.state == "pending"],
            "decided": [one.to_dict() for one in found if one.state != "pending"],
            "one": None,
            "before": ids[-1] if len(ids) == _LISTED else "",
        },
    )


def change(sources: Sources, asked: Asked) -> Answer:
    """Grant or deny a request in the name of the signed-in person, and record the decision.

    A grant covers the arguments that the page showed, or the edited arguments of the form. The
    verdict ``happened`` denies the repetition of a call that took effect; its reason is the result.
    A reason is cut to 2,000 characters. If a tool needs several people, a grant is one of their
    signatures.

    Args:
        sources: the data sources, through whose runtime the decision is written.
        asked: the request; its form has ``verdict`` (``grant``, ``deny`` or ``happened``),
            ``reason`` and arguments.

    Returns:
        A redirect to the page of the request.

    Raises:
        InvalidInputError: the form has no verdict, its arguments are not a JSON object or do not
            fit the tool, or the result of a call that took effect is missing.
        ApprovalError: the request is unknown or decided; or for a grant, the person may not approve
            it, or its arguments were erased or differ from those that the page showed.
        LedgerError: the decision cannot be recorded.
    """
    verdict = asked.form.get("verdict")
    reason = asked.form.get("reason", "").strip()[:2000]
    if verdict not in ("grant", "deny", "happened"):
        raise InvalidInputError("Choose one of the buttons of the request.")
    if verdict == "happened":
        if not reason:
            raise InvalidInputError(
                "The result of the call is missing.",
                next_step="Write what happened, such as a receipt number; the model reads it.",
            )
        reason = f"It happened: {reason}"
    request_id = asked.rest
    arguments = None
    if verdict == "grant":
        arguments = _arguments(sources.approvals.get(request_id), asked)
    sources.runtime.approvals.decide(
        request_id,
        granted=verdict == "grant",
        by=name_of(asked.identity),
        reason=reason,
        arguments=arguments,
        person=sources.runtime.approvals.person_behind(
            asked.identity.key_id, asked.identity.user_id, asked.identity.name
        ),
    )
    return see(f"/console/approvals/{quote(request_id, safe='')}")


def _arguments(one: Approval, asked: Asked) -> Mapping[str, Any] | None:
    """Return the arguments to grant; ``None`` if they are erased or not an object."""
    if isinstance(one.arguments, Erased):
        return None
    shown = _exact(one.arguments)
    if asked.form.get("shown") != _digest(shown):
        raise ApprovalError(
            "The arguments changed after the page was loaded.",
            next_step="Open the request again and review the arguments.",
        )
    text = asked.form.get("arguments", "").replace("\r\n", "\n").strip()
    if not text or text == shown:
        return one.arguments if isinstance(one.arguments, Mapping) else None
    found = load_exact(text.encode("utf-8", "replace"))
    if not isinstance(found, dict):
        raise InvalidInputError("The arguments are not a JSON object.")
    return found


def _shown(sources: Sources, one: Approval, *, alone: bool = False) -> dict[str, Any]:
    shown: dict[str, Any] = one.to_dict()
    erased = isinstance(one.arguments, Erased)
    exact = wording.text_of(plain(one.arguments)) if erased else _exact(one.arguments)
    is_long = len(exact) > LONGEST
    changed = not erased and one.arguments != one.requested_arguments
    asked_for = Shortened().cut(plain(one.requested_arguments)) if changed else None
    return {
        **shown,
        **_around(sources, one),
        "amounts": amounts_of(one.arguments),
        "is_own": one.agent_id == sources.runtime.loaded.settings.chat.agent_id,
        "usable": one.usable(sources.runtime.ledger.wall_time),
        "arguments": exact if alone or not is_long else "",
        "requested_arguments": asked_for,
        "decision_reason": wording.text_of(plain(one.decision_reason)),
        "changed": changed,
        "erased": erased,
        "digest": _digest(exact),
        "editable": not erased and len(quote(exact)) < _LONGEST_EDITED,
    }


def _around(sources: Sources, one: Approval) -> dict[str, Any]:
    """Return the conversation before and after a request, and the description of the tool.

    The tool's description is that of the call of a model that wanted the tool.
    """
    ledger, short = sources.ledger, Shortened()

    def calls(order: Literal["asc", "desc"]) -> list[LedgerEntry]:
        return list(ledger.query(session_id=one.session_id, event_type="EXCHANGE", order=order,
                                 after=one.request_id, limit=1, with_content=False))  # fmt: skip

    before, after = calls("desc"), calls("asc") if one.state != "pending" else []
    talks = read_talks(ledger, [*before, *after])
    said = {
        name: short.cut(talks[call.id])
        for name, found in (("before", before), ("after", after))
        for call in found
    }
    tools = decoded(ledger.exact(before[0].id, ("tools",)).get("tools")) if before else []
    described = [
        tool.get("description")
        for tool in (tools if isinstance(tools, list) else ())
        if isinstance(tool, dict) and tool.get("name") == one.tool_id
    ]
    return {**said, "description": short.cut(described[0]) if described else ""}


def _exact(arguments: Any) -> str:
    """Return arguments as indented JSON without invisible characters."""
    return wording.visible_json(wording.pretty_json(arguments))


def _digest(shown: str) -> str:
    return hashlib.sha256(shown.encode("utf-8", "replace")).hexdigest()


VIEWS = (View("/console/approvals", show, change, "approve"),)
