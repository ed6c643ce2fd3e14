"""The commands of ``remit bootstrap``, which build and install the bootstrap file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import FILE, FOLDER, emit, note, reads, settings_of, whoami, write_file
from remit.kernel.errors import InvalidInputError
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.packages.gates import GateReport


@click.group()
def bootstrap() -> None:
    """Build and install the bootstrap file, which contains all that a new root needs."""


@bootstrap.command()
@click.option("--out", required=True, type=FILE, help="Output file.")
@reads
def build(root: Path | None, as_json: bool, out: Path) -> None:
    """Write CP_BOOTSTRAP.tar.gz: this Remit and its packages. The build is reproducible."""
    from remit.kernel.canonical import sha256_hex
    from remit.packages import build_bundle
    from remit.packages.distribution import repack_wheel
    from remit.packages.shipped import shipped_archives

    wheel = repack_wheel()
    data, manifest = build_bundle(wheel, shipped_archives(), settings_of(root).packages)
    with write_file(out) as file:
        file.write(data)
    digest = f"sha256:{sha256_hex(data)}"
    version, packages = manifest["remit_version"], manifest["packages"]
    summary = {
        "out": str(out),
        "sha256": digest,
        "bytes": len(data),
        "remit_version": version,
        "wheel": wheel[0],
        "packages": [
            {"package_id": package["package_id"], "version": package["version"]}
            for package in packages
        ],
    }
    emit(as_json, summary, [digest])
    if not as_json:
        note(f"{out}: Remit {version}, {count(len(packages), 'package')}, {len(data):,} bytes.")


@bootstrap.command()
@click.option(
    "--packages", "directory", required=True, metavar="DIR",
    type=FOLDER, help="The directory packages/ of the unpacked bootstrap.",
)  # fmt: skip
@click.option("--dev", is_flag=True, help="Accept unsigned packages; the waiver is recorded.")
@reads
def install(root: Path | None, as_json: bool, directory: Path, dev: bool) -> None:
    """Install all packages of a bootstrap and run every gate; exit 1 if a gate fails."""
    from remit.kernel.root import Root
    from remit.packages import read_bundle, receipt_path
    from remit.runtime.installation import install_bootstrap

    if root is None and os.environ.get("REMIT_ROOT"):
        root = Path(os.environ["REMIT_ROOT"])
    if root is None:  # not the nearest one: a bootstrap is for a place that somebody named
        raise InvalidInputError(
            "No root was given to install into.", next_step="Give --root DIR, or set REMIT_ROOT."
        )
    archives = read_bundle(directory, settings_of(root).packages)
    installed, report = install_bootstrap(Root(root), archives, dev=dev, by=whoami())
    passed = bool(installed) and report.passed
    receipts = [
        {
            "package_id": one.package_id,
            "version": one.version,
            "receipt": receipt_path(one.package_id),
        }
        for one in installed
    ]
    shown = ("gate", "passed", "message", "errors")
    gates = [{key: gate.to_dict()[key] for key in shown} for gate in report.gates]
    found = {"passed": passed, "receipts": receipts, "gates": gates}
    emit(as_json, found, _lines(receipts, report))
    raise SystemExit(0 if passed else 1)


def _lines(receipts: Sequence[Mapping[str, str]], report: GateReport) -> Iterator[str]:
    width = max((len(one["package_id"]) for one in receipts), default=0)
    for one in receipts:
        yield f"{one['package_id']:<{width}}  {one['version']}  {one['receipt']}"
    for gate in report.gates:
        yield f"{'ok  ' if gate.passed else 'FAIL'}  {gate.gate}: {gate.message}"
        yield from (f"      {error}" for error in gate.errors)
    passed = sum(gate.passed for gate in report.gates)
    yield f"{count(len(receipts), 'package')} installed, gates {passed}/{len(report.gates)}"
