"""``remit package sign`` and ``remit package verify``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from remit.cli.shared import FILE, emit, note, open_root, reads
from remit.kernel.words import count

__all__ = ["sign", "verify"]


@click.command()
@click.argument("archive", type=FILE)
@click.option("--key", "key_file", required=True, type=FILE, help="File of the private key.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Day (UTC) from which installs no longer accept the signature.",
)
@reads
def sign(
    root: Path | None, as_json: bool, archive: Path, key_file: Path, expires: datetime | None
) -> None:
    """Sign an archive; write or extend the signature file ARCHIVE.intoto.json."""
    import io
    from datetime import UTC

    from remit.kernel.settings import default_settings
    from remit.packages import IncomingArchive, PackageKey, read_archive, replace_file
    from remit.packages import sign as sign_archive

    limits = default_settings().packages
    incoming = IncomingArchive.from_file(archive, limits.compressed_bytes)
    if incoming.envelope and expires is not None:
        raise click.UsageError("The expiry of an existing signature file cannot be changed.")
    key = PackageKey.load(key_file)
    found = read_archive(io.BytesIO(incoming.data), limits)
    ends = None if expires is None else expires.replace(tzinfo=UTC)
    target = IncomingArchive.envelope_file(archive)
    replace_file(
        target,
        sign_archive(found.digest, found.manifest, key, expires=ends, envelope=incoming.envelope),
    )
    signed = {"signature": str(target), "key_id": key.key_id, "archive_sha256": found.digest}
    emit(as_json, signed, [str(target)])
    if not as_json:
        named = f"{found.manifest.package_id} {found.manifest.version}"
        note(f"Signed {named} with {key.key_id[:12]}….")


@click.command()
@click.argument("archive", type=FILE)
@click.option("--id", "package_id", default="", help="Refuse anything but this package.")
@reads
def verify(root: Path | None, as_json: bool, archive: Path, package_id: str) -> None:
    """Verify an archive and its signatures against the trusted keys, without unpacking."""
    from remit.packages import IncomingArchive, TrustPolicy, admit, read_trust

    place, loaded, ledger = open_root(root)
    limits = loaded.settings.packages
    with ledger:
        incoming = IncomingArchive.from_file(
            archive, limits.compressed_bytes, expected_id=package_id
        )
        policy = read_trust(place.path / TrustPolicy.FILE, ledger)
        found = admit(incoming, policy, limits, dev=False)
    manifest = found.manifest
    summary = {
        "verified": True,
        "package_id": manifest.package_id,
        "version": manifest.version,
        "archive_sha256": found.archive.digest,
        "files": len(found.archive.files),
        "keyids": found.package.signature["keyids"],
        "threshold": found.package.signature["threshold"],
    }
    keys = ", ".join(f"{key_id[:12]}…" for key_id in found.package.signature["keyids"])
    line = (
        f"{manifest.package_id} {manifest.version}: {count(len(found.archive.files), 'file')}, "
        f"signed by {keys} (threshold {found.package.signature['threshold']})"
    )
    emit(as_json, summary, [line])
