"""``remit gate``: checks the rules of an installation and reports the results."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import emit, note, open_settings, progress_bar, reads, whoami

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remit.packages.gates import GateContext, GateReport

__all__ = ["gate", "run_gates"]


@click.group()
def gate() -> None:
    """Run gates, which check packages, files, orders and the ledger."""


@gate.command()
@click.option("--all", "every", is_flag=True, help="Run all gates.")
@click.option(
    "--gate",
    "names",
    multiple=True,
    metavar="GATE",
    help="Run this gate. Repeat for several gates.",
)
@click.option("--enforce", is_flag=True, help="Exit 1 if a gate fails.")
@click.option(
    "--full", is_flag=True, help="Verify the whole ledger, including entries verified earlier."
)
@reads
def check(
    root: Path | None,
    as_json: bool,
    every: bool,
    names: tuple[str, ...],
    enforce: bool,
    full: bool,
) -> None:
    """Run gates, then print and record the results. Without --enforce, exit 0."""
    from remit.packages.gates import GATES

    if every == bool(names):
        raise click.UsageError(f"Give --all, or --gate with one of {', '.join(GATES)}.")
    if unknown := [name for name in names if name not in GATES]:
        raise click.UsageError(
            f"There is no gate {unknown[0]!r}; the gates are {', '.join(GATES)}."
        )
    report = run_gates(root, names or None, full=full)
    emit(as_json, report.to_dict(), _lines(report))
    if report.unrecorded:
        note(f"The results could not be recorded: {report.unrecorded}")
    if enforce and not report.passed:
        sys.exit(1)


def run_gates(
    root: Path | None, names: Sequence[str] | None = None, *, full: bool = False
) -> GateReport:
    """Check gates of a root and record the results.

    Args:
        root: the given root, or None for the default.
        names: the gates; all gates if None.
        full: True to check the whole ledger.

    Returns:
        The report. If the ledger cannot be read, the report says so.
    """
    from remit.kernel.errors import RemitError
    from remit.ledger import LedgerError
    from remit.packages.gates import GATES, GateReport, check_gates

    try:
        with _context(root) as context:
            return check_gates(
                context,
                names,
                full=full,
                by=whoami(),
                jobs=os.cpu_count() or 1,
                progress=progress_bar(),
            )
    except LedgerError as error:
        return GateReport.without_ledger(names or GATES, error)
    except RemitError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever is stored, there is a report
        damage = LedgerError(f"{type(error).__name__}: {error}.")
        return GateReport.without_ledger(names or GATES, damage)


@contextmanager
def _context(root: Path | None) -> Iterator[GateContext]:
    """Open a root for the gates, even if its settings are damaged."""
    from remit.kernel.errors import ConfigError, RemitError
    from remit.kernel.installation import ChangedFileError
    from remit.kernel.root import find_root
    from remit.kernel.settings import (
        EffectiveSettings,
        LoadedSettings,
        default_settings,
        load_settings,
    )
    from remit.ledger import open_root_ledger
    from remit.packages import record_settings
    from remit.runtime.installation import gate_context, recover_packages
    from remit.runtime.state import check_state

    problem: RemitError | None = None
    known = False
    place = find_root(root)
    try:
        place, loaded = open_settings(root)
        known = True
    except (ChangedFileError, ConfigError) as error:
        # Changed defaults are a finding of G0B.
        problem = error if isinstance(error, ConfigError) else None
        try:
            loaded = load_settings(place.config, installed=False)
        except ConfigError as own:
            problem, loaded = own, LoadedSettings(default_settings(), {}, {})
    settings = loaded.settings
    with open_root_ledger(place, settings.ledger, checks=(check_state,)) as ledger:
        # What a killed process left is finished or undone first; else a gate says what is wrong.
        with suppress(Exception):
            recover_packages(place, ledger, loaded)
        if known:  # The settings are in force here too.
            with suppress(Exception):
                record_settings(ledger, EffectiveSettings.of(loaded), by=whoami())
        yield gate_context(place, ledger, loaded, problem)


def _lines(report: GateReport) -> Iterator[str]:
    for gate in report.gates:
        yield f"{'ok  ' if gate.passed else 'FAIL'} {gate.gate}: {gate.message}"
        for finding in gate.findings:
            yield f"       {finding.message}"
            if finding.next_step:
                yield f"         next: {finding.next_step}"
        if (more := gate.error_count - len(gate.findings)) > 0:
            yield f"       … and {more} more"
    passed = sum(gate.passed for gate in report.gates)
    yield f"{passed} of {len(report.gates)} gates passed"
