"""Removal of everything learned from content that was erased since."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from remit.gateway.auth import Identity
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings
from remit.learning.exchanges import is_erased
from remit.learning.proposals.adoption import Governance
from remit.learning.proposals.change import Change
from remit.learning.proposals.learner import Learner
from remit.learning.proposals.proposal import Proposal
from remit.learning.routes.ridge import fit_evidence
from remit.learning.routes.route_fit import (
    EVIDENCE_FILE,
    HEAD_FILE,
    ROUTE_SETTINGS,
    RULES_FILE,
    route_files,
)
from remit.learning.statistics import Estimate, pairs_needed
from remit.ledger import LedgerClient, LedgerEntry, Transaction, entry_id, first_erased
from remit.packages import PackageError, archive_path, envelope_path, remove_file
from remit.routing import LearnedHead, canary_in_force

_NEWEST = "SELECT max(seq) FROM entries WHERE event_type = 'ERASURE'"
_BY = "erasure"
_log = logging.getLogger("remit.learning")


def forget_erased(
    root: Root, ledger: LedgerClient, loaded: LoadedSettings, governance: Governance
) -> list[str]:
    """Remove erased content from proposals and learned packages.

    An open proposal whose evidence or own content was erased loses its archive and its content. A
    routing head is fitted again without the erased prompts and adopted in its place. If too few
    prompts remain, or another learned package holds erased content, the package is removed, and the
    version before it is in force again. Archives and recorded heads of all versions with erased
    content are deleted.

    May be repeated after a crash. Appends ``SIGNAL_ROLLED_BACK``, ``SIGNAL_PROPOSED``,
    ``SIGNAL_ADOPTED``, ``SIGNAL_CANARY`` and ``ERASURE`` entries; each rollback, adoption and
    stopped canary begins a policy epoch. The file ``proposals/.erased`` names the newest
    erasure that was handled.

    Returns:
        Ids of the proposals that held erased content; empty if no erasure is newer than the mark.

    Raises:
        PackageError: a package cannot be rolled back or removed.
        ProposalError: ``no_role``: a canary must be stopped, and the role of ``governance`` does
            not allow ``adopt``.
        LedgerError: the ledger cannot be read or written.
    """
    mark = root.path / "proposals" / ".erased"
    ((newest,),) = ledger.select(_NEWEST)
    handled = -1
    with suppress(OSError, ValueError):
        handled = int(mark.read_text())
    if newest is None or newest <= handled:
        return []
    known = list(governance.proposals.all())
    gone = []
    held: dict[str, list[tuple[Proposal, str]]] = {}
    for one in known:
        read = map(ledger.read, (*one.holds, *(one.evidence * (one.state == "open"))))
        for entry in itertools.islice(filter(is_erased, read), 1):
            gone.append(one)
            erased = first_erased(entry.metadata.values())
            if one.state in ("adopted", "rolled_back"):
                found = one, (erased and erased.erasure_id) or "unknown"
                held.setdefault(one.package_id, []).append(found)
    learner = Learner(root, ledger, loaded, Identity(_BY, "operator"))
    for those in held.values():
        _take_away(root, ledger, learner, governance, those, known)
    for one in gone:
        terms, name = canary_in_force(ledger), one.proposal_id
        if terms is not None and terms.proposal_id == name:
            governance.stop_canary(name, reason="Content that it was fitted to was erased.")
        for entry in ledger.query(event_type="SIGNAL_CANARY", submission_id=name):
            _erase_thoughts(ledger, entry.metadata.get("heads", ()))
        governance.proposals.archive(one.proposal_id).unlink(missing_ok=True)
        if not one.erased:
            why = "It was concluded from content that was erased."
            ledger.erase(one.entry_id, reason=why, requested_by="learning")
    ((newest,),) = ledger.select(_NEWEST)
    mark.parent.mkdir(mode=0o700, exist_ok=True)
    mark.write_text(f"{newest}\n")
    return [one.proposal_id for one in gone]


def _take_away(
    root: Root, ledger: LedgerClient, learner: Learner, governance: Governance,
    held: Sequence[tuple[Proposal, str]], known: Iterable[Proposal],
) -> None:  # fmt: skip
    """Put a learned package in force without erased content; delete all versions with it.

    Args:
        held: proposals of the package with erased content, latest first, with the erasure.
    """
    first, erasure_id = min(held, key=lambda one: _number(one[0].version))
    since, package_id, back = _number(first.version), first.package_id, first.previous_version
    manager = governance.manager
    names = {one.proposal_id for one, _ in held}

    def rolled_back(tx: Transaction, all_later: bool = False) -> Iterator[LedgerEntry]:
        for one in known:
            if one.state != "adopted" or one.rolls_back or one.package_id != package_id:
                continue
            if one.proposal_id in names or (all_later and _number(one.version) >= since):
                why = "Content that it holds was erased."
                entry = governance.decision(tx, one, "ROLLED_BACK", why, version=back)
                entry.reason += ": what it held was erased"
                entry.metadata |= {"role": "", "erasure_id": erasure_id}
                yield entry

    now = manager.registry().packages.get(package_id)
    # A process that was killed may have done this step before.
    done = all((one.state, one.decided_by) == ("rolled_back", _BY) for one, _ in held)
    in_force = now is not None and _number(now.version) >= since and not done
    if in_force and not _refit(learner, governance, held[0][0], back, rolled_back):
        removed = partial(rolled_back, all_later=True)
        try:
            if not back:
                raise PackageError("no_older_version", "There was none before.")
            manager.rollback(package_id, back, approve=True, extra_entries=removed)
        except PackageError as error:
            if error.code not in ("no_older_version", "archive_lost"):
                raise
            back = ""
            manager.remove(package_id, extra_entries=removed)
    registry = manager.registry()
    clean = registry.packages.get(package_id)
    for package in registry.history.get(package_id, ()):
        if _number(package.version) >= since and (
            clean is None or package.version != clean.version
        ):
            named = [asset.sha256.removeprefix("sha256:") for asset in package.manifest.assets]
            _erase_thoughts(
                ledger, [f"{kind}-{one}" for one in named for kind in ("HEAD", "EVIDENCE")]
            )
            for path in (archive_path(package), envelope_path(package)):
                remove_file(root.path, path)


def _refit(
    learner: Learner, governance: Governance, latest: Proposal, back: str,
    rolled_back: Callable[[Transaction], Iterator[LedgerEntry]],
) -> bool:  # fmt: skip
    """Adopt the head in force again, fitted without erased prompts.

    Returns:
        False if the package must be removed: its content is not a head with evidence, fewer prompts
        remain than the guard needs for models with equal rewards, or the new head is refused.
    """
    files = learner.installed
    if latest.kind != "head" or {*map(files.owner, (RULES_FILE, HEAD_FILE, EVIDENCE_FILE))} != {
        latest.package_id
    }:
        return False
    head = LearnedHead.from_bytes(files.read(HEAD_FILE), files.read(EVIDENCE_FILE))
    ids = [row.exchange_id for row in head.neighbours]
    erased = {one.id for one in learner.read_many({*ids, *latest.evidence}) if is_erased(one)}
    if erased.isdisjoint(ids):  # A later head was fitted without the erased prompts.
        return True
    left = [row for row in head.neighbours if row.exchange_id not in erased]
    whole = [row for row in left if row.rewards.keys() == head.models.keys()]
    guard = learner.loaded.settings.routing.guard
    if len(whole) < pairs_needed(guard.tolerance, 0, looks=max(1, guard.looks)):
        return False
    gate = latest.replay.get("gate")
    why = f"{latest.proposal_id} was fitted again without erased content."
    try:
        made = learner.propose(
            Change(
                "head",
                settings=ROUTE_SETTINGS,
                files=route_files(json.loads(files.read(RULES_FILE)), fit_evidence(left)),
            ),
            evidence=[one for one in latest.evidence if one not in erased],
            predicted=Estimate(**latest.predicted), gate=Estimate(**gate) if gate else None,
            replay=latest.replay, holds=[row.exchange_id for row in left], reason=why,
        )  # fmt: skip
        governance.adopt(made.proposal_id, reason=why, also=rolled_back, back=back)
    except RemitError as error:
        _log.warning("%s cannot be fitted again: %s", latest.name, error.message)
        return False
    return True


def _erase_thoughts(ledger: LedgerClient, names: Iterable[str]) -> None:
    """Erase recorded routing heads and their evidence; names without a thought are left out."""
    for thought_id in names:
        for (seq,) in ledger.select("SELECT seq FROM thoughts WHERE thought_id = ?", (thought_id,)):
            name = entry_id(int(seq))
            if not is_erased(ledger.read(name)):  # versions may share a head
                why = "It was learned from content that was erased."
                ledger.erase(name, reason=why, requested_by="learning")


def _number(version: str) -> int:
    return int(version.partition(".")[0])
