"""Packages: data that shapes agents, declared, signed, installed all or nothing."""

from remit.packages.admission import Candidate, IncomingArchive, admit
from remit.packages.archive import Archive, pack, read_archive
from remit.packages.errors import (
    ArchiveError,
    ManifestError,
    PackageError,
    PackageKeyError,
    PackError,
    SignatureError,
)
from remit.packages.files import replace_file
from remit.packages.learned import LEARNED_PACKAGES, policy_epoch
from remit.packages.lock import file_lock
from remit.packages.manager import PackageManager
from remit.packages.manifest import Asset, Dependency, Manifest, Permissions
from remit.packages.package_key import PackageKey
from remit.packages.paths import path_problem
from remit.packages.prices_record import (
    PRICES_FILE,
    PriceChange,
    PriceFile,
    RecordedPrices,
    change_prices,
    check_prices,
    finish_prices,
    is_staged,
    recorded_prices,
)
from remit.packages.registry import (
    REGISTRY_FOLDER,
    InstalledPackage,
    Owner,
    Registry,
    require_ownership,
)
from remit.packages.settings_record import fitting, record_settings, recorded_settings
from remit.packages.shipped import found_packages, install_shipped, shipped_archives
from remit.packages.signatures import read_envelope, sign
from remit.packages.trust import TrustPolicy, read_trust
from remit.packages.verification import check_envelope
from remit.packages.versions import in_range, precedence
from remit.packages.waivers import EDITABLE_INSTALL, record_waiver, waived

__all__ = [
    "EDITABLE_INSTALL",
    "LEARNED_PACKAGES",
    "PRICES_FILE",
    "REGISTRY_FOLDER",
    "Archive",
    "ArchiveError",
    "Asset",
    "Candidate",
    "Dependency",
    "IncomingArchive",
    "InstalledPackage",
    "Manifest",
    "ManifestError",
    "Owner",
    "PackError",
    "PackageError",
    "PackageKey",
    "PackageKeyError",
    "PackageManager",
    "Permissions",
    "PriceChange",
    "PriceFile",
    "RecordedPrices",
    "Registry",
    "SignatureError",
    "TrustPolicy",
    "admit",
    "change_prices",
    "check_envelope",
    "check_prices",
    "file_lock",
    "finish_prices",
    "fitting",
    "found_packages",
    "in_range",
    "install_shipped",
    "is_staged",
    "pack",
    "path_problem",
    "policy_epoch",
    "precedence",
    "read_archive",
    "read_envelope",
    "read_trust",
    "record_settings",
    "record_waiver",
    "recorded_prices",
    "recorded_settings",
    "replace_file",
    "require_ownership",
    "shipped_archives",
    "sign",
    "waived",
]
