"""Packages that need one another: there, in range, and not in a circle (SPEC 10)."""

from __future__ import annotations

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
            mend = "Install a version of it that fits, or remove what needs it."
            findings.append(Finding(problem, mend, package_id))
        for other in package.manifest.supersedes:
            if other in registry.packages:
                told = f"{package_id} takes the place of {other}, which is still installed."
                findings.append(Finding(told, f"Remove {other}.", package_id))
    circle = _circle(registry)
    if circle:
        told = f"Packages need one another in a circle: {' → '.join(circle)}."
        findings.append(Finding(told, "Take one of these dependencies out.", circle[0]))
    return Checked(findings, {"dependencies": needed})


def _circle(registry: Registry) -> list[str]:
    """One circle, its first package at both ends; empty where there is none."""
    done: set[str] = set()
    for start in registry.packages:
        # Depth first, without recursion: chains may be as long as there are packages.
        way: list[str] = []
        stack = [(start, False)]
        while stack:
            package_id, leaving = stack.pop()
            if leaving:
                way.pop()
                done.add(package_id)
            elif package_id in way:
                return [*way[way.index(package_id) :], package_id]
            elif package_id not in done and package_id in registry.packages:
                way.append(package_id)
                stack.append((package_id, True))
                stack += [
                    (one.package_id, False)
                    for one in registry.packages[package_id].manifest.dependencies
                ]
    return []
