"""Permissions of packages under the ceilings of their frameworks (SPEC 10)."""

from __future__ import annotations

from remit.packages.checks.finding import Checked, Finding
from remit.packages.checks.patterns import allows_path, budget_problem
from remit.packages.checks.resolution import Resolved
from remit.packages.permissions import permits
from remit.packages.registry import Registry

__all__ = ["check_ceilings"]


def check_ceilings(registry: Registry, found: Resolved) -> Checked:
    """No package is permitted more than its framework lets it.

    A package that brings an agent and may ask models states the budgets for which its framework
    has a ceiling: without one there would be no limit.

    Args:
        registry: what is installed.
        found: what :func:`~remit.packages.checks.resolve` gave; a package whose framework cannot
            be used does not pass.
    """
    findings: list[Finding] = []
    for package_id, package in registry.packages.items():
        manifest, framework = package.manifest, found.framework_of(registry, package_id)
        if framework is None:
            problem = (
                f"What {package_id} may be permitted is not known: {manifest.framework_id} is "
                "not installed, or cannot be used."
            )
            findings.append(Finding(problem, "Install the package that brings it.", package_id))
            continue
        granted, ceilings = manifest.permissions, framework.permissions
        above = [f"the tool {one}" for one in granted.tools if not permits(ceilings.tools, one)]
        above += [f"the model {one}" for one in granted.models if not permits(ceilings.models, one)]
        above += [
            f"the path {one}" for one in granted.paths if not allows_path(ceilings.paths, one)
        ]
        fix = f"Take it out of the package's permissions, or widen {framework.framework_id}."
        for what in above:
            problem = (
                f"{package_id} is permitted {what}, which {framework.framework_id} does not let."
            )
            findings.append(Finding(problem, fix, package_id))
        asks = granted.models and any(one.classification == "agent" for one in manifest.assets)
        for name in ("token_budget", "usd_budget"):
            value = granted.budgets.get(name)
            if value is None and not asks:
                continue
            if problem := budget_problem(ceilings.budgets, name, value):
                problem = f"{package_id} {problem} by {framework.framework_id}."
                findings.append(Finding(problem, fix, package_id))
    return Checked(findings, {"packages": len(registry.packages)})
