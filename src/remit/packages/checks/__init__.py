"""What gates and installations check of packages and their files (SPEC 10).

A check gives a :class:`Checked`: findings, and how much was looked at. It raises nothing for what
it looks at; a file that is missing or cannot be read is a finding.
"""

from remit.packages.checks.acceptance import check_acceptance
from remit.packages.checks.agents import (
    boundary_model,
    check_agents,
    check_contracts,
    reserved_agents,
)
from remit.packages.checks.attestation import check_attestation
from remit.packages.checks.ceilings import check_ceilings
from remit.packages.checks.completeness import check_completeness, check_places
from remit.packages.checks.dependencies import check_dependencies
from remit.packages.checks.files import Files, Overlay, RootDisk, reserved
from remit.packages.checks.finding import Checked, Finding
from remit.packages.checks.ownership import (
    RunningCode,
    check_modules,
    check_ownership,
    check_registries,
    check_running_code,
)
from remit.packages.checks.patterns import allows_model, allows_named, allows_path, budget_problem
from remit.packages.checks.resolution import Resolved, check_resolution, resolve
from remit.packages.checks.shapes import Shapes, read_shapes

__all__ = [
    "Checked",
    "Files",
    "Finding",
    "Overlay",
    "Resolved",
    "RootDisk",
    "RunningCode",
    "Shapes",
    "allows_model",
    "allows_named",
    "allows_path",
    "boundary_model",
    "budget_problem",
    "check_acceptance",
    "check_agents",
    "check_attestation",
    "check_ceilings",
    "check_completeness",
    "check_contracts",
    "check_dependencies",
    "check_modules",
    "check_ownership",
    "check_places",
    "check_registries",
    "check_resolution",
    "check_running_code",
    "read_shapes",
    "reserved",
    "reserved_agents",
    "resolve",
]
