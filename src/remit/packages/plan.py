"""Decides what an operation on packages changes, and refuses what may not be (SPEC 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from remit.packages.admission import Candidate
from remit.packages.changes import Change
from remit.packages.dependencies import in_order
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.paths import folded
from remit.packages.permissions import compare_permissions
from remit.packages.registry import InstalledPackage, Registry
from remit.packages.versions import precedence

_MAX_NAMED = 10

__all__ = [
    "approved",
    "check_distinct",
    "check_no_twins",
    "earlier",
    "installed",
    "is_installed",
    "manifests",
    "plan_install",
]


def plan_install(
    candidates: Sequence[Candidate],
    registry: Registry,
    *,
    only_upgrade: bool,
) -> list[Change]:
    """What comes, each package after those that it needs; and what a shipped one supersedes goes.

    Args:
        candidates: none of which is installed as it is.
        registry: what is installed.
        only_upgrade: as for :meth:`remit.packages.PackageManager.install`.

    Raises:
        PackageError: ``not_installed``, ``version_reused``, ``older_version``, ``own_framework``,
            or what :func:`remit.packages.dependencies.in_order` raises.
    """
    coming = {one.manifest.package_id: one for one in candidates}
    superseded = {
        name
        for one in candidates
        if one.ships
        for name in one.manifest.supersedes
        if name in registry.packages
    }
    ordered = in_order([one.manifest for one in candidates], manifests(registry), superseded)
    changes = []
    for manifest in ordered:
        one, name = coming[manifest.package_id], manifest.package_id
        now = registry.packages.get(name)
        if only_upgrade and now is None:
            raise PackageError(
                "not_installed",
                f"{name} is not installed, so there is nothing to upgrade.",
                next_step="Use `remit package install`.",
            )
        _check_version(one, registry)
        _check_authority(one, registry)
        newer = now is not None and now.version != manifest.version
        changes.append(Change(name, one, now, "upgrade" if newer else "install"))
    removed = sorted(superseded)
    return changes + [Change(name, None, registry.packages[name], "remove") for name in removed]


def approved(
    changes: Sequence[Change], registry: Registry, *, by: str, approve: bool, dev: bool = False
) -> list[Change]:
    """The changes, with what each package may do that it might not before, and who approved that.

    Args:
        changes: what comes.
        registry: what is installed, and was.
        by: who acts.
        approve: whether who acts approves it.
        dev: approve what a package asks for the first time that it comes.

    Raises:
        PackageError: ``permissions_widened``: it is not approved.
    """
    return [
        change
        if change.candidate is None
        else _approved(change, change.candidate, registry, by=by, approve=approve, dev=dev)
        for change in changes
    ]


def _approved(
    change: Change,
    candidate: Candidate,
    registry: Registry,
    *,
    by: str,
    approve: bool,
    dev: bool,
) -> Change:
    manifest = candidate.manifest
    known = registry.history.get(change.package_id, ())
    before = known[-1] if known else None
    granted = None if before is None else before.manifest.permissions
    more = list(compare_permissions(granted, manifest.permissions).widened)
    if candidate.ships:
        return replace(change, widened=more, approved_by=candidate.source if more else "")
    more += _kernel_places(manifest, before)
    if not more:
        return change
    if approve:
        return replace(change, widened=more, approved_by=by)
    if dev and not known:
        return replace(change, widened=more, approved_by=f"{by}, with --dev")
    raise PackageError(
        "permissions_widened",
        f"{manifest.package_id} {manifest.version} asks for more than "
        + ("it had" if known else "nothing")
        + f": {'; '.join(more[:_MAX_NAMED])}"
        + (f"; and {len(more) - _MAX_NAMED} more." if len(more) > _MAX_NAMED else "."),
        next_step="Look at it (`remit package show`), and run the command again with "
        "--approve if it may.",
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


def _check_version(candidate: Candidate, registry: Registry) -> None:
    name, version = candidate.manifest.package_id, candidate.manifest.version
    for known in registry.history.get(name, ()):
        # Build metadata, behind a +, has no rank: it makes no version of its own.
        same = precedence(known.version) == precedence(version)
        if same and known.archive_sha256 != candidate.archive.digest:
            raise PackageError(
                "version_reused",
                f"{name} {known.version} was installed before with other content "
                f"({known.archive_sha256}, not {candidate.archive.digest}).",
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


def _check_authority(candidate: Candidate, registry: Registry) -> None:
    """A package makes no rules for itself, and governs no module of Remit."""
    if candidate.ships or not registry.packages:  # what a root begins with
        return
    manifest = candidate.manifest
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
    now = registry.packages.get(manifest.package_id)
    if new := set(manifest.modules) - set(now.manifest.modules if now else ()):
        raise PackageError(
            "modules_reserved",
            f"{manifest.package_id} says that it governs {min(new)}; only what comes with Remit "
            "governs its modules.",
            next_step="Take `modules` out of the manifest.",
        )


def check_distinct(candidates: Iterable[Candidate]) -> None:
    """No package may be there twice.

    Raises:
        PackageError: ``offered_twice``.
    """
    names: set[str] = set()
    for one in candidates:
        name = one.manifest.package_id
        if name in names:
            raise PackageError(
                "offered_twice",
                f"{name} is to be installed twice at once.",
                next_step="Choose one of its versions.",
            )
        names.add(name)


def check_no_twins(coming: Iterable[str], gone: Iterable[str]) -> None:
    """No path that comes may be the same file as one that goes, where case does not count.

    Raises:
        PackageError: ``case_only``.
    """
    twins = {folded(path): path for path in gone}
    for path in coming:
        if twin := twins.get(folded(path)):
            raise PackageError(
                "case_only",
                f"{path} would come as {twin} goes, and the two differ only in case or in "
                "Unicode's form: not every file system can tell them apart.",
                next_step="Give the file another name.",
            )


def is_installed(one: Candidate, registry: Registry) -> bool:
    """Whether these very bytes are installed."""
    now = registry.packages.get(one.manifest.package_id)
    return now is not None and now.archive_sha256 == one.archive.digest


def installed(registry: Registry, package_id: str) -> InstalledPackage:
    """The installed package with that id.

    Raises:
        PackageError: ``not_installed``.
    """
    if package_id not in registry.packages:
        raise PackageError(
            "not_installed",
            f"{package_id} is not installed.",
            next_step="`remit package list` shows what is.",
        )
    return registry.packages[package_id]


def earlier(registry: Registry, now: InstalledPackage, version: str) -> InstalledPackage:
    """What was installed last before ``now``, in another version, or in exactly that one.

    Raises:
        PackageError: ``no_older_version``.
    """
    history = registry.history[now.package_id]
    for known in reversed(history):
        if known.version != now.version and version in ("", known.version):
            return known
    others = sorted({one.version for one in history} - {now.version}, key=precedence)
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


def manifests(registry: Registry) -> Mapping[str, Manifest]:
    """By id, the manifest of everything installed."""
    return {name: one.manifest for name, one in registry.packages.items()}
