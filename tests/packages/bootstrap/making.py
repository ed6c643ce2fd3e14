"""Packages and a bootstrap for the tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from tests.packages.making import archive_of, encoded, manifest_of, members_of

# Those that come first in the alphabet are needed least.
NEEDS = {"APPLE": ["CHERRY", "BANANA"], "BANANA": ["CHERRY"], "CHERRY": [], "DATE": []}
ORDER = ["CHERRY", "DATE", "BANANA", "APPLE"]


def package(word: str, needs: list[str]) -> bytes:
    files = {f"HO1/prompt_packs/PRM-{word}-001.txt": word.encode()}
    manifest = manifest_of(
        files,
        package_id=f"PKG-{word}-001",
        version="1.0.0",
        modules=[],
        dependencies=[
            {"package_id": f"PKG-{one}-001", "version": ">=1.0.0,<2.0.0"} for one in needs
        ],
    )
    return archive_of(members_of(files, encoded(manifest)))


def packages(needs: dict[str, list[str]] = NEEDS) -> dict[str, bytes]:
    return {f"PKG-{word}-001-1.0.0.tar.gz": package(word, them) for word, them in needs.items()}


def unpacked(data: bytes, top: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(top, filter="data")
    return top
