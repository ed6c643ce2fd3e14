"""The plan of an operation: its changes, the added and removed files, and the approval."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from remit.contracts import precedence
from remit.kernel.canonical import canonical_json
from remit.ledger import Content, LedgerEntry
from remit.packages.archive_checks import Candidate
from remit.packages.dependencies import in_order
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.paths import folded
from remit.packages.permissions import widened_permissions
from remit.packages.preconditions import check_placement
from remit.packages.registry import InstalledPackage, Registry

_MAX_PERMISSIONS = 10
# A record of at most 65,535 bytes must have room for the manifest and the other keys.
_MAX_MANIFEST = 50_000
_REASONS = {
    "install": "{} installed {}",
    "upgrade": "{} upgraded to {}",
    "rollback": "{} rolled back to {}",
    "remove": "{} {} removed",
}


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one package in an operation; immutable.

    Attributes:
        package_id: the package.
        operation: ``install``, ``upgrade``, ``rollback`` or ``remove``.
        candidate: the package to install; ``None`` for a removal.
        previous: the package installed under this id; ``None`` if there is none.
        widened: permissions that the package gains, a line each; empty before :func:`make_plan`.
        approved_by: the person or program that approved these; empty if there are none.
    """

    package_id: str
    operation: str
    candidate: Candidate | None
    previous: InstalledPackage | None
    widened: Sequence[str] = ()
    approved_by: str = ""

    def entry(self, operation_id: str, by: str) -> LedgerEntry:
        """Return the ``INSTALLED`` or ``REMOVED`` entry of the change. Nothing is written.

        A ``REMOVED`` entry names the package, its version, ``operation_id`` and ``by``. An
        ``INSTALLED`` entry also has the operation, the previous version (empty for none), the
        manifest, hashes, source, signature record, widened permissions and approval. A manifest
        whose JSON exceeds 50,000 bytes becomes content of the entry.

        Args:
            operation_id: the id that all changes of the operation share.
            by: the acting person or program.
        """
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
            # Content is stored outside of the record, so that a large manifest fits.
            "manifest": Content(text) if len(canonical_json(text)) > _MAX_MANIFEST else text,
            "source": package.source,
            "signature": dict(package.signature),
            "permissions_widened": list(self.widened),
            "approved_by": self.approved_by,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of an operation on a root, as :func:`make_plan` computes them; immutable.

    Attributes:
        changes: each package after its dependencies, removals last.
        after: the registry as the operation would leave it.
        files: content by path of the files to write.
        removed: paths of the files to delete.
    """

    changes: Sequence[Change]
    after: Registry
    files: Mapping[str, bytes]
    removed: Collection[str]


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
    """Return the plan of an operation.

    Reads the root and writes nothing. Gates are not checked here. A package that Remit does not
    ship needs an approval for each permission that its last installed version, if any, did not
    have, for each new file in ``HOT/``, for another plane or framework, and to replace a package
    that Remit shipped. New permissions of a shipped package are approved by its source.

    Args:
        changes: the packages to install and to remove, in any order.
        registry: the installed packages.
        root: the root's directory.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL.
        by: the acting person or program.
        approve: True to approve all of these.
        dev: True to approve those of packages that were never installed here.

    Returns:
        The plan; its installing changes state the permissions that they gain, and who approved
        them: ``by`` (with ``, with --dev`` if ``dev`` alone approved), or the source.

    Raises:
        PackageError: an error of :func:`~remit.packages.dependencies.in_order` (such as
            ``missing_dependency`` or ``needed``) or of
            :func:`~remit.packages.preconditions.check_placement` (such as ``owned_by_other``);
            ``case_only``: a new path differs from a removed one only in case;
            ``permissions_widened``: an approval is needed, and neither ``approve`` nor ``dev``
            gives it.
        OSError: a part of the root cannot be examined.
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
    removed = sorted(own - after.owners.keys())
    twins = {folded(path): path for path in removed}
    for path in files:
        if twin := twins.get(folded(path)):
            raise PackageError(
                "case_only",
                f"{path} would replace {twin}, but the names differ only in case or Unicode form, "
                "so some file systems treat them as one file.",
                next_step="Give the file another name.",
            )
    approved = [
        _approved(by_id[name], coming[name], registry, by, approve=approve, dev=dev)
        for name in ordered
    ]
    return Plan([*approved, *(by_id[name] for name in sorted(leaving))], after, files, removed)


def planned_installation(
    candidates: Sequence[Candidate], registry: Registry, *, only_upgrade: bool
) -> list[Change]:
    """Return the changes that install or upgrade packages, in the order of ``candidates``.

    A package that is installed in another version is upgraded, any other is installed. The removals
    of installed packages that a shipped one supersedes stand directly before its change. Nothing is
    written, and dependencies and permissions are not checked. Versions that differ only in build
    metadata count as the same.

    Args:
        candidates: the packages, none of which is installed with the same bytes.
        registry: the installed packages.
        only_upgrade: True to refuse packages that are not installed.

    Raises:
        PackageError: ``not_installed``: refused by ``only_upgrade``; ``version_reused``: the
            version was installed with other content; ``older_version``: a newer version is or was
            installed; ``own_framework``: a package that did not come with Remit brings the
            framework that it belongs to (it may bring others); ``modules_reserved``: the manifest
            of such a package lists ``modules`` that its installed version does not. The last two
            are not refused in a root without packages.
    """
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
        elif registry.packages:  # The first packages of a root bring its first framework.
            _check_authority(manifest, now)
        newer = now is not None and now.version != manifest.version
        changes.append(Change(name, "upgrade" if newer else "install", candidate, now))
    return changes


def require_not_learned(changes: Collection[Change]) -> None:
    """Raise PackageError if a change installs or removes a learned package.

    Learned packages change only together with the entry of a person's decision.

    Args:
        changes: the changes of an operation.

    Raises:
        PackageError: ``learned``: a change is of a learned package.
    """
    for change in changes:
        coming = change.candidate.manifest if change.candidate else None
        manifests = coming, change.previous.manifest if change.previous else None
        if any(one is not None and one.learned for one in manifests):
            raise PackageError(
                "learned",
                f"{change.package_id} is a learned package, which changes only with a "
                "recorded decision.",
                next_step="Use `remit learn adopt` or `remit learn rollback`.",
            )


def earlier_version(registry: Registry, now: InstalledPackage, version: str) -> InstalledPackage:
    """Return the most recently installed package of the history that has another version than
    ``now``.

    Its version may be greater than that of ``now``, after a rollback.

    Args:
        registry: the installed packages with their history.
        now: the installed package.
        version: the wanted version; any other than the present one if empty.

    Raises:
        PackageError: ``no_older_version``: there is no such package in the history, or ``version``
            is the present one.
    """
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
        next_step=f"Installed before: {', '.join(others)}."
        if others
        else "There is no earlier version; `remit package remove` removes the package.",
    )


def _check_version(package: InstalledPackage, registry: Registry) -> None:
    """Raise PackageError if a version is older than an installed one, or has other content."""
    name, version = package.package_id, package.version
    for known in registry.history.get(name, ()):
        # Versions that differ only in build metadata (after a +) are the same version.
        same = precedence(known.version) == precedence(version)
        if same and known.archive_sha256 != package.archive_sha256:
            raise PackageError(
                "version_reused",
                f"{name} {known.version} was installed before with other content "
                f"({known.archive_sha256}, not {package.archive_sha256}).",
                next_step="Give the changed content a new version.",
            )
        if precedence(known.version) > precedence(version):
            raise PackageError(
                "older_version",
                f"{name} {version} is older than {known.version}, which was installed here "
                f"({known.entry_id}).",
                next_step=f"Use `remit package rollback {name} --to {version}` to go back."
                if name in registry.packages
                else f"Use {known.version} or a newer version; older versions cannot be "
                "installed again.",
            )


def _check_authority(manifest: Manifest, now: InstalledPackage | None) -> None:
    """Raise PackageError if a package brings the framework that it belongs to, or lists ``modules``
    that its installed version does not.
    """
    if any(
        asset.classification == "framework"
        and PurePosixPath(asset.path).stem == manifest.framework_id
        for asset in manifest.assets
    ):
        raise PackageError(
            "own_framework",
            f"{manifest.package_id} contains its own framework, {manifest.framework_id}, so it "
            "would set its own rules.",
            next_step="Assign the package to an installed framework; for agents, FMWK-AGENT-001.",
        )
    if new := set(manifest.modules) - set(now.manifest.modules if now else ()):
        raise PackageError(
            "modules_reserved",
            f"{manifest.package_id} lists the module {min(new)}; only packages that come with "
            "Remit may list modules.",
            next_step="Omit `modules` from the manifest.",
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
    """Return the change with its widened permissions and their approval.

    Raises:
        PackageError: ``permissions_widened``: they are not approved.
    """
    manifest, package = candidate.manifest, candidate.package
    known = registry.history.get(manifest.package_id)
    before = known[-1] if known else None
    granted = before.manifest.permissions if before is not None else None
    more = widened_permissions(granted, manifest.permissions)
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
        f"{manifest.package_id} {manifest.version} requires "
        + ("permissions" if before is None else "more permissions than before")
        + f": {'; '.join(more[:_MAX_PERMISSIONS])}"
        + (f"; and {len(more) - _MAX_PERMISSIONS} more." if len(more) > _MAX_PERMISSIONS else "."),
        next_step="`remit package show` lists all permissions; `remit package install --approve` "
        "grants them.",
    )


def _kernel_places(manifest: Manifest, before: InstalledPackage | None) -> list[str]:
    """Return a line for each file or place of the kernel's plane that a package gains."""
    had = {asset.path for asset in before.manifest.assets} if before is not None else set()
    found = [
        f"the file {asset.path} in the kernel's plane"
        for asset in manifest.assets
        if asset.path.startswith("HOT/") and asset.path not in had
    ]
    if before is None:
        return found
    if before.ships:
        found.append("replacing a package that came with Remit")
    for name in ("plane_id", "framework_id"):
        was, now = getattr(before.manifest, name), getattr(manifest, name)
        if was != now:
            found.append(f"{name} {now} instead of {was}")
    return found
