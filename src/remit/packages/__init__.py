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

from remit.contracts import precedence as precedence
from remit.kernel import lazy_names
from remit.packages.archive import (
    Archive as Archive,
    canonical_targz as canonical_targz,
    pack as pack,
    read_archive as read_archive,
)
from remit.packages.archive_checks import (
    Candidate as Candidate,
    IncomingArchive as IncomingArchive,
    admit as admit,
)
from remit.packages.config_changes import (
    EDITABLE_INSTALL as EDITABLE_INSTALL,
    fitting as fitting,
    record_settings as record_settings,
    record_waiver as record_waiver,
    recorded_settings as recorded_settings,
    waived as waived,
)
from remit.packages.dependencies import in_range as in_range
from remit.packages.documents import AgentDocument as AgentDocument, Framework as Framework
from remit.packages.errors import (
    ArchiveError as ArchiveError,
    ManifestError as ManifestError,
    PackageError as PackageError,
    PackageKeyError as PackageKeyError,
    PackError as PackError,
    SignatureError as SignatureError,
    TrustError as TrustError,
)
from remit.packages.journal import (
    Operation as Operation,
    disk_errors as disk_errors,
    file_lock as file_lock,
    package_lock as package_lock,
    remove_file as remove_file,
    replace_file as replace_file,
)
from remit.packages.manager import PackageManager as PackageManager
from remit.packages.manifest import (
    PLACES as PLACES,
    Asset as Asset,
    Dependency as Dependency,
    Manifest as Manifest,
)
from remit.packages.operator_prices import (
    PRICES_FILE as PRICES_FILE,
    PriceChange as PriceChange,
    PriceFile as PriceFile,
    RecordedPrices as RecordedPrices,
    change_prices as change_prices,
    check_prices as check_prices,
    finish_prices as finish_prices,
    is_staged as is_staged,
    recorded_prices as recorded_prices,
)
from remit.packages.paths import path_problem as path_problem
from remit.packages.permissions import (
    Permissions as Permissions,
    widened_permissions as widened_permissions,
)
from remit.packages.prices import (
    RootPrices as RootPrices,
    change_own_prices as change_own_prices,
    planned as planned,
    prices_of as prices_of,
    recorded_prices_of as recorded_prices_of,
)
from remit.packages.registry import (
    LEARNED_PACKAGES as LEARNED_PACKAGES,
    REGISTRY_FOLDER as REGISTRY_FOLDER,
    InstalledPackage as InstalledPackage,
    Owner as Owner,
    Registry as Registry,
    archive_path as archive_path,
    envelope_path as envelope_path,
    policy_epoch as policy_epoch,
    receipt_path as receipt_path,
    require_ownership as require_ownership,
)
from remit.packages.shipped import (
    found_packages as found_packages,
    install_shipped as install_shipped,
    shipped_archives as shipped_archives,
)
from remit.packages.signatures import (
    check_envelope as check_envelope,
    read_envelope as read_envelope,
    sign as sign,
)
from remit.packages.signing_key import PackageKey as PackageKey, public_key as public_key
from remit.packages.trust import TrustPolicy as TrustPolicy, read_trust as read_trust

if TYPE_CHECKING:
    from remit.packages.authoring import new_package as new_package, update_hashes as update_hashes
    from remit.packages.bootstrap import build_bundle as build_bundle, read_bundle as read_bundle
else:
    __getattr__ = lazy_names(__name__)
