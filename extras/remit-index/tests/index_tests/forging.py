"""What somebody can sign who has an index's keys."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import Metadata, MetaFile, TargetFile

from index_tests.making import metadata, version_of


def signer(file: Path) -> CryptoSigner:
    key = load_pem_private_key(file.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    return CryptoSigner(key)


def forge(top: Path, role: str, key: Path, change: Callable[[Any], None]) -> bytes:
    """The newest metadata of a role, changed, in its next version, signed with that key."""
    if role == "timestamp":
        name = "timestamp.json"
    else:
        numbers = [int(one.name.split(".")[0]) for one in metadata(top, "").glob(f"*.{role}.json")]
        name = f"{max(numbers)}.{role}.json"
    found: Metadata[Any] = Metadata.from_bytes(metadata(top, name).read_bytes())
    found.signed.version += 1
    change(found.signed)
    found.sign(signer(key))
    data = found.to_bytes()
    number = "" if role == "timestamp" else f"{found.signed.version}."
    metadata(top, f"{number}{role}.json").write_bytes(data)
    return data


def pointing_to(data: bytes, version: int) -> MetaFile:
    return MetaFile(version, len(data), {"sha256": hashlib.sha256(data).hexdigest()})


def forge_snapshot(top: Path, meta: MetaFile) -> None:
    """A new snapshot and timestamp that lead to those targets."""
    keys = top / "keys"

    def snap(signed: Any) -> None:
        signed.meta["targets.json"] = meta

    data = forge(top, "snapshot", keys / "snapshot.pem", snap)
    version = max(int(one.name.split(".")[0]) for one in metadata(top, "").glob("*.snapshot.json"))
    made = pointing_to(data, version)
    forge(
        top, "timestamp", keys / "timestamp.pem",
        lambda signed: setattr(signed, "snapshot_meta", made),
    )  # fmt: skip


def forge_target(
    top: Path, path: str, data: bytes, *, custom: Any = None, write: bool = True
) -> None:
    target = TargetFile.from_data(path, data, ["sha256"])
    target.unrecognized_fields["custom"] = custom

    def change(signed: Any) -> None:
        signed.targets[path] = target

    made = forge(top, "targets", top / "keys" / "targets.pem", change)
    if write:
        place = top / "served" / "targets" / target.get_prefixed_paths()[0]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    number = max(int(one.name.split(".")[0]) for one in metadata(top, "").glob("*.targets.json"))
    assert version_of(top, f"{number}.targets.json") == number
    forge_snapshot(top, pointing_to(made, number))
