"""Adoption, rejection and rollback: decisions of a person, recorded with the installation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from remit.gateway.auth import Identity, KeyStore
from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings, RoutingSettings, load_settings
from remit.learning.proposals.canary_comparison import Compared, read_canary
from remit.learning.proposals.proposal import Proposal, ProposalError, Proposals, require_in_force
from remit.learning.routes.ridge import prices_at
from remit.learning.routes.route_fit import EVIDENCE_FILE, HEAD_FILE, RULES_FILE
from remit.ledger import KERNEL_ROWS, LedgerClient, LedgerEntry, Transaction, content, is_plain_text
from remit.packages import (
    LEARNED_PACKAGES,
    PackageError,
    PackageManager,
    policy_epoch,
    prices_of,
)
from remit.packages.gates import GateContext, check_settings
from remit.packages.shipped import signed_by_root
from remit.routing import CanaryTerms, LearnedHead, append_head, canary_in_force

_LATEST = (
    "SELECT event_type FROM entries WHERE submission_id = ? AND event_type IN "
    "('SIGNAL_ADOPTED', 'SIGNAL_REJECTED', 'SIGNAL_ROLLED_BACK') "
    f"AND {KERNEL_ROWS} ORDER BY seq DESC LIMIT 1"
)
_AGAIN = "Propose the change again with the current record."


class Governance:
    """The decisions of a person on the proposals of a root.

    A decision that changes a package is one transaction of it and the entry with person and reason.
    A killed process leaves both or neither; the next command completes the files.

    All decisions but :meth:`settle_canary` take the id of a proposal, the beginning of one, or
    ``last``, and the person's reason, which is recorded permanently. Nothing is changed by a
    decision that raises ProposalError or InvalidInputError.

    Args:
        context: returns the context of the gates under other settings.
        identity: the person; the role must allow `adopt`.

    Attributes:
        proposals: the proposals of the root.
        manager: the manager of its packages.
    """

    def __init__(
        self, root: Root, ledger: LedgerClient, manager: PackageManager,
        context: Callable[[LoadedSettings], GateContext], identity: Identity,
    ) -> None:  # fmt: skip
        self.proposals = Proposals(root, ledger)
        self._root = root
        self._ledger = ledger
        self.manager = manager
        self._context = context
        self._identity = identity

    def adopt(
        self, proposal_id: str, *, reason: str,
        also: Callable[[Transaction], Iterator[LedgerEntry]] = lambda tx: iter(()),
        back: str | None = None, compared: Compared | None = None,
    ) -> Proposal:  # fmt: skip
        """Install a proposal, or perform its rollback, and begin a policy epoch; return it.

        The call appends ``SIGNAL_ADOPTED`` together with the entry of the package, and writes the
        package's files. The proposal's archive is deleted. A first adoption also lets the root's
        own key sign learned packages, which is recorded with it and changes ``trust.json``.

        Args:
            proposal_id: id of an open proposal, the beginning of one, or ``last``.
            reason: the person's reason, recorded permanently.
            also: returns entries to write before, in the same transaction.
            back: the version that a later rollback installs; ``None`` for the present one. If
                given, or with ``compared``, prices are not compared.
            compared: the comparison of the canary that ends with the adoption; None without one.
                Ignored for a rollback, as are ``also`` and ``back``.

        Raises:
            ProposalError: ``no_role``: the person's role does not allow ``adopt``; ``no_reason``:
                the reason is empty; ``not_found``, ``ambiguous``: the id names no or several
                proposals; ``decided``: the proposal is not open; ``stale``: evidence, prices or
                installed version changed; ``edited``: the archive was changed; ``lost``: the
                archive cannot be read; ``not_in_force``: the version that a rollback would replace
                is not installed; ``no_canary``: ``compared`` is given and no canary of the proposal
                is in force.
            InvalidInputError: the reason contains NUL or a lone surrogate.
            PackageError: a gate fails, or the package cannot be installed.
            ConfigError: the resulting settings cannot be used.
            LedgerError: the ledger cannot be read or written.
        """
        proposal = self._open(proposal_id, reason)
        self._require_current(proposal)  # An erasure removes the archive too.
        if proposal.rolls_back:
            self._take_back(self.proposals.get(proposal.rolls_back), reason, proposal)
            return self.proposals.get(proposal.proposal_id)
        # A refitted route is in force already, and a canary was compared at the prices in force.
        if back is None and compared is None:
            self._require_prices(proposal)
        archive = self.proposals.read(proposal, self.manager.settings)
        self._check_settings(archive.files)
        incoming, trusting = signed_by_root(
            self._root, archive, f"proposal {proposal.proposal_id}", LEARNED_PACKAGES
        )

        def beside(tx: Transaction) -> Iterator[LedgerEntry]:
            yield from also(tx)
            decision = self.decision(tx, proposal, "ADOPTED", reason, version=proposal.version)
            if back is not None:
                decision.metadata["previous_version"] = back
            if compared is not None:
                self._require_canary(tx, proposal.proposal_id)
                decision.metadata["compared"] = asdict(compared)
            yield decision

        self.manager.install(
            [incoming], approve=True, extra_entries=beside, trusting=trusting, reason=reason
        )
        self.proposals.archive(proposal.proposal_id).unlink(missing_ok=True)
        return self.proposals.get(proposal.proposal_id)

    def start_canary(
        self, proposal_id: str, *, reason: str, share: float, usd: float, for_key: str = "",
        task: str = "",
    ) -> Proposal:  # fmt: skip
        """Try a proposed route on a share of the calls, begin a policy epoch; return the proposal.

        The call appends a ``SIGNAL_CANARY`` entry with the terms and the rules, and in the same
        transaction the proposed head. Nothing is installed. The canary ends by
        :meth:`settle_canary`, :meth:`stop_canary`, or a decision on the proposal.

        Args:
            proposal_id: id of an open proposal, the beginning of one, or ``last``.
            reason: the person's reason, recorded permanently.
            share: share of the calls, at least 0 and below 1. With 0 the proposed route chooses,
                and the current one answers (shadow).
            usd: most that the canary may cost in US dollars; 0 for a shadow.
            for_key: id of the only key whose calls count; empty for all.
            task: the only task whose calls count; empty for all.

        Raises:
            ProposalError: ``canary_in_force``: a canary is in force; ``no_role``: the person's role
                does not allow ``adopt``; ``no_reason``: the reason is empty; ``not_found``,
                ``ambiguous``: the id names no or several proposals; ``decided``: the proposal is
                not open; ``stale``: evidence, prices or installed version changed; ``edited``,
                ``lost``: the archive was changed or cannot be read.
            PackageError: gate G3 refuses the resulting settings.
            InvalidInputError: the proposal is of another kind than ``head``, the share or the
                budget has a wrong value, only one of them is 0, no call has the task, or the reason
                contains NUL or a lone surrogate.
            ConfigError: the resulting settings cannot be used.
            LedgerError: the ledger cannot be read or written.
        """
        proposal = self._open(proposal_id, reason)
        if proposal.kind != "head":
            raise InvalidInputError(
                f"A proposal of the kind {proposal.kind} has no canary.",
                next_step="Only learned routes (kind head) can be tried; adopt it for all calls.",
            )
        if not 0 <= share < 1 or not 0 <= usd < 1e9 or bool(share) != bool(usd):
            raise InvalidInputError(
                "A canary needs a share above 0 and below 1 and a budget above 0; a shadow has "
                "neither.",
                next_step="Both routes must answer some calls, so that they can be compared.",
            )
        self._require_current(proposal)
        self._require_prices(proposal)
        files = self.proposals.read(proposal, self.manager.settings).files
        settings = self._check_settings(files).settings.routing
        rules = json.loads(files[RULES_FILE])
        if task:
            _check_task(task, settings, rules)
        head = LearnedHead.from_bytes(files[HEAD_FILE], files[EVIDENCE_FILE])
        terms: dict[str, Any] = {
            "share": share, "usd": usd, "tolerance": settings.guard.tolerance, "for_key": for_key,
            "task": task, "rules": content(rules),
            "heads": [f"HEAD-{head.digest}", f"EVIDENCE-{sha256_hex(head.evidence)}"],
        }  # fmt: skip

        def write(tx: Transaction) -> None:
            if canary_in_force(tx) is not None:
                raise ProposalError(
                    "canary_in_force",
                    "A canary is in force, and only one can be at a time.",
                    next_step="End it with `remit learn stop`.",
                )
            entry = self.decision(tx, proposal, "CANARY", reason)
            tx.append(_of_canary(tx, entry, "STARTED", terms))
            append_head(tx, self._ledger, head)

        self._ledger.transact(write)
        return self.proposals.get(proposal.proposal_id)

    def stop_canary(self, proposal_id: str, *, reason: str) -> Proposal:
        """End a canary without an adoption, begin a policy epoch, and return the open proposal.

        The call appends a ``SIGNAL_CANARY`` entry with the comparison so far.

        Args:
            proposal_id: id of the proposal, the beginning of one, or ``last``.
            reason: the person's reason, recorded permanently.

        Raises:
            ProposalError: ``no_canary``: no canary of the proposal is in force; ``no_role``: the
                person's role does not allow ``adopt``; ``no_reason``: the reason is empty;
                ``not_found``, ``ambiguous``: the id names no or several proposals.
            InvalidInputError: the reason contains NUL or a lone surrogate.
            LedgerError: the ledger cannot be read or written.
        """
        proposal = self._known(proposal_id, reason)
        terms = self._require_canary(self._ledger, proposal.proposal_id)
        self._stop(proposal, reason, read_canary(self._ledger, terms))
        return self.proposals.get(proposal.proposal_id)

    def settle_canary(self) -> Compared | None:
        """End the canary in force if its comparison has decided, and return the comparison.

        The verdict ``adopt`` adopts the proposal (:meth:`adopt`), and ``stop`` stops the canary;
        while undecided nothing is changed. A proposal that is ``stale``, ``edited`` or ``lost`` is
        stopped instead, and the returned verdict is ``stop``; so is a canary of a key that was
        revoked or expired. None is returned without a canary.

        The reason is that of the comparison. Only an adoption requires a role that allows it: a
        stop follows from recorded calls and returns all calls to the current route.

        Raises:
            ProposalError: ``decided`` or ``no_canary``: another process decided during the call; or
                ``no_role`` for an adoption.
            PackageError: the package cannot be installed now.
            ConfigError: the resulting settings cannot be used.
            LedgerError: the ledger cannot be read or written.
        """
        terms = canary_in_force(self._ledger)
        if terms is None:
            return None
        found = read_canary(self._ledger, terms)
        if terms.for_key:
            try:
                KeyStore(self._ledger).current(terms.for_key)
            except ConflictError as error:
                found = replace(found, verdict="stop", reason=error.message)
        if found.verdict == "adopt":
            try:
                self.adopt(terms.proposal_id, reason=found.reason, compared=found)
            except ProposalError as error:
                if error.code not in ("stale", "edited", "lost"):
                    raise
                found = replace(found, verdict="stop", reason=error.message)
        if found.verdict == "stop":
            self._stop(self.proposals.get(terms.proposal_id), found.reason, found)
        return found

    def _stop(self, proposal: Proposal, reason: str, found: Compared) -> None:
        def write(tx: Transaction) -> None:
            self._require_canary(tx, proposal.proposal_id)
            entry = self.decision(tx, proposal, "CANARY", reason)
            tx.append(_of_canary(tx, entry, "STOPPED", {"compared": asdict(found)}))

        self._ledger.transact(write)

    def _require_canary(self, record: LedgerClient | Transaction, proposal_id: str) -> CanaryTerms:
        terms = canary_in_force(record)
        if terms is None or terms.proposal_id != proposal_id:
            raise ProposalError(
                "no_canary",
                f"No canary of {proposal_id} is in force.",
                next_step="`remit learn show` shows the state of the proposal.",
            )
        return terms

    def reject(self, proposal_id: str, *, reason: str) -> Proposal:
        """Record the rejection of an open proposal, delete its archive, and return it.

        The call appends a ``SIGNAL_REJECTED`` entry.

        Args:
            proposal_id: id of an open proposal, the beginning of one, or ``last``.
            reason: the person's reason, recorded permanently.

        Raises:
            ProposalError: ``no_role``: the person's role does not allow ``adopt``; ``no_reason``:
                the reason is empty; ``not_found``, ``ambiguous``: the id names no or several
                proposals; ``decided``: the proposal is not open.
            InvalidInputError: the reason contains NUL or a lone surrogate.
            LedgerError: the entry cannot be written; the archive stays.
        """
        proposal = self._open(proposal_id, reason)

        def write(tx: Transaction) -> None:
            tx.append(self.decision(tx, proposal, "REJECTED", reason))

        self._ledger.transact(write)
        self.proposals.archive(proposal.proposal_id).unlink(missing_ok=True)
        return self.proposals.get(proposal.proposal_id)

    def rollback(self, proposal_id: str, *, reason: str) -> Proposal:
        """Undo an adopted proposal, begin a policy epoch, and return the proposal.

        The version in force before the adoption is installed. If there was none, the package is
        removed. The call appends ``SIGNAL_ROLLED_BACK`` together with the entry of the package.

        Args:
            proposal_id: id of the adopted proposal, the beginning of one, or ``last``.
            reason: the person's reason, recorded permanently.

        Raises:
            ProposalError: ``not_in_force``: the package is at another version, or not installed;
                ``decided``: the proposal is not adopted or is a rollback; ``no_role``: the person's
                role does not allow ``adopt``; ``no_reason``: the reason is empty; ``not_found``,
                ``ambiguous``: the id names no or several proposals.
            InvalidInputError: the reason contains NUL or a lone surrogate.
            PackageError: the earlier version is no longer stored, the package cannot be removed, or
                a gate fails.
            LedgerError: the ledger cannot be read or written.
        """
        proposal = self._known(proposal_id, reason)
        self._take_back(proposal, reason)
        return self.proposals.get(proposal.proposal_id)

    def _take_back(self, proposal: Proposal, reason: str, rollback: Proposal | None = None) -> None:
        require_in_force(proposal, self.manager.registry())
        back = proposal.previous_version

        def beside(tx: Transaction) -> Iterator[LedgerEntry]:
            decision = "ADOPTED" if rollback else "ROLLED_BACK"
            yield self.decision(tx, rollback or proposal, decision, reason, version=back)

        if back:
            self.manager.rollback(proposal.package_id, back, approve=True, extra_entries=beside)
        else:
            self.manager.remove(proposal.package_id, extra_entries=beside)

    def _known(self, proposal_id: str, reason: str) -> Proposal:
        if not self._identity.may("adopt"):
            raise ProposalError(
                "no_role",
                f"The role {self._identity.role} may not decide proposals.",
                next_step="Use a key with the role admin.",
            )
        if not is_plain_text(reason):
            raise InvalidInputError(
                "The reason contains NUL or a lone surrogate, which cannot be recorded."
            )
        if not reason.strip():
            raise ProposalError(
                "no_reason",
                "A decision on a proposal requires a reason.",
                next_step="Give a reason. It is recorded permanently; name no person in it.",
            )
        return self.proposals.get(proposal_id)

    def _open(self, proposal_id: str, reason: str) -> Proposal:
        proposal = self._known(proposal_id, reason)
        if proposal.state != "open":
            raise _decided(proposal.proposal_id, proposal.state)
        return proposal

    def _require_current(self, proposal: Proposal) -> None:
        package = self.manager.registry().packages.get(proposal.package_id)
        now, then = package.version if package else "", proposal.base_version
        why = self.proposals.stale(proposal)
        if not why and now != then:
            why = (f"{proposal.package_id} was {then or 'not installed'} then, and is "
                   f"{now or 'not installed'} now")  # fmt: skip
        if why:
            again = (
                "Reject it; `remit learn report --propose` creates a current proposal."
                if proposal.rolls_back
                else _AGAIN
            )
            raise ProposalError(
                "stale", f"{proposal.proposal_id} is stale: {why}.", next_step=again
            )

    def _require_prices(self, proposal: Proposal) -> None:
        """Raise ProposalError if a price of the route's models changed since the route was fitted.

        Proposals of earlier versions name no prices; nothing is checked then.
        """
        then: Mapping[str, str] = proposal.replay.get("prices", {})
        named = load_settings(self._root.config).settings.budget.prices
        now = prices_at(prices_of(self._root, named).table, then)
        if changed := [name for name in then if now[name] != then[name]]:
            raise ProposalError(
                "stale",
                f"{proposal.proposal_id} is stale: the prices changed since the route was fitted: "
                f"{', '.join(changed)}.",
                next_step="`remit route fit --propose` fits the route again and makes no calls.",
            )

    def _check_settings(self, files: Mapping[str, bytes]) -> LoadedSettings:
        """Return the resulting settings; raise PackageError if gate G3 refuses them."""
        loaded = load_settings(self._root.config, proposed=files)
        for finding in check_settings(self._context(loaded), files):
            raise PackageError(
                "gate_failed",
                f"Gate G3 fails: {finding.message}",
                next_step=finding.next_step,
            )
        return loaded

    def decision(
        self, tx: Transaction, proposal: Proposal, decision: str, reason: str, *,
        version: str | None = None,
    ) -> LedgerEntry:  # fmt: skip
        """Return the entry of a decision, not yet written. The role is not checked.

        Args:
            tx: the transaction that will append the entry; earlier decisions are read in it.
            decision: ``ADOPTED``, ``REJECTED``, ``ROLLED_BACK`` or ``CANARY``.
            version: the version that the decision installs; None if it changes nothing.

        Raises:
            ProposalError: ``decided``: the proposal was adopted, rejected or rolled back before;
                for ``ROLLED_BACK``, it is not adopted.
        """
        latest = tx.execute(_LATEST, (proposal.proposal_id,))
        expected = [("SIGNAL_ADOPTED",)] if decision == "ROLLED_BACK" else []
        if [tuple(row) for row in latest] != expected:
            raise _decided(proposal.proposal_id, "decided on")
        metadata: dict[str, Any] = {
            "proposal_id": proposal.proposal_id, "kind": proposal.kind,
            "package_id": proposal.package_id, "by": self._identity.name,
            "role": self._identity.role, "decision_reason": reason,
        }  # fmt: skip
        if self._identity.key_id:
            metadata["key_id"] = self._identity.key_id
        if version is not None:
            previous = proposal.version if decision == "ROLLED_BACK" else proposal.base_version
            metadata |= {
                "version": version,
                "previous_version": previous,
                "policy_epoch": policy_epoch(tx) + 1,
            }
            if proposal.rolls_back:
                metadata["rolls_back"] = proposal.rolls_back
        return LedgerEntry(
            f"SIGNAL_{decision}", proposal.proposal_id, decision,
            f"{proposal.name} {decision.replace('_', ' ').lower()}", metadata=metadata,
        )  # fmt: skip


def _check_task(task: str, settings: RoutingSettings, rules: Mapping[str, Any]) -> None:
    """Raise InvalidInputError if neither the rules nor the settings of routes name a task."""
    known = {"chat", *rules["intent"]["tasks"]}
    known.update(route.task for route in settings.routes.values() if route.task)
    for model in settings.models.values():
        known.update(model.abilities.keys() - {"general"})
    if task not in known:
        raise InvalidInputError(
            f"No call has the task {task!r}.", next_step=f"Tasks: {', '.join(sorted(known))}."
        )


def _of_canary(
    tx: Transaction, entry: LedgerEntry, decision: str, more: Mapping[str, Any]
) -> LedgerEntry:
    """Return the entry of a canary's start or stop, which begins a policy epoch."""
    entry.decision = decision
    entry.reason = f"canary of {entry.metadata['package_id']} {decision.lower()}"
    entry.metadata |= {"policy_epoch": policy_epoch(tx) + 1, **more}
    return entry


def _decided(proposal_id: str, state: str) -> ProposalError:
    return ProposalError(
        "decided",
        f"{proposal_id} is already {state.replace('_', ' ')}.",
        next_step="`remit learn show` shows by whom and why.",
    )
