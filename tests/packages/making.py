"""Packages for the tests, right ones and wrong ones, made without the code under test."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from remit.kernel.settings import default_settings
from remit.packages import PLACES, PackageKey
from remit.packages.trust import TrustPolicy

LIMITS = default_settings().packages.model_copy(
    update={
        "compressed_bytes": 3_000_000,
        "unpacked_bytes": 4_000_000,
        "ratio": 200,
        "files": 100,
        "file_bytes": 1_000_000,
    }
)

FILES = {
    "HO1/contracts/PRC-EXAMPLE-001.json": b'{"contract_id": "PRC-EXAMPLE-001"}\n',
    "HO1/prompt_packs/PRM-EXAMPLE-001.txt": b"Say hello to {{name}}.\n" * 40,
    "HOT/policy/empty.md": b"",
}


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def manifest_of(files: Mapping[str, bytes], **changed: Any) -> dict[str, Any]:
    return {
        "package_id": "PKG-EXAMPLE-001",
        "version": "1.2.0",
        "schema_version": "1.0",
        "title": "An example",
        "package_type": "agent",
        "spec_id": "SPEC-EXAMPLE-001",
        "framework_id": "FMWK-EXAMPLE",
        "plane_id": "ho1",
        "layer": 3,
        "dependencies": [{"package_id": "PKG-KERNEL-001", "version": ">=1.0.0,<2.0.0"}],
        "permissions": {
            "tools": ["list_sessions"],
            "models": ["claude-opus-4-5"],
            "budgets": {"token_budget": 1000, "usd_budget": "0.50"},
            "paths": ["HO1/contracts/"],
        },
        "modules": ["remit.agents.worker"],
        "assets": [
            {
                "path": path,
                "sha256": sha256(data),
                "classification": next(
                    (kind for place, kind in PLACES.items() if path.startswith(place)), "document"
                ),
            }
            for path, data in files.items()
        ],
        **changed,
    }


def changing(*place: Any, to: Any) -> Callable[[Any], None]:
    """A change of one part of a JSON value."""

    def change(value: Any) -> None:
        for part in place[:-1]:
            value = value[part]
        value[place[-1]] = to

    return change


def key_of(path: Path, seed: bytes, name: str = "team") -> PackageKey:
    """A key whose private half is known beforehand, so that its signatures are too."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(f"Remit package key: {name}\n".encode() + pem)
    path.chmod(0o600)
    return PackageKey.load(path)


def trusting(*keys: PackageKey, threshold: int = 1) -> TrustPolicy:
    policy = TrustPolicy()
    for key in keys:
        policy = policy.with_key(key.public, key.name)
    return policy.with_threshold(threshold)


def encoded(manifest: object) -> bytes:
    return json.dumps(manifest, indent=2, ensure_ascii=False).encode()


def directory_of(
    top: Path, files: Mapping[str, bytes] = FILES, manifest: bytes | None = None
) -> Path:
    for path, data in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(data)
    top.mkdir(parents=True, exist_ok=True)
    (top / "manifest.json").write_bytes(manifest or encoded(manifest_of(files)))
    return top


def member(name: str, data: bytes = b"", **changed: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in changed.items():
        setattr(info, key, value)
    return info, data


def members_of(
    files: Mapping[str, bytes] = FILES, manifest: bytes | None = None
) -> list[tuple[tarfile.TarInfo, bytes]]:
    ordered = sorted(files.items(), key=lambda item: item[0].encode())
    first = member("manifest.json", manifest or encoded(manifest_of(files)))
    return [first, *(member(path, data) for path, data in ordered)]


def tar_of(
    members: list[tuple[tarfile.TarInfo, bytes]], layout: int = tarfile.USTAR_FORMAT
) -> bytes:
    stream = io.BytesIO()
    for info, data in members:
        header = bytearray(info.tobuf(layout, "utf-8", "surrogateescape"))
        if layout == tarfile.USTAR_FORMAT:
            header[329:345] = b"0000000\0" * 2  # the library leaves them empty, GNU tar does not
            head, _, tail = info.name.encode(errors="surrogateescape").rpartition(b"/")
            if any(header[345:500]):
                header[:100] = tail.ljust(100, b"\0")
                header[345:500] = head.ljust(155, b"\0")
            header[148:156] = b" " * 8
            header[148:156] = b"%06o\0 " % sum(header)
        stream.write(header)
        stream.write(data + bytes(-len(data) % 512))
    return stream.getvalue() + bytes(1024)


def archive_of(
    members: list[tuple[tarfile.TarInfo, bytes]], layout: int = tarfile.USTAR_FORMAT
) -> bytes:
    return gzip.compress(tar_of(members, layout), mtime=0)
