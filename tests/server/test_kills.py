"""Servers that are killed under load: no record lost, none doubled, nothing held.

The long form is ``python -m benchmarks.kills``.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.kills import kills


def test_servers_killed_again_and_again_under_load(target: str, tmp_path: Path) -> None:
    database = target if target.startswith("postgresql://") else ""
    report = kills(tmp_path / "root", number=3, database=database)
    assert report.problems == [], str(report)
