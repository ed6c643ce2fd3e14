"""Checks of packages and their files, for gates and installations.

A check yields a :class:`Finding` for each fault, and nothing if there is none. A missing or
unreadable file is a finding, not an error.
"""

from remit.packages.checks.acceptance import check_acceptance
from remit.packages.checks.attestation import check_attestation
from remit.packages.checks.files import Finding, RootDisk
from remit.packages.checks.ownership import (
    check_modules,
    check_ownership,
    check_registries,
    check_running_code,
)
from remit.packages.checks.permissions import (
    allows_named,
    boundary_model,
    check_ceilings,
    reserved_agents,
)
from remit.packages.checks.resolution import (
    check_completeness,
    check_dependencies,
    check_installed,
    check_places,
    check_resolution,
)
from remit.packages.checks.view import PackageView

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
