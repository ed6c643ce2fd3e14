"""Packages: signed data that shapes agents, installed all or nothing.

The room owns the format of archives and manifests, signatures and trust, installation and removal,
the registry and the gates. The room owns no agent: the runtime reads installed files.

Invariants: the ledger records an operation before its files move, and a crash leaves the state
before the operation or after it; every file has one owner; an unsigned package installs only with a
recorded waiver.

Start reading in :mod:`remit.packages.manager`. Doors: ``checks`` and ``gates`` check an
installation, ``distribution`` compares running code with its RECORD, ``shipped`` finds Remit's own
packages, ``trust`` stores the trusted keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.contracts import precedence
from remit.kernel import lazy_names
from remit.packages.archive import Archive, canonical_targz, pack, read_archive
from remit.packages.archive_checks import Candidate, IncomingArchive, admit
from remit.packages.config_changes import (
    EDITABLE_INSTALL,
    fitting,
    record_settings,
    record_waiver,
    waived,
)
from remit.packages.dependencies import in_range
from remit.packages.documents import AgentDocument, Framework
from remit.packages.errors import (
    ArchiveError,
    ManifestError,
    PackageError,
    PackageKeyError,
    PackError,
    SignatureError,
    TrustError,
)
from remit.packages.journal import (
    Operation,
    disk_errors,
    file_lock,
    package_lock,
    remove_file,
    replace_file,
)
from remit.packages.manager import PackageManager
from remit.packages.manifest import PLACES, Asset, Dependency, Manifest
from remit.packages.operator_prices import (
    PRICES_FILE,
    RecordedPrices,
    check_prices,
    finish_prices,
    is_staged,
    recorded_prices,
)
from remit.packages.paths import path_problem
from remit.packages.permissions import Permissions, widened_permissions
from remit.packages.prices import (
    RootPrices,
    change_own_prices,
    planned,
    prices_of,
    recorded_prices_of,
)
from remit.packages.registry import (
    LEARNED_PACKAGES,
    InstalledPackage,
    Registry,
    archive_path,
    envelope_path,
    policy_epoch,
    receipt_path,
    require_ownership,
)
from remit.packages.shipped import found_packages, install_shipped
from remit.packages.signatures import check_envelope, read_envelope, sign
from remit.packages.signing_key import PackageKey, public_key
from remit.packages.trust import read_trust
from remit.packages.trust_policy import TrustPolicy

if TYPE_CHECKING:
    from remit.packages.authoring import new_package, update_hashes
    from remit.packages.bootstrap import build_bundle, read_bundle
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "EDITABLE_INSTALL",
    "LEARNED_PACKAGES",
    "PLACES",
    "PRICES_FILE",
    "AgentDocument",
    "Archive",
    "ArchiveError",
    "Asset",
    "Candidate",
    "Dependency",
    "Framework",
    "IncomingArchive",
    "InstalledPackage",
    "Manifest",
    "ManifestError",
    "Operation",
    "PackError",
    "PackageError",
    "PackageKey",
    "PackageKeyError",
    "PackageManager",
    "Permissions",
    "RecordedPrices",
    "Registry",
    "RootPrices",
    "SignatureError",
    "TrustError",
    "TrustPolicy",
    "admit",
    "archive_path",
    "build_bundle",
    "canonical_targz",
    "change_own_prices",
    "check_envelope",
    "check_prices",
    "disk_errors",
    "envelope_path",
    "file_lock",
    "finish_prices",
    "fitting",
    "found_packages",
    "in_range",
    "install_shipped",
    "is_staged",
    "new_package",
    "pack",
    "package_lock",
    "path_problem",
    "planned",
    "policy_epoch",
    "precedence",
    "prices_of",
    "public_key",
    "read_archive",
    "read_bundle",
    "read_envelope",
    "read_trust",
    "receipt_path",
    "record_settings",
    "record_waiver",
    "recorded_prices",
    "recorded_prices_of",
    "remove_file",
    "replace_file",
    "require_ownership",
    "sign",
    "update_hashes",
    "waived",
    "widened_permissions",
]
