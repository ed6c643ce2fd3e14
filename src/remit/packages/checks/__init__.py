"""Checks of packages and their files, for gates and installations.

A check yields a :class:`Finding` for each fault, and nothing if there is none. A missing or
unreadable file is a finding, not an error.
"""

from remit.packages.checks.g0b_ownership import (
    check_modules,
    check_ownership,
    check_registries,
    check_running_code,
)
from remit.packages.checks.g1_resolution import (
    check_completeness,
    check_dependencies,
    check_installed,
    check_places,
    check_resolution,
)
from remit.packages.checks.g4_acceptance import check_acceptance
from remit.packages.checks.g5_attestation import check_attestation
from remit.packages.checks.package_view import PackageView
from remit.packages.checks.permissions import (
    allows_named,
    boundary_model,
    check_ceilings,
    reserved_agents,
)
from remit.packages.checks.root_disk import Finding, RootDisk

__all__ = [
    "Finding",
    "PackageView",
    "RootDisk",
    "allows_named",
    "boundary_model",
    "check_acceptance",
    "check_attestation",
    "check_ceilings",
    "check_completeness",
    "check_dependencies",
    "check_installed",
    "check_modules",
    "check_ownership",
    "check_places",
    "check_registries",
    "check_resolution",
    "check_running_code",
    "reserved_agents",
]
