"""Making, repairing and recovering a root, and opening its packages and gates."""

from __future__ import annotations

import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.supervisor import thread_tools
from remit.agents.tools import TOOL_GROUP, Tool
from remit.kernel.errors import ConfigError, RemitError
from remit.kernel.installed_files import ChangedFileError
from remit.kernel.root import Root, find_root
from remit.kernel.settings import (
    EffectiveSettings,
    LoadedSettings,
    default_settings,
    load_settings,
)
from remit.ledger import (
    KeptHead,
    LedgerClient,
    LedgerError,
    fork,
    ledger_key,
    open_root_ledger,
    remember_place,
)
from remit.packages import (
    PRICES_FILE,
    IncomingArchive,
    InstalledPackage,
    Operation,
    PackageManager,
    finish_prices,
    found_packages,
    install_shipped,
    record_settings,
)
from remit.packages.gates import GATES, GateContext, GateReport, check_gates
from remit.packages.shipped import move_aside
from remit.packages.trust import recorded_trust
from remit.runtime.providers import resolve_model
from remit.runtime.state_tables import check_state

if TYPE_CHECKING:
    from remit.gateway.auth import Identity
    from remit.learning.proposals import Compared, Governance

_log = logging.getLogger("remit.runtime")

Step = Callable[[str], None]


def package_manager(
    root: Root,
    ledger: LedgerClient,
    loaded: LoadedSettings,
    *,
    by: str,
    step: Step = lambda _: None,
) -> PackageManager:
    """Return the manager of a root's packages. Nothing of the root is read or changed yet.

    The ids of known tools are collected. The manager is not a lock: each of its operations takes
    the lock of packages itself.

    Args:
        root: the installation.
        ledger: the root's ledger.
        loaded: the root's settings.
        by: the person who acts, for the record.
        step: called with the name of each step before the step.
    """
    settings = loaded.settings
    return PackageManager(
        root,
        ledger,
        settings.packages,
        ledger_path=settings.ledger.path,
        tool_ids=known_tools(root, ledger, loaded),
        routes=settings.routing.routes.keys(),
        by=by,
        step=step,
    )


def governance(
    root: Root, ledger: LedgerClient, loaded: LoadedSettings, identity: Identity
) -> Governance:
    """Return the object that decides on a root's proposals in the name of a person.

    Nothing is read or changed yet, and the identity's role is checked at each decision.

    Args:
        root: the installation.
        ledger: the root's ledger.
        loaded: the root's settings.
        identity: the person who decides, whose name is recorded.
    """
    from remit.learning.proposals import Governance  # No model call needs it.

    return Governance(
        root,
        ledger,
        package_manager(root, ledger, loaded, by=identity.name),
        lambda proposed: gate_context(root, ledger, proposed),
        identity,
    )


def make_root(
    root: Root,
    *,
    flags: Mapping[str, Any] | None = None,
    bare: bool = False,
    new_ledger: bool = False,
    by: str = "local operator",
    step: Step = lambda _: None,
) -> bool:
    """Make a complete root, or restore its missing parts.

    In a root without packages, files in the way are moved to ``before-packages/``. A missing key
    and ledger are made. Shipped packages are installed or upgraded to the running version, which is
    recorded; installed ones with the same bytes stay, and their missing files are written again.

    Args:
        root: the root.
        flags: settings, keyed by dotted name, above all other layers.
        bare: make only directories, keys and an empty ledger, into which an export can be imported.
            A later call without ``bare`` installs the packages.
        new_ledger: begin a new ledger although packages were installed with one that is lost. No
            effect with ``bare``.
        by: the person who acts, for the record.
        step: called with the name of each step before the step.

    Returns:
        True if the running code is an editable install, which is recorded as a waiver. False with
        ``bare``.

    Raises:
        RemitError: the directory cannot be written, one of its directories is a link, packages are
            installed and the ledger is lost, or ``new_ledger`` is given and the ledger is not lost.
        ConfigError: ``remit.toml`` or the environment has an invalid value.
        PackageError: a package cannot be installed; no package was changed.
        LedgerError: the ledger cannot be made or opened.
    """
    if bare:
        with _open(root, flags):
            return False
    with _founding(root, flags, by, step, new_ledger=new_ledger) as (manager, _, editable):
        if not manager.registry().packages:
            move_aside(root.path)
        install_shipped(manager)
    return editable


def install_bootstrap(
    root: Root,
    archives: Sequence[IncomingArchive],
    *,
    dev: bool,
    by: str,
) -> tuple[list[InstalledPackage], GateReport]:
    """Make a root from the archives of a bootstrap and run every gate.

    Packages are installed, a checkpoint is signed, and settings and gate results are recorded. A
    gate that fails is no error: the report states it, and the packages stay.

    Args:
        root: the directory.
        archives: all packages.
        dev: accept unsigned packages that are not part of the running distribution.
        by: the person who acts, for the record.

    Returns:
        The packages as by :meth:`PackageManager.install`, present ones first and then each new one
        after its dependencies; and the report of the gates.

    Raises:
        RemitError: see :func:`make_root`.
        PackageError: a package cannot be installed.
        ConfigError: ``remit.toml`` or the environment has an invalid value.
        LedgerError: the ledger cannot be made, opened or written.
    """
    with _founding(root, None, by, lambda _: None) as (manager, ledger, _):
        installed = manager.install(archives, dev=dev)
        ledger.checkpoint()  # Gate G6 compares the ledger with it.
        loaded = load_settings(root.config)
        record_settings(ledger, EffectiveSettings.of(loaded), by=by)
        report = check_gates(gate_context(root, ledger, loaded), by=by)
    return installed, report


@contextmanager
def _founding(
    root: Root, flags: Mapping[str, Any] | None, by: str, step: Step, *, new_ledger: bool = False
) -> Iterator[tuple[PackageManager, LedgerClient, bool]]:
    """Yield the manager of a root that has only keys and ledger, or that is being repaired.

    Also yields the ledger, and True for an editable install.

    Raises:
        RemitError: packages are installed and the ledger is lost, or ``new_ledger`` is True and the
            ledger is not lost.
    """
    installed = any(root.tier("hot").glob("installed/*/receipt.json"))
    with _open(root, flags, keep=installed and not new_ledger) as (ledger, loaded):
        if installed and not new_ledger and not ledger.count():
            raise _lost(f"the ledger of {root.path} is empty")
        if new_ledger and recorded_trust(ledger):
            raise RemitError(
                f"The ledger of {root.path} exists and belongs to this root, so nothing is lost.",
                next_step="Run plain `remit init`.",
            )
        if new_ledger:  # Checks of the lost ledger say nothing about the new one.
            shutil.rmtree(root.marks, ignore_errors=True)
            if ledger.checkpoints.problem():
                kept = KeptHead(ledger_key(root, loaded.settings.ledger))
                fork(ledger, kept, reason="A new ledger was begun: the old one is lost.", by=by)
        wait_s = loaded.settings.packages.lock_timeout_s
        editable = found_packages(root, ledger, by=by, wait_s=wait_s, new_ledger=new_ledger)
        yield package_manager(root, ledger, loaded, by=by, step=step), ledger, editable


@contextmanager
def _open(
    root: Root, flags: Mapping[str, Any] | None, *, keep: bool = False
) -> Iterator[tuple[LedgerClient, LoadedSettings]]:
    """Make missing folders, keys and ledger, and open the ledger.

    With ``keep``, a ledger in a file must exist.
    """
    _refuse_links(root)
    root.create()
    # The installed files may be of another version or changed; the repair replaces them.
    loaded = load_settings(root.config, flags=flags, installed=False)
    path = loaded.settings.ledger.path
    remember_place(root, loaded.settings.ledger)
    if keep and "://" not in path and not (root.path / path).exists():
        raise _lost(f"there is no ledger {root.path / path}")
    ledger_key(root, loaded.settings.ledger).create()
    with open_root_ledger(
        root, loaded.settings.ledger, create=True, checks=(check_state,)
    ) as ledger:
        yield ledger, loaded


def _refuse_links(root: Root) -> None:
    """Raise RemitError if a directory of the root is a link: writes would go elsewhere."""
    hot = root.tier("hot")
    for folder in (
        hot, root.tier("ho2"), root.tier("ho1"), hot / "installed", root.keys, hot / "registries",
        root.marks,
    ):  # fmt: skip
        if folder.is_symlink():
            raise RemitError(
                f"{folder} is a link. Folders of a root must not be links, because data would be "
                "written elsewhere.",
                next_step="Use a directory instead. To keep a root elsewhere, use that directory "
                "as the root.",
            )


def _lost(what: str) -> RemitError:
    return RemitError(
        f"Packages are installed, but {what}: the record of earlier operations is missing.",
        next_step="Restore the ledger from a backup, or import an export with `remit init "
        "--bare` and `remit ledger import`. Only if no copy exists, run `remit init "
        "--new-ledger`, which starts a new record that does not continue the old one.",
    )


def recover_packages(root: Root, ledger: LedgerClient, loaded: LoadedSettings) -> None:
    """Finish or undo a package or price operation whose process was killed.

    Content that was erased afterwards is removed from learned packages. Finished changes are
    logged. Nothing is locked or written if there is nothing to do.

    Args:
        root: the installation.
        ledger: the root's ledger.
        loaded: the root's settings.

    Raises:
        PackageError: another process holds the lock of packages, or a file cannot be restored.
        LedgerError: the ledger cannot be read or written.
        OSError: the journal of packages cannot be read.
    """
    settings = loaded.settings
    file = settings.budget.prices or PRICES_FILE
    if entry_id := finish_prices(root.path, ledger, file, settings.packages.lock_timeout_s):
        _log.warning("the interrupted change of prices that %s recorded is finished now",
                     entry_id)  # fmt: skip
    if Operation.is_pending(root.path):
        package_manager(root, ledger, loaded, by="recovery").recover()
    forget_erased(root, ledger, loaded)


def forget_erased(root: Root, ledger: LedgerClient, loaded: LoadedSettings) -> list[str]:
    """Remove erased content from proposals and learned packages; return the proposals' ids.

    The list is empty if no proposal holds erased content. Learned routes are fitted again without
    the content.

    The removals are recorded in the name ``erasure``.

    Args:
        root: the installation.
        ledger: the root's ledger, which records each change.
        loaded: the root's settings.

    Raises:
        LedgerError: the ledger cannot be read or written.
        PackageError: another process holds the lock of packages, or a file cannot be deleted.
    """
    if not (root.path / "proposals").is_dir() and not any(
        root.tier("hot").glob("installed/PKG-LEARNED-*")
    ):
        return []
    from remit.gateway.auth import Identity
    from remit.learning.proposals import forget_erased as forget

    return forget(
        root, ledger, loaded, governance(root, ledger, loaded, Identity("erasure", "admin"))
    )


def settle_canary(root: Root, ledger: LedgerClient, loaded: LoadedSettings) -> Compared | None:
    """End the canary in force if its comparison has decided.

    By the verdict, the proposal is adopted, which installs its package, or the canary is stopped. A
    proposal that can no longer be adopted is stopped. The end is recorded in the name of the person
    who started the canary.

    Args:
        root: the installation.
        ledger: the root's ledger.
        loaded: the root's settings.

    Returns:
        The comparison, also if it has not decided yet; ``None`` if no canary is in force.

    Raises:
        LedgerError: the ledger cannot be read or written.
        ProposalError: another process decided meanwhile.
        PackageError: the package cannot be installed now.
    """
    from remit.gateway.auth import Identity
    from remit.routing import canary_in_force

    terms = canary_in_force(ledger)
    if terms is None:
        return None
    return governance(root, ledger, loaded, Identity(terms.by, "admin")).settle_canary()


def gate_context(
    root: Root,
    ledger: LedgerClient,
    loaded: LoadedSettings,
    settings_error: RemitError | None = None,
) -> GateContext:
    """Return the state of a root that its gates check.

    No gate runs; the model is looked for when a gate asks for it.

    Args:
        root: the installation.
        ledger: the root's ledger.
        loaded: the root's settings; the shipped ones if they cannot be loaded.
        settings_error: the error with which the settings could not be loaded; ``None`` without one.
    """
    return GateContext(
        root.path,
        ledger,
        loaded.settings,
        model=lambda: resolve_model(loaded.settings)[1:],
        tool_ids=known_tools(root, ledger, loaded),
        settings_error=settings_error,
        effective=None if settings_error else EffectiveSettings.of(loaded),
    )


def run_gates(
    root: Path | None,
    names: Sequence[str] | None = None,
    *,
    full: bool = False,
    by: str,
    progress: Callable[[str], Callable[[int, int], None]],
) -> GateReport:
    """Check gates of a root and record the results.

    An interrupted change of packages or prices is finished or undone first, and the settings are
    recorded if they changed; a failure of either is ignored. Settings that cannot be used are a
    finding, and the defaults are used instead.

    Args:
        root: the given root, or None for the default.
        names: the gates; all gates if None.
        full: True to check the whole ledger; False to leave out entries verified earlier.
        by: the person who checks.
        progress: returns the function that shows the progress of a part with this label.

    Returns:
        The report; ``unrecorded`` says why results could not be written. If the ledger cannot be
        read, or an unexpected error ends the checks, every gate fails for that reason.

    Raises:
        RemitError: no root exists, or its tenant is being moved or removed.
        InvalidInputError: there is no such gate.
    """
    shown = functools.cache(progress)
    try:
        with _damaged(find_root(root).require(), by) as context:
            return check_gates(
                context, names, full=full, by=by, jobs=os.cpu_count() or 1,
                progress=lambda label, done, total: shown(label)(done, total),
            )  # fmt: skip
    except LedgerError as error:
        return GateReport.without_ledger(names or GATES, error)
    except RemitError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever is stored, there is a report
        damage = LedgerError(f"{type(error).__name__}: {error}.")
        return GateReport.without_ledger(names or GATES, damage)


@contextmanager
def _damaged(place: Root, by: str) -> Iterator[GateContext]:
    """Open a root for the gates, even if its settings are damaged."""
    problem: RemitError | None = None
    known = False
    try:
        loaded = load_settings(place.config)
        known = True
    except (ChangedFileError, ConfigError) as error:
        # Changed defaults are a finding of G0B.
        problem = error if isinstance(error, ConfigError) else None
        try:
            loaded = load_settings(place.config, installed=False)
        except ConfigError as own:
            problem, loaded = own, LoadedSettings(default_settings(), {}, {})
    with open_root_ledger(place, loaded.settings.ledger, checks=(check_state,)) as ledger:
        # A killed process's change is finished or undone first; else a gate reports the fault.
        with suppress(Exception):
            recover_packages(place, ledger, loaded)
        if known:  # The settings are in force here too.
            with suppress(Exception):
                record_settings(ledger, EffectiveSettings.of(loaded), by=by)
        yield gate_context(place, ledger, loaded, problem)


def root_tools(root: Root, ledger: LedgerClient, loaded: LoadedSettings) -> list[Tool]:
    """Return ADMIN's tools for a root, whether or not the settings allow each of them.

    They only read. Gates that a tool runs are recorded in the name ``ADMIN``.

    Args:
        root: the root.
        ledger: ledger of the root.
        loaded: settings of the root with their sources.
    """
    from remit.agents import Redactor, admin_tools  # The imports are slow.
    from remit.gateway.auth import Identity
    from remit.operations import Caller, make_tools
    from remit.runtime.operations import all_operations
    from remit.runtime.operations_root import OpenRoot

    port = OpenRoot(lambda: (root, loaded), lambda: ledger)
    caller, settings = Caller(Identity("ADMIN", "operator")), loaded.settings.tools
    made = make_tools(all_operations(), port, lambda: caller, settings, Redactor.of(loaded))
    tools = [tool for stated, tool in made if stated.label]
    return admin_tools(ledger, root.path, settings, loaded, operations=tools)


def known_tools(root: Root, ledger: LedgerClient, loaded: LoadedSettings) -> frozenset[str]:
    """Return the ids of tools that agents of a root can be given.

    These are the tools of ADMIN, of the supervisor and of installed distributions.

    Tools of installed distributions are not imported.

    Args:
        root: the root.
        ledger: ledger of the root.
        loaded: settings of the root with their sources.
    """
    own = [*root_tools(root, ledger, loaded), *thread_tools()]
    return frozenset(
        [tool.tool_id for tool in own] + [tool.name for tool in entry_points(group=TOOL_GROUP)]
    )
