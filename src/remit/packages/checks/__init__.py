"""Checks of packages and their files, for gates and installations.

A check yields a :class:`Finding` for each fault, and nothing if there is none. A missing or
unreadable file is a finding, not an error.
"""

from remit.packages.checks.g0b_ownership import (
    check_modules as check_modules,
    check_ownership as check_ownership,
    check_registries as check_registries,
    check_running_code as check_running_code,
)
from remit.packages.checks.g1_resolution import (
    check_completeness as check_completeness,
    check_dependencies as check_dependencies,
    check_installed as check_installed,
    check_places as check_places,
    check_resolution as check_resolution,
)
from remit.packages.checks.g4_acceptance import check_acceptance as check_acceptance
from remit.packages.checks.g5_attestation import check_attestation as check_attestation
from remit.packages.checks.package_view import PackageView as PackageView
from remit.packages.checks.permissions import (
    allows_named as allows_named,
    boundary_model as boundary_model,
    check_ceilings as check_ceilings,
    reserved_agents as reserved_agents,
)
from remit.packages.checks.root_disk import Finding as Finding, RootDisk as RootDisk
