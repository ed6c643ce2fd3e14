"""``python -m tests.snapshots.refresh``: write the snapshots again; review the diff like code."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.snapshots.declared import declared
from tests.snapshots.observed import observed

FILES = Path(__file__).parent / "files"


def kept() -> dict[str, str]:
    """Return the snapshots of the repository, by file name."""
    return {
        path.relative_to(FILES).as_posix(): path.read_text(encoding="utf-8")
        for path in FILES.rglob("*.*")
    }


def refresh() -> None:
    """Write every snapshot, and remove those that nothing makes any more."""
    with tempfile.TemporaryDirectory() as place:
        made = {**declared(Path(place)), **observed(Path(place))}
    for name in kept().keys() - made.keys():
        (FILES / name).unlink()
    for name, text in made.items():
        (FILES / name).parent.mkdir(parents=True, exist_ok=True)
        (FILES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refresh()
