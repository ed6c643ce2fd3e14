"""Packages that need one another: there, in range, and not in a circle (SPEC 10)."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from remit.packages.checks.finding import Checked, Finding
from remit.packages.dependencies import unmet
from remit.packages.registry import Registry

__all__ = ["check_dependencies"]


def check_dependencies(registry: Registry) -> Checked:
    """Every dependency is installed in a version that its range allows; there is no circle.

    A package that takes the place of another does not stand beside it.

    Args:
        registry: what is installed.
    """
    findings: list[Finding] = []
    needed = 0
    manifests = {name: one.manifest for name, one in registry.packages.items()}
    for package_id, package in registry.packages.items():
        needed += len(package.manifest.dependencies)
        for _, problem in unmet(package.manifest, manifests):
            fix = "Install a version of it that fits, or remove what needs it."
            findings.append(Finding(problem, fix, package_id))
        for other in package.manifest.supersedes:
            if other in registry.packages:
                problem = f"{package_id} takes the place of {other}, which is still installed."
                findings.append(Finding(problem, f"Remove {other}.", package_id))
    circle = _circle(registry)
    if circle:
        problem = f"Packages need one another in a circle: {' → '.join(circle)}."
        findings.append(Finding(problem, "Take one of these dependencies out.", circle[0]))
    return Checked(findings, {"dependencies": needed})


def _circle(registry: Registry) -> list[str]:
    """One circle, its first package at both ends; empty where there is none."""
    graph = {
        name: [need.package_id for need in package.manifest.dependencies]
        for name, package in registry.packages.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))  # graphlib lists each node before those it precedes
    return []
