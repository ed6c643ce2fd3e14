"""Decides what an operation on packages changes, and refuses what may not be (SPEC 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from remit.packages.changes import Change
from remit.packages.dependencies import in_order
from remit.packages.errors import PackageError
from remit.packages.manifest import Manifest
from remit.packages.offer import Candidate
from remit.packages.paths import folded
from remit.packages.permissions import widened
from remit.packages.registry import SHIPPED_SOURCE, InstalledPackage, Registry
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
        if one.source.startswith(SHIPPED_SOURCE)
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
        _check_framework(one, registry)
        _check_modules(one, registry)
        newer = now is not None and now.version != manifest.version
        changes.append(Change(name, one, now, "upgrade" if newer else "install"))
    removed = sorted(superseded)
    return changes + [Change(name, None, registry.packages[name], "remove") for name in removed]


def approved(
    changes: Sequence[Change], registry: Registry, *, by: str, approve: bool, dev: bool = False
) -> list[Change]:
    """The changes, with what each package may do beyond what it might, and who approved that.

    Args:
        changes: what comes.
        registry: what is installed, and was.
        by: who acts.
        approve: whether who acts approves it.
        dev: let what a package asks for pass, the first time that it comes.

    Raises:
        PackageError: ``permissions_widened``: nobody approved it.
    """
    found = []
    for change in changes:
        if change.candidate is not None:
            let = dev and not registry.history.get(change.package_id)
            more, who = _approval(change.candidate, registry, by=by, approve=approve, let=let)
            change = replace(change, widened=more, approved_by=who)
        found.append(change)
    return found


def _check_version(one: Candidate, registry: Registry) -> None:
    name, version = one.manifest.package_id, one.manifest.version
    for known in registry.history.get(name, ()):
        # What stands behind a + gives no rank: it is no version of its own.
        same = precedence(known.version) == precedence(version)
        if same and known.archive_sha256 != one.archive.digest:
            raise PackageError(
                "version_reused",
                f"{name} {known.version} was installed before with other content "
                f"({known.archive_sha256}, not {one.archive.digest}).",
                next_step="Give what was changed a version of its own.",
            )
        if precedence(known.version) > precedence(version):
            raise PackageError(
                "older_version",
                f"{name} {version} is older than {known.version}, which was installed here "
                f"({known.entry_id}).",
                next_step=f"Use `remit package rollback {name} --to {version}` to go back."
                if name in registry.packages
                else f"Use {known.version} or a newer one; an older one is never installed anew.",
            )


def _check_framework(one: Candidate, registry: Registry) -> None:
    """Nobody makes the rules that hold for oneself, but for what a root begins with."""
    manifest = one.manifest
    brought = {
        PurePosixPath(asset.path).stem
        for asset in manifest.assets
        if asset.classification == "framework"
    }
    begins = not registry.packages or one.source.startswith(SHIPPED_SOURCE)
    if manifest.framework_id in brought and not begins:
        raise PackageError(
            "own_framework",
            f"{manifest.package_id} belongs to {manifest.framework_id}, which it brings itself: it "
            "would make the rules that hold for it.",
            next_step="Let it belong to a framework that is installed; for agents FMWK-AGENT-001.",
        )


def _check_modules(one: Candidate, registry: Registry) -> None:
    """Who governs a module of Remit is Remit's to say, and what a root begins with."""
    if (
        one.manifest.modules
        and registry.packages
        and not one.source.startswith(SHIPPED_SOURCE)
        and not _had_modules(one, registry)
    ):
        raise PackageError(
            "modules_reserved",
            f"{one.manifest.package_id} says that it governs {one.manifest.modules[0]}; only what "
            "comes with Remit governs its modules.",
            next_step="Take `modules` out of the manifest.",
        )


def _had_modules(one: Candidate, registry: Registry) -> bool:
    now = registry.packages.get(one.manifest.package_id)
    return now is not None and set(one.manifest.modules) <= set(now.manifest.modules)


def _kernel_places(one: Candidate, before: InstalledPackage | None) -> list[str]:
    """What of the kernel's plane a package comes to hold, a line each."""
    had = {asset.path for asset in before.manifest.assets} if before is not None else set()
    found = [
        f"the file {asset.path}, of the kernel's plane"
        for asset in one.manifest.assets
        if asset.path.startswith("HOT/") and asset.path not in had
    ]
    if before is None:
        return found
    if before.ships:
        found.append("the place of a package that came with Remit")
    for name in ("plane_id", "framework_id"):
        was, now = getattr(before.manifest, name), getattr(one.manifest, name)
        if was != now:
            found.append(f"{name} {now} instead of {was}")
    return found


def _approval(
    one: Candidate, registry: Registry, *, by: str, approve: bool, let: bool = False
) -> tuple[Sequence[str], str]:
    """What a package may do beyond what it might before, and who approved that.

    Args:
        one: the package.
        registry: what was installed of it before.
        by: who acts.
        approve: whether who acts approves it.
        let: whether nobody has to.

    Raises:
        PackageError: ``permissions_widened``: nobody approved it.
    """
    name = one.manifest.package_id
    known = registry.history.get(name, ())
    before = known[-1].manifest.permissions if known else None
    more = widened(before, one.manifest.permissions)
    if one.source.startswith(SHIPPED_SOURCE):
        return more, one.source if more else ""
    more += _kernel_places(one, known[-1] if known else None)
    if not more:
        return more, ""
    if approve:
        return more, by
    if let:
        return more, f"{by}, with --dev"
    raise PackageError(
        "permissions_widened",
        f"{name} {one.manifest.version} asks for more than "
        + ("it had" if known else "nothing")
        + f": {'; '.join(more[:_MAX_NAMED])}"
        + (f"; and {len(more) - _MAX_NAMED} more." if len(more) > _MAX_NAMED else "."),
        next_step="Look at it (`remit package show`), and run the command again with "
        "--approve if it may.",
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
