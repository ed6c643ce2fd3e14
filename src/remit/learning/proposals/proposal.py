"""Recorded proposals, and their archives, which are stored until an adoption."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import ConflictError
from remit.kernel.root import Root
from remit.kernel.settings import PackageSettings
from remit.learning.exchanges import is_erased
from remit.ledger import Erased, LedgerClient, LedgerEntry, is_authentic, parse_entry_id
from remit.packages import Archive, Registry, read_archive

State = Literal["open", "adopted", "rejected", "rolled_back"]

_FOLDER = "proposals"
_ID = re.compile(r"PRP-[0-9a-f]{4,32}")
_DECISIONS: dict[str, State] = {
    "SIGNAL_ADOPTED": "adopted", "SIGNAL_REJECTED": "rejected", "SIGNAL_ROLLED_BACK": "rolled_back",
}  # fmt: skip


class ProposalError(ConflictError):
    """A proposal cannot be made, adopted, rejected or rolled back.

    Attributes:
        code: ``not_enough``, ``not_found``, ``ambiguous``, ``decided``, ``stale``,
            ``edited``, ``no_role``, ``no_reason``, ``not_in_force``, ``lost``, ``canary_in_force``
            or ``no_canary``.
        missing: sentences about what is missing, for a report.
    """

    def __init__(
        self, code: str, message: str, *, next_step: str = "", missing: Sequence[str] = ()
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.code = code
        self.missing = list(missing)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change and the decisions on it.

    Attributes:
        proposal_id: ``PRP-`` and 32 hex digits.
        kind: one of :data:`KINDS`, or ``rollback``.
        target: ``routing``, ``limits`` or a contract's id.
        package_id: id of the learned package.
        version: its version with the change; for a rollback, the version to go back to.
        base_version: the version installed at the time of the proposal; empty if there was none.
        digest: ``sha256:…`` of the archive; empty for a rollback, which needs none.
        evidence: ids of entries; empty once they were erased with the proposal.
        evidence_sha256: see :func:`evidence_digest`.
        holds: ids of the exchanges with content in the package itself.
        predicted: the :class:`Estimate` as JSON; empty once erased.
        replay: summary of the replay on held-out exchanges.
        diff: unified diff of the files that change.
        reason: the learner's reason.
        by: the owner of the learner.
        entry_id: id of its ``SIGNAL_PROPOSED`` entry.
        at: time of that entry.
        state: ``open``, ``adopted``, ``rejected`` or ``rolled_back``.
        decision: id of the latest entry with a decision; empty while the proposal is open.
        decided_by: the person who decided.
        decision_reason: the person's reason.
        epoch: the policy epoch that the adoption or rollback began; 0 before.
        previous_version: the version that the adoption replaced; empty if there was none.
        adopted_at: time of the adoption; empty if there was none.
        erased: True if content of the proposal was erased.
        rolls_back: for a rollback, the id of the adopted proposal.
    """

    proposal_id: str
    kind: str
    target: str
    package_id: str
    version: str
    base_version: str
    digest: str
    evidence: tuple[str, ...]
    evidence_sha256: str
    holds: tuple[str, ...]
    predicted: Mapping[str, Any]
    replay: Mapping[str, Any]
    diff: str
    reason: str
    by: str
    entry_id: str
    at: str
    state: State = "open"
    decision: str = ""
    decided_by: str = ""
    decision_reason: str = ""
    epoch: int = 0
    previous_version: str = ""
    adopted_at: str = ""
    erased: bool = field(default=False)
    rolls_back: str = ""

    @property
    def name(self) -> str:
        """Package and proposed version; for a rollback, ``rollback of``, package and the version
        that it takes back.
        """
        if self.rolls_back:
            return f"rollback of {self.package_id} {self.base_version}"
        return f"{self.package_id} {self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return the proposal as JSON data."""
        return asdict(self)


class Proposals:
    """The recorded proposals of a root. Nothing is written here.

    Making the object reads nothing. Each method that needs the ledger reads it anew, and raises
    LedgerError if it cannot be read. Entries of writers without permission are ignored.

    Args:
        root: the root, whose folder ``proposals`` holds the archives.
        ledger: the root's ledger.
    """

    def __init__(self, root: Root, ledger: LedgerClient) -> None:
        self._folder = root.path / _FOLDER
        self._ledger = ledger

    def archive(self, proposal_id: str) -> Path:
        """Return the path of a proposal's archive; the id is not looked up.

        There is no file for a rollback, nor after an adoption, rejection or erasure.
        """
        return self._folder / f"{proposal_id}.tar.gz"

    def read(self, proposal: Proposal, settings: PackageSettings) -> Archive:
        """Return the stored archive of a proposal.

        Args:
            proposal: the proposal, in any state.
            settings: the limits of archives.

        Raises:
            ProposalError: ``lost``: the archive cannot be read; ``edited``: it was changed.
            PackageError: the archive exceeds the limits.
        """
        file = self.archive(proposal.proposal_id)
        try:
            data = file.read_bytes()
        except OSError as error:
            state = "erased" if proposal.erased else proposal.state.replace("_", " ")
            raise ProposalError(
                "lost",
                f"{file}, the package of a proposal that is {state}, cannot be read: "
                f"{error.strerror or error}.",
                next_step="Propose the change again. Of an open proposal, the root where it was "
                "created holds the file.",
            ) from error
        if f"sha256:{sha256_hex(data)}" != proposal.digest:
            raise ProposalError(
                "edited",
                f"{file} differs from the proposed package: it was changed later.",
                next_step="Find out who changed it. Propose the change again with the current "
                "record.",
            )
        return read_archive(io.BytesIO(data), settings)

    def all(self) -> Iterator[Proposal]:
        """Yield all proposals, latest first; raise LedgerError if the ledger cannot be read.

        Entries of writers without permission, and entries of another form, are left out.
        """
        decided = self._decisions()
        found = self._ledger.query(event_type="SIGNAL_PROPOSED", order="desc")
        for entry in filter(_is_proposal, found):
            yield _proposal(entry, decided.get(entry.submission_id, ()))

    def get(self, proposal_id: str) -> Proposal:
        """Return a recorded proposal with the decisions on it; all of them are read for it.

        Args:
            proposal_id: an id, the beginning of one with at least 4 hex digits (with fewer, none is
                found), or ``last`` for the latest.

        Raises:
            ProposalError: ``not_found``: no proposal has the id; ``ambiguous``: several ids begin
                so.
            LedgerError: the ledger cannot be read.
        """
        is_last = proposal_id == "last"
        every = self.all() if is_last or _ID.fullmatch(proposal_id) else ()
        found = [one for one in every if is_last or one.proposal_id.startswith(proposal_id)]
        if not found:
            raise ProposalError(
                "not_found",
                f"The proposal {proposal_id[:40]!r} does not exist.",
                next_step="`remit learn proposals` lists the proposals.",
            )
        if len(found) > 1 and not is_last:
            raise ProposalError(
                "ambiguous",
                f"{len(found)} proposals have an id that begins with {proposal_id}.",
                next_step="Give more characters of the id.",
            )
        return found[0]

    def stale(self, proposal: Proposal) -> str:
        """Return the reason why an open proposal must be made again; empty if it may be adopted.

        A proposal is stale if content of its evidence was erased, a grade was changed, or its
        rollback is no longer needed. The reason is part of a sentence. The proposal's own state and
        the installed version are not compared.

        Raises:
            EntryNotFoundError: an entry of the evidence does not exist.
            LedgerError: the ledger cannot be read.
        """
        if proposal.erased:
            return "its evidence was erased"
        if proposal.rolls_back and (state := self.get(proposal.rolls_back).state) != "adopted":
            return f"{proposal.rolls_back} is already {state.replace('_', ' ')}"
        known = set(proposal.evidence)
        for entry_id in (*proposal.evidence, *proposal.holds):
            if is_erased(self._ledger.read(entry_id)):
                return f"the content of {entry_id}, which is part of its evidence, was erased"
        for entry in self._ledger.query(event_type="FEEDBACK", after=proposal.entry_id):
            replaced = str(entry.metadata.get("replaces") or "")
            if replaced and known & {replaced, str(entry.metadata.get("target_entry_id"))}:
                return f"{entry.id} changed a grade in its evidence"
        return ""

    def evidence_by_key(self, proposal: Proposal) -> dict[str, int]:
        """Return the number of evidence entries by the id of the key that made each, highest first.

        Entries without a key count under ``local operator``; equal numbers are in the order of the
        ids. EntryNotFoundError is raised for an entry that does not exist.
        """
        entries = (self._ledger.read(one, with_content=False) for one in proposal.evidence)
        found = Counter(str(one.metadata.get("key_id") or "local operator") for one in entries)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def _decisions(self) -> dict[str, list[LedgerEntry]]:
        """Return the decisions on each proposal.

        Adopting a rollback is also a decision on the proposal that it rolls back.
        """
        found: dict[str, list[LedgerEntry]] = {}
        for event in _DECISIONS:
            for entry in self._ledger.query(event_type=event):
                about = (entry.submission_id, str(entry.metadata.get("rolls_back") or ""))
                for name in filter(None, about) if is_authentic(entry) else ():
                    found.setdefault(name, []).append(entry)
        for entries in found.values():
            entries.sort(key=lambda entry: parse_entry_id(entry.id) or 0)
        return found


def require_in_force(proposal: Proposal, registry: Registry) -> None:
    """Raise ProposalError if a proposal cannot be rolled back.

    The codes are ``decided``, if it is a rollback or not adopted, and ``not_in_force``, if its
    package is at another version or not installed.
    """
    if proposal.rolls_back or proposal.state != "adopted":
        state = f"{proposal.state.replace('_', ' ')}, not adopted"
        state = "itself a rollback" if proposal.rolls_back else state
        raise ProposalError(
            "decided",
            f"{proposal.proposal_id} is {state}.",
            next_step=f"Propose the change of {proposal.rolls_back} again."
            if proposal.rolls_back
            else "`remit learn proposals --state adopted` lists adopted proposals.",
        )
    now = registry.packages.get(proposal.package_id)
    if now is None or now.version != proposal.version:
        there = f"is at version {now.version}" if now else "is not installed"
        raise ProposalError(
            "not_in_force",
            f"{proposal.package_id} {there}, not at {proposal.version}.",
            next_step="Roll back later adoptions first.",
        )


def evidence_digest(entry_ids: Sequence[str]) -> str:
    """Return ``sha256:`` and the SHA-256 in hex of the ids, in order, one a line."""
    lines = "".join(f"{one}\n" for one in entry_ids)
    return f"sha256:{sha256_hex(lines.encode())}"


_TEXTS = (
    "kind", "target", "package_id", "version", "base_version", "digest", "evidence_sha256", "by",
)  # fmt: skip
_NUMBERS = ("value", "low", "high", "confidence", "samples", "effective_samples")  # predicted
_CONTENT: Mapping[str, type] = {
    "evidence": list, "holds": list, "predicted": dict, "replay": dict, "diff": str, "reason": str,
}  # fmt: skip


def _is_proposal(entry: LedgerEntry) -> bool:
    """Return True if an entry has all fields of a proposal; others are ignored."""
    data = entry.metadata
    content = {name: data.get(name, kind()) for name, kind in _CONTENT.items()}
    predicted = content["predicted"]
    return (
        is_authentic(entry)
        and all(isinstance(data.get(name), str) for name in _TEXTS)
        and all(isinstance(content[name], (kind, Erased)) for name, kind in _CONTENT.items())
        and all(
            isinstance(content[name], Erased) or all(isinstance(one, str) for one in content[name])
            for name in ("evidence", "holds")
        )
        and (
            isinstance(predicted, Erased)
            or not predicted
            or all(isinstance(predicted.get(name), (int, float)) for name in _NUMBERS)
        )
    )


def _proposal(entry: LedgerEntry, decisions: Sequence[LedgerEntry]) -> Proposal:
    data = entry.metadata

    def value(name: str, otherwise: Any) -> Any:
        found = data.get(name, otherwise)
        return otherwise if isinstance(found, Erased) else found

    adopted = next((one for one in decisions if one.event_type == "SIGNAL_ADOPTED"), None)
    last = decisions[-1] if decisions else None
    state: State = _DECISIONS[last.event_type] if last else "open"
    if last and last.submission_id != entry.submission_id:
        state = "rolled_back"
    epoch = last.metadata.get("policy_epoch") if last else 0
    return Proposal(
        proposal_id=entry.submission_id, **{name: data[name] for name in _TEXTS},
        evidence=tuple(value("evidence", ())), holds=tuple(value("holds", ())),
        **{name: value(name, _CONTENT[name]()) for name in list(_CONTENT)[2:]},
        entry_id=entry.id, at=entry.timestamp, state=state, decision=last.id if last else "",
        decided_by=str(last.metadata.get("by", "")) if last else "",
        decision_reason=str(last.metadata.get("decision_reason", "")) if last else "",
        epoch=epoch if type(epoch) is int else 0,
        previous_version=str(adopted.metadata.get("previous_version", "")) if adopted else "",
        adopted_at=adopted.timestamp if adopted else "", erased=is_erased(entry),
        rolls_back=str(data.get("rolls_back") or ""),
    )  # fmt: skip
