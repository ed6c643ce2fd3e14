"""A learner's rights on a root: to read the ledger, and to propose by the record."""

from __future__ import annotations

import secrets
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from remit.contracts import ContractLoader
from remit.gateway.auth import Identity
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.durable_files import write_new
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.message_text import fixed
from remit.kernel.root import Root
from remit.kernel.settings import LoadedSettings, load_settings
from remit.learning.evidence.samples import Sample
from remit.learning.exchanges import is_erased
from remit.learning.grading import learnable_contract
from remit.learning.proposals.change import Change
from remit.learning.proposals.proposal import (
    Proposal,
    ProposalError,
    Proposals,
    evidence_digest,
    require_in_force,
)
from remit.learning.signals import FACT, Window
from remit.learning.statistics import Estimate, difference
from remit.learning.statistics.fixed_sample_intervals import ALPHA
from remit.ledger import LedgerClient, LedgerEntry, content
from remit.packages import PLACES, Archive, Manifest, Registry, disk_errors, package_lock

MIN_EFFECTIVE_SAMPLES = 200
"""Smallest effective sample size of a proposal."""

_ALWAYS_VALID = ("betting", "empirical_bernstein")
_PREDICTED = ("value", "low", "high", "confidence", "samples", "effective_samples", "method")


class Learner:
    """A learner's handle on a root, which reads, and writes only proposals.

    The handle is a :class:`~remit.ledger.LedgerReader`: ``read``, ``read_many``, ``select`` and
    ``query`` are those of the ledger.

    Args:
        identity: the owner of the learner; the role must allow `propose`.

    Raises:
        ProposalError: ``no_role``: the role does not allow ``propose``.
    """

    def __init__(
        self, root: Root, ledger: LedgerClient, loaded: LoadedSettings, identity: Identity
    ) -> None:
        if not identity.may("propose"):
            raise ProposalError(
                "no_role",
                f"The role {identity.role} of {identity.name} may not propose changes.",
                next_step="Use a key with the role operator or admin.",
            )
        self.loaded = loaded
        self.identity = identity
        self.installed = InstalledFiles(root.path)
        self.contracts = ContractLoader(root.tier("ho1"), installed=self.installed)
        self.proposals = Proposals(root, ledger)
        self._root = root
        self._ledger = ledger
        self.read, self.read_many = ledger.read, ledger.read_many
        self.select, self.query = ledger.select, ledger.query

    def propose(
        self, change: Change, *, evidence: Sequence[str], predicted: Estimate,
        replay: Mapping[str, Any], reason: str, holds: Sequence[str] = (),
        gate: Estimate | None = None,
    ) -> Proposal:  # fmt: skip
        """Record a proposal with its evidence, store the package version, and return the proposal.

        The version is one above all that were ever installed or proposed. The archive's bytes
        follow from the change, the installed files and the version. The call appends a
        ``SIGNAL_PROPOSED`` entry, and writes the archive below ``proposals/``. Nothing is
        installed.

        Args:
            evidence: ids of the entries behind the proposal, such as exchanges and feedback.
                Erasing one of them, or changing a grade, makes the proposal stale.
            predicted: the predicted effect; above 0 is better.
            replay: summary of the replay on held-out exchanges, as JSON.
            holds: ids of the exchanges whose content is in the package's own bytes. Erasing one
                changes or removes the package.
            gate: the estimate of the same effect that is checked in place of ``predicted``, and
                recorded with ``replay``; None to check ``predicted``.

        Raises:
            ProposalError: ``not_enough``: there is no evidence; the interval is not above 0; or,
                except for the method ``one_sided``, it is not always valid or has fewer than 200
                effective samples. ``missing`` lists the gaps. ``stale``: evidence was erased.
            EntryNotFoundError: an entry of the evidence does not exist.
            LedgerError: the ledger cannot be read or written; the archive is then deleted.
            ContractError: the contract of the change does not exist, or is not valid.
            PackageError: ``busy``: another process holds the packages' lock; ``unwritable``: the
                archive cannot be written.
            InvalidInputError: the change does not fit its kind, changes nothing, or is not valid.
            ConfigError: the resulting settings cannot be used.
            ChangedFileError: an installed file differs from its package.
        """
        change.check()
        if change.contract_id:
            learnable_contract(self._ledger, self.contracts, change.contract_id)
        case = self._case(evidence, holds, predicted, gate, replay, reason)
        package_id = change.package_id
        with package_lock(self._root.path, self.loaded.settings.packages.lock_timeout_s):
            registry = Registry.from_ledger(self._ledger)
            proposed = (one for one in self.proposals.all() if one.package_id == package_id)
            known = [*registry.history.get(package_id, ()), *proposed]
            number = 1 + max(
                (int(one.version.partition(".")[0]) for one in known if one.version), default=0
            )
            made = change.made(self.installed, self.contracts, number)
            load_settings(self._root.config, proposed=made)
            archive = _archive(change, made, f"{number}.0.0", registry)
            base = registry.packages.get(package_id)
            what = {
                "kind": change.kind, "target": change.target, "package_id": package_id,
                "version": archive.manifest.version,
                "base_version": base.version if base is not None else "", "digest": archive.digest,
                "diff": content(change.compared(self.installed, self.contracts, made)),
            }  # fmt: skip
            said = f"{package_id} {archive.manifest.version} proposed: {change.kind}"
            return self._write(what | case, said, archive.data)

    def propose_rollback(
        self, adopted: Proposal, *, evidence: Sequence[str], predicted: Estimate, gate: Estimate,
        replay: Mapping[str, Any], reason: str,
    ) -> Proposal:  # fmt: skip
        """Propose a rollback to the state before a proposal's adoption; return the new proposal.

        The call appends a ``SIGNAL_PROPOSED`` entry; there is no archive. Nothing is rolled back.

        Args:
            adopted: the proposal, which is read again. The other arguments are those of
                :meth:`propose`.

        Raises:
            ProposalError: ``decided``: the proposal is not adopted, is a rollback, or has an open
                rollback; ``not_in_force``: the package is at another version, or not installed;
                ``not_found``: the proposal does not exist; ``not_enough``: there is no evidence, or
                the gate does not suffice (:meth:`propose`); ``stale``: evidence was erased.
            EntryNotFoundError: an entry of the evidence does not exist.
            LedgerError: the ledger cannot be read or written.
            PackageError: ``busy``: another process holds the packages' lock.
        """
        name = adopted.proposal_id
        with package_lock(self._root.path, self.loaded.settings.packages.lock_timeout_s):
            adopted = self.proposals.get(name)
            for one in self.proposals.all():
                if one.rolls_back == name and one.state == "open":
                    raise ProposalError(
                        "decided",
                        f"{one.proposal_id} already proposes to roll {name} back.",
                        next_step="`remit learn proposals` shows its state.",
                    )
            require_in_force(adopted, Registry.from_ledger(self._ledger))
            case = self._case(evidence, (), predicted, gate, replay, reason)
            back = adopted.previous_version
            what = {
                "kind": "rollback", "target": adopted.target, "package_id": adopted.package_id,
                "version": back, "base_version": adopted.version, "digest": "",
                "diff": content(
                    f"{adopted.package_id} {adopted.version} -> {back or 'not installed'}\n"
                    f"`remit learn show {name}` shows what that took."
                ),
                "rolls_back": name,
            }  # fmt: skip
            said = f"rollback of {adopted.package_id} {adopted.version} proposed"
            return self._write(what | case, said)

    def _case(
        self, evidence: Sequence[str], holds: Sequence[str], predicted: Estimate,
        gate: Estimate | None, replay: Mapping[str, Any], reason: str,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the case for a change as metadata; raise ProposalError if it does not suffice."""
        judged = gate or predicted
        missing = []
        in_advance = judged.method == "one_sided"  # For looks that the settings fix.
        if not in_advance and judged.effective_samples < MIN_EFFECTIVE_SAMPLES:
            missing.append(
                f"The effective sample size is {judged.effective_samples:.0f} of "
                f"{MIN_EFFECTIVE_SAMPLES}: more graded exchanges are required."
            )
        if not in_advance and judged.method not in _ALWAYS_VALID:
            missing.append(
                f"The interval ({judged.method}) is valid for a fixed number of samples only; use "
                f"an always-valid interval ({' or '.join(_ALWAYS_VALID)})."
            )
        if not judged.low > 0:  # NaN is refused too.
            missing.append(
                f"The effect is between {fixed(judged.low, 4)} and {fixed(judged.high, 4)} with "
                f"{judged.confidence:.0%} confidence, so it may be zero."
            )
        if not evidence:
            missing.append("No entries are given as evidence.")
        if missing:
            raise ProposalError(
                "not_enough",
                f"No proposal was created. {' '.join(missing)}",
                next_step="Grade more exchanges with `remit feedback`, or record more.",
                missing=missing,
            )
        for entry_id in (*evidence, *holds):
            if is_erased(self._ledger.read(entry_id)):
                raise ProposalError(
                    "stale",
                    f"The content of {entry_id}, which is part of the evidence, was erased.",
                    next_step="Repeat the analysis without this entry.",
                )
        return {
            "evidence": content(list(evidence)), "evidence_count": len(evidence),
            "evidence_sha256": evidence_digest(evidence), "holds": content(list(holds)),
            "predicted": _figures(predicted),
            "replay": content({**replay, **({"gate": _figures(gate)} if gate else {})}),
            "reason": content(reason),
        }  # fmt: skip

    def _write(self, what: dict[str, Any], said: str, archive: bytes | None = None) -> Proposal:
        """Record a proposal after storing its archive."""
        proposal_id = f"PRP-{secrets.token_hex(16)}"
        by = {"by": self.identity.name, "role": self.identity.role}
        metadata = {"proposal_id": proposal_id, **what, **by}
        file = self.proposals.archive(proposal_id)
        if archive is not None:
            with disk_errors():
                file.parent.mkdir(mode=0o700, exist_ok=True)
                write_new(file, archive, 0o600)
        try:
            self._ledger.write(
                LedgerEntry("SIGNAL_PROPOSED", proposal_id, "PROPOSED", said, metadata=metadata)
            )
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return self.proposals.get(proposal_id)


def _figures(estimate: Estimate) -> dict[str, Any]:
    return {name: getattr(estimate, name) for name in _PREDICTED}


def _archive(
    change: Change, files: Mapping[str, bytes], version: str, registry: Registry
) -> Archive:
    """Return the package of a change: data only, with bytes that follow from the arguments."""
    assets = [
        {
            "path": path,
            "sha256": f"sha256:{sha256_hex(data)}",
            "classification": next(
                (kind for place, kind in PLACES.items() if path.startswith(place)), "document"
            ),
        }
        for path, data in sorted(files.items(), key=lambda item: item[0].encode())
    ]
    owner = registry.owners.get(f"HO1/contracts/{change.contract_id}.json")
    needs = owner and {
        "package_id": owner.package_id,
        "version": f">={registry.packages[owner.package_id].version}",
    }
    manifest: dict[str, Any] = {
        "package_id": change.package_id, "version": version, "schema_version": "1.0",
        "title": f"Learned: {change.target}", "package_type": "learned",
        "spec_id": "SPEC-LEARNED-001", "framework_id": "FMWK-LEARNED-001",
        "plane_id": "hot" if any(path.startswith("HOT/") for path in files) else "ho1", "layer": 12,
        "dependencies": [needs] if needs else [], "permissions": {}, "assets": assets,
    }  # fmt: skip
    manifest_json = canonical_json(manifest) + b"\n"
    return Archive(Manifest.parse(manifest_json), manifest_json, dict(files))


_EVIDENCE = 500  # Largest number of exchanges of a side that are named as evidence.


def case_of(
    change: Change, samples: Iterable[Sample], served_as: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments ``evidence``, ``predicted`` and ``replay`` of :meth:`Learner.propose`.

    ``replay`` has ``left`` and ``prevented``, the numbers of exchanges, and ``mean_left`` and
    ``mean_prevented``, their means.

    The predicted effect is the mean of the exchanges that the change would have left less that of
    those that it would have prevented: calls of a model set aside, calls with a tool that is no
    longer allowed, calls of a session or work order beyond its limit. An exchange counts with its
    reward, without one as 1 if nothing of it failed or was rejected or repaired, else as 0. Tainted
    and cancelled ones are left out. Of each side the latest 500 are evidence. Exchanges of one task
    are compared, so that a model with the harder tasks looks no worse for it. The interval is valid
    at every look, and covers both weightings of a :class:`Window`, so that no party decides alone.

    Args:
        change: of the kind ``set_aside``, ``tool_permission`` or ``budget``.
        samples: recorded exchanges with their tasks, oldest first.
        served_as: the provider's name of each model that has another name in the settings.

    Raises:
        InvalidInputError: no recorded exchange is one that the change prevents.
    """
    prevents = _rule(change, served_as)
    left, prevented = sides = Window(ALPHA), Window(ALPHA)
    tasks: dict[str, tuple[Window, Window]] = {}
    named = tuple(deque[str](maxlen=_EVIDENCE) for _ in sides)
    for one in samples:
        side = None if one.tainted or one.cancelled else prevents(one)
        if side is not None:
            of = tasks.setdefault(one.task, (Window(ALPHA), Window(ALPHA)))
            bad = one.failed or one.rejected or one.repaired or one.failed_tools
            for window in (sides[side], of[side]):
                if one.reward is None:
                    window.add(float(not bad), FACT)
                else:
                    window.add(one.reward, one.raters)
            named[side].append(one.exchange_id)
    if not prevented.samples:
        raise InvalidInputError(
            "The change would have prevented no recorded exchange, so there is no evidence for it.",
            next_step="State another model, other tools, or a lower limit.",
        )
    replay = {
        "left": left.samples, "prevented": prevented.samples,
        "mean_left": round(left.estimate().value, 6),
        "mean_prevented": round(prevented.estimate().value, 6),
    }  # fmt: skip
    evidence = [*named[0], *named[1]]
    return {"evidence": evidence, "predicted": _within(tasks.values()), "replay": replay}


def _within(tasks: Iterable[tuple[Window, Window]]) -> Estimate:
    """Return the mean difference within tasks, each weighted by its prevented exchanges.

    The intervals of all tasks hold together, and so does that of their sum. A task that only
    prevented exchanges have makes the interval wider by its whole range.
    """
    known = [pair for pair in tasks if pair[1].samples]
    total = sum(prevented.samples for _, prevented in known)
    low = high = value = effective = 0.0
    for left, prevented in known:
        share = prevented.samples / total
        both = list(zip(left.sequences(), prevented.sequences(), strict=False))
        for sequence in chain(*both):
            sequence.alpha /= len(known)
        found = [difference(*pair) for pair in both]
        low += share * min(one.low for one in found)
        high += share * max(one.high for one in found)
        value += share * found[-1].value
        effective += min(one.effective_samples for one in found)
    samples = sum(left.samples + prevented.samples for left, prevented in known)
    return Estimate(value=value, low=low, high=high, samples=samples, effective_samples=effective)


def _rule(change: Change, served_as: Mapping[str, str]) -> Callable[[Sample], bool | None]:
    """Return a function that is True for an exchange that the change prevents; None if the change
    does not concern the exchange.
    """
    if change.kind == "set_aside":
        names = {served_as.get(one, one) for one in change.settings["routing"]["set_aside"]}
        return lambda sample: sample.model_id in names
    if change.kind == "tool_permission":
        allowed = set(change.settings["chat"]["tools_allowed"])
        return lambda sample: not allowed.issuperset(sample.tools) if sample.tools else None
    limits = change.settings["budget"]
    tokens: dict[str, int] = defaultdict(int)
    turns: dict[str, set[str]] = defaultdict(set)

    def exceeds(sample: Sample) -> bool:
        session, order = sample.session_id, f"order {sample.work_order_id}"
        turns[session].add(sample.turn_id)
        tokens[session] += sample.tokens
        tokens[order] += sample.tokens
        reached = {"session_tokens": tokens[session], "work_order_tokens": tokens[order],
                   "session_turns": len(turns[session])}  # fmt: skip
        return any(reached[name] > most for name, most in limits.items())

    return exceeds
