"""Proposals: what would change and why, what was predicted and what came; a person's decision."""

from __future__ import annotations

from urllib.parse import quote

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.learning.proposals import ProposalError, Proposals
from remit.runtime.installation import governance
from remit.server.console.kept_report import LATEST
from remit.server.console.pages import Asked, Page, Redirect, Sources, View
from remit.views import learning_shown, pictures_of

_VERBS = ("adopt", "reject", "rollback")
_LISTED = 100


def show(sources: Sources, asked: Asked) -> Page:
    """All proposals, or one; or what was learned."""
    known = Proposals(sources.runtime.root, sources.ledger)
    if not asked.rest:
        found = [one.to_dict() for one, _ in zip(known.all(), range(_LISTED), strict=False)]
        return Page("proposals.html.j2", {"proposals": found, "epoch": known.epoch()})
    if asked.rest == "report":
        kept = sources.learned.read()
        shown = {**learning_shown(kept.report), "latest": LATEST, "read_at": kept.read_at}
        return Page("learned_report.html.j2", shown)
    try:
        one = known.get(asked.rest)
    except ProposalError as error:
        raise NotFoundError(error.message) from error
    realised = "realised" in asked.query
    picture = None
    if realised:
        effects = sources.learned.read().report["effects"]
        of = [effect for effect in effects if effect["proposal_id"] == one.proposal_id]
        picture = next(iter(pictures_of(of, {})), None)
    return Page(
        "proposal.html.j2",
        {
            "one": one.to_dict(),
            "name": one.name,
            "stale": known.stale(one) if one.state == "open" else "",
            "by_key": known.evidence_by_key(one),
            "realised": realised,
            "picture": picture,
            "latest": LATEST,
        },
        410 if one.erased else 200,
    )


def change(sources: Sources, asked: Asked) -> Redirect:
    """Adopt, reject or roll back, in the name of the key's owner."""
    proposal_id, _, verb = asked.rest.partition("/")
    if verb not in _VERBS:
        raise NotFoundError("There is no such decision.")
    reason = asked.form.get("reason", "").strip()
    if not reason:
        raise InvalidInputError("Say why; the reason stays on record.")
    runtime = sources.runtime
    decide = getattr(governance(runtime.root, runtime.ledger, runtime.loaded, asked.identity), verb)
    decide(proposal_id, reason=reason[:1000])
    return Redirect(f"/console/proposals/{quote(proposal_id, safe='')}")


VIEWS = (View("/console/proposals", show, change, "adopt"),)
