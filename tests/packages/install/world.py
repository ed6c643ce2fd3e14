"""Small roots for the tests of installing, and what has to agree in every one of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, ledger_key, open_root_ledger
from remit.packages import (
    IncomingArchive,
    PackageManager,
    Registry,
    archive_path,
    found_packages,
    receipt_path,
)
from remit.packages.checks import RootDisk
from remit.packages.preconditions import check_before
from remit.packages.registry import receipt_bytes
from remit.runtime import package_manager
from tests.support.packages import archive_of, manifest_of

FRAMEWORK, SPEC = "FMWK-TEST-001", "SPEC-TEST-001"

Files = Mapping[str, bytes]


def world_files() -> dict[str, bytes]:
    """What the other packages answer to."""
    framework = {
        "framework_id": FRAMEWORK,
        "version": "1.0.0",
        "title": "For tests",
        "text": "Anything, anywhere in the tier folders but one.",
        "expected_specs": [SPEC],
        "rules": {
            "paths": [
                "HOT/frameworks/",
                "HOT/specs/",
                "HOT/data/",
                "HO2/",
                "HO1/data/",
                "HO1/new/",
            ],
            "permissions": {
                "tools": ["*"],
                "models": ["*"],
                "budgets": {"token_budget": 1000, "usd_budget": "2.00"},
                "paths": ["HO2/", "HO1/"],
            },
            "gates": [],
        },
        "config": {},
    }
    spec = {
        "spec_id": SPEC,
        "framework_id": FRAMEWORK,
        "version": "1.0.0",
        "title": "For tests",
        "text": "Promises nothing.",
    }
    return {
        f"HOT/frameworks/{FRAMEWORK}.json": json.dumps(framework).encode(),
        f"HOT/specs/{SPEC}.json": json.dumps(spec).encode(),
    }


def packed(scratch: Path, package_id: str, version: str, files: Files, **changes: Any) -> bytes:
    """The archive of a package of the small world."""
    manifest = manifest_of(
        files, package_id,
        **{"version": version, "spec_id": SPEC, "framework_id": FRAMEWORK, "plane_id": "hot",
           "package_type": "data", **changes},
    )  # fmt: skip
    for asset in manifest["assets"]:
        for folder, kind in (("HOT/frameworks/", "framework"), ("HOT/specs/", "spec")):
            if asset["path"].startswith(folder):
                asset["classification"] = kind
    folder = scratch / f"{package_id}-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    return archive_of(folder, files, manifest)


@contextlib.contextmanager
def managing(
    root: Path, step: Callable[[str], None] = lambda _: None, **flags: Any
) -> Iterator[PackageManager]:
    """The manager of a root's packages, its ledger open."""
    with opened(root, **flags) as ledger:
        place = Root(root)
        loaded = load_settings(place.config, flags=flags)
        yield package_manager(place, ledger, loaded, by="tester", step=step)


@contextlib.contextmanager
def opened(root: Path, **flags: Any) -> Iterator[LedgerClient]:
    """The ledger of a root."""
    place = Root(root)
    settings = load_settings(place.config, flags=flags).settings
    with open_root_ledger(place, settings.ledger) as ledger:
        yield ledger


def small_root(root: Path, scratch: Path, config: str = "") -> Path:
    """A root with one package, which brings a framework and a specification."""
    place = Root(root)
    place.create()
    if config:
        place.config.write_text(config)
    settings = load_settings(place.config).settings
    ledger_key(place, settings.ledger).create()
    with open_root_ledger(place, settings.ledger, create=True) as ledger:
        found_packages(place, ledger, by="tester", wait_s=5)
    data = packed(scratch, "PKG-WORLD-001", "1.0.0", world_files())
    with managing(root) as manager:
        manager.install([IncomingArchive(data)], dev=True)
    return root


def tree(root: Path) -> dict[str, Any]:
    """Everything in the tier folders, and what else says what is installed; by path.

    Left out are the journal's empty folder and the lock, which say nothing, and the ledger and the
    head that is kept of it.
    """
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder, name)
            key = path.relative_to(root).as_posix()
            if key in ("HOT/installed/.journal", "HOT/installed/.lock") or key.startswith(
                ("ledger", "HOT/keys/ledger.head", "HOT/keys/ledger.seen")
            ):
                continue
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[key] = ("link", os.readlink(path))
            elif stat.S_ISDIR(mode):
                found[key] = "folder"
            else:
                found[key] = path.read_bytes() if stat.S_ISREG(mode) else "other"
    return found


def governed(root: Path) -> dict[str, Any]:
    """:func:`tree` without what tells of times and entries: what packages brought."""
    return {
        key: value
        for key, value in tree(root).items()
        if not key.startswith(("HOT/registries", "marks", "trust", "remit"))
        and not (key.startswith("HOT/installed/") and key.endswith("receipt.json"))
    }


def agreed(root: Path, ledger: LedgerClient) -> Registry:
    """Files, registries, receipts, kept archives and ledger tell the same; no journal is left."""
    registry = Registry.from_ledger(ledger)
    assert registry.packages
    check_before(registry, RootDisk(root, ledger_path="ledger.db"))
    assert list(root.joinpath("HOT/installed/.journal").iterdir()) == []
    receipts = {one.parent.name for one in root.glob("HOT/installed/PKG-*/receipt.json")}
    folders = {one.name for one in root.glob("HOT/installed/PKG-*")}
    assert receipts == folders == set(registry.packages)
    for name, package in registry.packages.items():
        assert root.joinpath(receipt_path(name)).read_bytes() == receipt_bytes(package)
        assert root.joinpath(archive_path(package)).is_file()
    return registry


def entries(root: Path) -> int:
    """How many entries the ledger has."""
    with opened(root) as ledger:
        return len(ledger.read_all())
