"""What an operation on packages changes, and what may not be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.ledger import Content, LedgerEntry
from remit.packages.admission import Candidate
from remit.packages.dependencies import in_order
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.paths import folded
from remit.packages.permissions import compare_permissions
from remit.packages.placement import check_placement
from remit.packages.registry import InstalledPackage, Registry
from remit.packages.versions import precedence

_MAX_NAMED = 10
_PLAIN_MANIFEST = 50_000  # bytes as JSON writes it; a record of 65,535 must hold it and the rest
_REASONS = {
    "install": "{} installed {}",
    "upgrade": "{} upgraded to {}",
    "rollback": "{} rolled back to {}",
    "remove": "{} {} removed",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One package of an operation.

    Attributes:
        operation: ``install``, ``upgrade``, ``rollback`` or ``remove``.
        candidate: what comes; ``None`` where a package goes.
        previous: what is installed under that id, if anything is.
        widened: what it may do that it might not before, a line each.
        approved_by: who approved that.
    """

    package_id: str
    operation: str
    candidate: Candidate | None
    previous: InstalledPackage | None
    widened: Sequence[str] = ()
    approved_by: str = ""

    def entry(self, operation_id: str, by: str) -> LedgerEntry:
        """The entry that makes it so."""
        before = self.previous.version if self.previous is not None else ""
        event, metadata = "REMOVED", {"package_id": self.package_id, "version": before}
        if self.candidate is not None:
            event, metadata = "INSTALLED", self._recorded(self.candidate, before)
        return LedgerEntry(
            event_type=event,
            submission_id=self.package_id,
            decision=event,
            reason=_REASONS[self.operation].format(self.package_id, metadata["version"]),
            metadata={**metadata, "operation_id": operation_id, "by": by},
        )

    def _recorded(self, candidate: Candidate, before: str) -> dict[str, Any]:
        package = candidate.package
        text = candidate.archive.manifest_json.decode()
        return {
            "package_id": package.package_id,
            "version": package.version,
            "operation": self.operation,
            "previous_version": before,
            "archive_sha256": package.archive_sha256,
            "manifest_sha256": package.manifest.digest,
            # What does not fit into a record is kept beside it.
            "manifest": Content(text) if len(canonical_json(text)) > _PLAIN_MANIFEST else text,
            "source": package.source,
            "signature": dict(package.signature),
            "permissions_widened": list(self.widened),
            "approved_by": self.approved_by,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operation does to a root.

    Attributes:
        changes: each package after those that it needs; those that go last.
        after: the registry as it would be.
        files: bytes by path of the files that come.
        gone: paths of the files that go.
    """

    changes: Sequence[Change]
    after: Registry
    files: Mapping[str, bytes]
    gone: Collection[str]


def make_plan(
    changes: Collection[Change],
    registry: Registry,
    root: Path,
    ledger_path: str,
    *,
    by: str,
    approve: bool = False,
    dev: bool = False,
) -> Plan:
    """What comes of these changes, in any order, where they may be made.

    Args:
        changes: what packages come and go.
        registry: what is installed.
        root: the root's directory.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL.
        by: who acts.
        approve: who acts approves what packages may do beyond what they might before.
        dev: approve what a package asks for the first time that it comes.
    """
    by_id = {change.package_id: change for change in changes}
    coming = {name: change.candidate for name, change in by_id.items() if change.candidate}
    leaving = by_id.keys() - coming.keys()
    installed = {name: package.manifest for name, package in registry.packages.items()}
    ordered = in_order([one.manifest for one in coming.values()], installed, leaving)
    after = registry.after(removed=[name for name, change in by_id.items() if change.previous])
    own = registry.owners.keys() - after.owners.keys()
    files: dict[str, bytes] = {}
    for name in ordered:
        check_placement(coming[name].archive, root, after, own, ledger_path)
        after = after.after([coming[name].package])
        files.update(coming[name].archive.files)
    gone = sorted(own - after.owners.keys())
    twins = {folded(path): path for path in gone}
    for path in files:
        if twin := twins.get(folded(path)):
            raise PackageError(
                "case_only",
                f"{path} would come as {twin} goes, and the two differ only in case or in "
                "Unicode's form: not every file system can tell them apart.",
                next_step="Give the file another name.",
            )
    approved = [
        _approved(by_id[name], coming[name], registry, by, approve=approve, dev=dev)
        for name in ordered
    ]
    return Plan([*approved, *(by_id[name] for name in sorted(leaving))], after, files, gone)


def installing(
    candidates: Sequence[Candidate], registry: Registry, *, only_upgrade: bool
) -> list[Change]:
    """Install or upgrade packages, none of which is installed as it is; what a shipped one
    supersedes goes."""
    changes = []
    for candidate in candidates:
        manifest, name = candidate.manifest, candidate.manifest.package_id
        now = registry.packages.get(name)
        if only_upgrade and now is None:
            raise PackageError(
                "not_installed",
                f"{name} is not installed, so there is nothing to upgrade.",
                next_step="Use `remit package install`.",
            )
        _check_version(candidate.package, registry)
        if candidate.package.ships:
            changes += [
                Change(old, "remove", None, registry.packages[old])
                for old in manifest.supersedes
                if old in registry.packages
            ]
        elif registry.packages:  # else it is what a root begins with
            _check_authority(manifest, now)
        newer = now is not None and now.version != manifest.version
        changes.append(Change(name, "upgrade" if newer else "install", candidate, now))
    return changes


def require_not_learned(changes: Collection[Change]) -> None:
    """What is learned is adopted and rolled back by name and reason, not merely installed."""
    for change in changes:
        coming = change.candidate.manifest if change.candidate else None
        manifests = coming, change.previous.manifest if change.previous else None
        if any(one is not None and one.learned for one in manifests):
            raise PackageError(
                "learned",
                f"{change.package_id} is learned: it comes and goes with a decision on record.",
                next_step="Use `remit learn adopt` or `remit learn rollback`.",
            )


def earlier_version(registry: Registry, now: InstalledPackage, version: str) -> InstalledPackage:
    """What was installed last before ``now``, in another version, or in exactly that one."""
    history = registry.history[now.package_id]
    for known in reversed(history):
        if known.version != now.version and version in ("", known.version):
            return known
    others = sorted({known.version for known in history} - {now.version}, key=precedence)
    if version == now.version:
        problem = f"{now.package_id} is installed in version {version} already."
    else:
        problem = f"{now.package_id} was never installed here in " + (
            f"version {version}." if version else f"a version other than {now.version}."
        )
    raise PackageError(
        "no_older_version",
        problem,
        next_step=f"There was {', '.join(others)}."
        if others
        else "There is nothing to go back to; `remit package remove` takes it away.",
    )


def _check_version(package: InstalledPackage, registry: Registry) -> None:
    name, version = package.package_id, package.version
    for known in registry.history.get(name, ()):
        # Build metadata, behind a +, has no rank: it makes no version of its own.
        same = precedence(known.version) == precedence(version)
        if same and known.archive_sha256 != package.archive_sha256:
            raise PackageError(
                "version_reused",
                f"{name} {known.version} was installed before with other content "
                f"({known.archive_sha256}, not {package.archive_sha256}).",
                next_step="Give what was changed a version of its own.",
            )
        if precedence(known.version) > precedence(version):
            raise PackageError(
                "older_version",
                f"{name} {version} is older than {known.version}, which was installed here "
                f"({known.entry_id}).",
                next_step=f"Use `remit package rollback {name} --to {version}` to go back."
                if name in registry.packages
                else f"Use {known.version} or a newer one; older ones are not installed again.",
            )


def _check_authority(manifest: Manifest, now: InstalledPackage | None) -> None:
    """A package makes no rules for itself, and governs no module of Remit."""
    if any(
        asset.classification == "framework"
        and PurePosixPath(asset.path).stem == manifest.framework_id
        for asset in manifest.assets
    ):
        raise PackageError(
            "own_framework",
            f"{manifest.package_id} belongs to {manifest.framework_id}, which it brings itself: it "
            "would make the rules that hold for it.",
            next_step="Let it belong to a framework that is installed; for agents FMWK-AGENT-001.",
        )
    if new := set(manifest.modules) - set(now.manifest.modules if now else ()):
        raise PackageError(
            "modules_reserved",
            f"{manifest.package_id} says that it governs {min(new)}; only what comes with Remit "
            "governs its modules.",
            next_step="Take `modules` out of the manifest.",
        )


def _approved(
    change: Change,
    candidate: Candidate,
    registry: Registry,
    by: str,
    *,
    approve: bool,
    dev: bool,
) -> Change:
    """The change with what it permits beyond the version before, and who approved that."""
    manifest, package = candidate.manifest, candidate.package
    known = registry.history.get(manifest.package_id)
    before = known[-1] if known else None
    granted = before.manifest.permissions if before is not None else None
    more = list(compare_permissions(granted, manifest.permissions).widened)
    if package.ships:
        return replace(change, widened=more, approved_by=package.source if more else "")
    more += _kernel_places(manifest, before)
    if not more:
        return change
    if approve:
        return replace(change, widened=more, approved_by=by)
    if dev and before is None:
        return replace(change, widened=more, approved_by=f"{by}, with --dev")
    raise PackageError(
        "permissions_widened",
        f"{manifest.package_id} {manifest.version} asks for more than "
        + ("nothing" if before is None else "it had")
        + f": {'; '.join(more[:_MAX_NAMED])}"
        + (f"; and {len(more) - _MAX_NAMED} more." if len(more) > _MAX_NAMED else "."),
        next_step="Look at them with `remit package show`; `remit package install --approve` "
        "grants them.",
    )


def _kernel_places(manifest: Manifest, before: InstalledPackage | None) -> list[str]:
    """What of the kernel's plane a package comes to hold, a line each."""
    had = {asset.path for asset in before.manifest.assets} if before is not None else set()
    found = [
        f"the file {asset.path}, of the kernel's plane"
        for asset in manifest.assets
        if asset.path.startswith("HOT/") and asset.path not in had
    ]
    if before is None:
        return found
    if before.ships:
        found.append("the place of a package that came with Remit")
    for name in ("plane_id", "framework_id"):
        was, now = getattr(before.manifest, name), getattr(manifest, name)
        if was != now:
            found.append(f"{name} {now} instead of {was}")
    return found
