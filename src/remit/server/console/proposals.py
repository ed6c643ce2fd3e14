"""The pages of proposals, of a proposal and of the learning report; decisions on proposals."""

from __future__ import annotations

from functools import cache
from urllib.parse import quote

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.learning.proposals import ProposalError, Proposals, canary_of
from remit.operations import Caller, Operation
from remit.packages import policy_epoch
from remit.runtime.operations import all_operations
from remit.server.asgi import Answer
from remit.server.console.caches import LATEST
from remit.server.console.forms import see
from remit.server.console.operation_forms import form_of, read_operation
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import key_names
from remit.server.refusals import HttpError
from remit.views import learning_shown, pictures_of

_LISTED = 100

_PATH = "/console/proposals"
_FORMS = {
    "set_aside": "Propose to set models aside", "tools": "Propose which tools are allowed",
    "limit": "Propose lower limits", "boundary": "Propose a contract's boundary",
    "abilities": "Propose abilities by grades",
}  # fmt: skip
"""The operations that a form proposes by, keyed by endpoint, with the text of the button."""


@cache
def _operations() -> dict[str, Operation]:
    known = {kind.endpoint: kind for kind in all_operations("learn") + all_operations("route")}
    return {known[endpoint].command: known[endpoint] for endpoint in _FORMS}


@cache
def _decisions() -> dict[str, Operation]:
    """Return the operations that decide on a proposal, by the last part of their path.

    An adoption with a share or as a shadow starts a canary.
    """
    made = (kind for kind in all_operations("learn") if kind.needs == "adopt")
    return {kind.route.rpartition("/")[2]: kind for kind in made}


def show(sources: Sources, asked: Asked) -> Page:
    """Return the list of proposals, a proposal, or the learning report (path ``report``).

    The list has the latest 100 proposals. A proposal with erased content has the status 410. The
    report, and the measured effect, come from a cache of a minute.

    Args:
        sources: the data sources.
        asked: the request; ``rest`` is a proposal id or ``report``, and ``realised`` in its query
            adds the measured effect.

    Raises:
        NotFoundError: the proposal does not exist.
        ProposalError: a recorded entry does not have the format that Remit writes.
        LedgerError: the ledger cannot be read.
    """
    known = Proposals(sources.runtime.root, sources.ledger)
    if not asked.rest:
        found = [one.to_dict() for one, _ in zip(known.all(), range(_LISTED), strict=False)]
        forms = [form_of(one, _FORMS[one.endpoint]) for one in _operations().values()]
        epoch = policy_epoch(sources.ledger)
        shown = {"proposals": found, "epoch": epoch, "forms": forms, "action": _PATH}
        return Page("proposals.html.j2", shown)
    if asked.rest == "report":
        report, read_at = sources.learned.read()
        shown = {**learning_shown(report), "latest": LATEST, "read_at": read_at}
        return Page("learned_report.html.j2", shown)
    try:
        one = known.get(asked.rest)
    except ProposalError as error:
        raise NotFoundError(error.message) from error
    realised = "realised" in asked.query
    picture = None
    if realised:
        effects = sources.learned.read()[0]["effects"]
        of = [effect for effect in effects if effect["proposal_id"] == one.proposal_id]
        picture = next(iter(pictures_of(of, {})), None)
    canary = canary_of(sources.ledger, one)
    is_tried = canary is not None and canary["state"] == "in force"
    form = form_of(_decisions()["adopt"], "Start a canary", fixed=("proposal_id",))
    by_key = known.evidence_by_key(one)
    key_ids = {*by_key, str((canary or {}).get("for_key") or "")}
    return Page(
        "proposal.html.j2",
        {
            "one": one.to_dict(),
            "name": one.name,
            "stale": known.stale(one) if one.state == "open" else "",
            "by_key": by_key,
            "key_names": key_names(sources.ledger, key_ids),
            "canary": canary,
            "canary_form": None if is_tried or one.kind != "head" else form,
            "realised": realised,
            "picture": picture,
            "latest": LATEST,
        },
        410 if one.erased else 200,
    )


def change(sources: Sources, asked: Asked) -> Answer:
    """Decide on a proposal, or propose a change by a form, for the signed-in person.

    Without an action in the path, the operation of the form is carried out, which needs the
    permission ``propose``. An action needs ``adopt``: the decision and its reason, cut to 1,000
    characters, are recorded; adoption and rollback install a package.

    Args:
        sources: the data sources, through whose runtime the decision is made.
        asked: the request; its path ends with ``ID/adopt``, ``ID/canary``, ``ID/reject``,
            ``ID/rollback`` or ``ID/stop``.

    Returns:
        A redirect to the page of the proposal.

    Raises:
        HttpError: 403, the person lacks the permission.
        NotFoundError: there is no such proposal, the path names no such action, or the form no such
            operation.
        InvalidInputError: the form has no reason, a value that cannot be used or recorded, or for
            a canary neither a share nor a shadow.
        ProposalError: the state of the proposal does not allow the action, or the evidence for a
            new one does not suffice.
        PackageError: a gate fails, or the package cannot be installed.
        LedgerError: the decision cannot be recorded.
    """
    command = asked.form.get("operation", "")
    operation = None if asked.rest else _operations().get(command)
    needs = operation.needs if operation else "adopt"
    if not asked.identity.may(needs):
        said = f"The role {asked.identity.role} lacks the permission {needs}."
        raise HttpError(403, "forbidden", said)
    if operation is not None:
        given = read_operation(operation, asked.form)
        found = operation.value(sources.writes, Caller(asked.identity), **given)
        return see(f"{_PATH}/{quote(found['proposal_id'], safe='')}")
    proposal_id, _, verb = asked.rest.partition("/")
    if verb == "canary":
        decision = _decisions()["adopt"]
        given = read_operation(decision, asked.form, proposal_id=proposal_id)
        if not (given.get("share") or given.get("shadow")):  # It would change all calls.
            raise InvalidInputError("A canary needs a share of the calls, or a shadow.")
    elif verb not in _decisions():
        raise NotFoundError(
            f"Unknown action {verb!r}: use adopt, canary, reject, rollback or stop."
        )
    else:
        decision, reason = _decisions()[verb], asked.form.get("reason", "").strip()
        if not reason:
            raise InvalidInputError("A reason is required; it is recorded permanently.")
        given = {"proposal_id": proposal_id, "reason": reason[:1000]}
    decision.value(sources.writes, Caller(asked.identity), **given)
    return see(f"{_PATH}/{quote(proposal_id, safe='')}")


VIEWS = (View(_PATH, show, change, "propose"),)
