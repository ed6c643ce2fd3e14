"""``python -m tests.snapshots.refresh [FOLDER]``: write the snapshots; review the diff."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.snapshots.declared import declared
from tests.snapshots.observed import observed

FILES = Path(__file__).parent / "files"


def kept(folder: Path = FILES) -> dict[str, str]:
    """Return the snapshots in a folder, by file name."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.*")
    }


def refresh(folder: Path) -> None:
    """Write every snapshot, and remove those that nothing makes any more."""
    with tempfile.TemporaryDirectory() as place:
        made = {**declared(Path(place)), **observed(Path(place))}
    for name in kept(folder).keys() - made.keys():
        (folder / name).unlink()
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refresh(Path(sys.argv[1]) if sys.argv[1:] else FILES)
