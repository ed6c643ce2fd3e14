"""``make packages``: rewrite what follows from the shipped packages' files and from the code.

The events in the vocabulary, the list of schemas, the hashes in every manifest, the table of
``docs/packages-shipped.md``, and the versions: a package whose content differs from what the last
commit recorded for its version gets the next patch version.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from remit.ledger import EVENTS
from remit.packages import Archive, Manifest, update_hashes
from tests.packages.shipped import RECORD, SHIPPED, read_versions
from tests.packages.test_shipped_content import _table

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "packages-shipped.md"
_BEGIN, _END = "<!-- packages -->\n", "<!-- /packages -->"


def main() -> None:
    """Write all of it."""
    words = SHIPPED / "PKG-VOCABULARY-001/HOT/documents/vocabulary.json"
    vocabulary = json.loads(words.read_text())
    vocabulary["events"] = [{"event": e.name, "meaning": e.meaning} for e in EVENTS.values()]
    _write(words, vocabulary)
    file = SHIPPED / "PKG-PHASE2-SCHEMAS-001/HOT/specs/SPEC-PHASE2-SCHEMAS-001.json"
    spec = json.loads(file.read_text())
    schemas = (file.parents[1] / "schemas").iterdir()
    spec["schemas"] = sorted(f"HOT/schemas/{one.name}" for one in schemas)
    _write(file, spec)
    record_versions(SHIPPED, _committed(), RECORD)
    page = _PAGE.read_text()
    head, rest = page.split(_BEGIN)
    _PAGE.write_text(f"{head}{_BEGIN}" + "\n".join(_table()) + f"\n{_END}{rest.split(_END)[1]}")


def record_versions(packages: Path, committed: dict[str, dict[str, list[str]]], file: Path) -> None:
    """Give every package whose content changed the next patch version, and write the record.

    Args:
        packages: directory of the shipped packages.
        committed: the record of the last commit, whose versions are final.
        file: where the new record is written.
    """
    record = {name: dict(versions) for name, versions in committed.items()}
    for package in sorted(packages.iterdir()):
        manifest, digest = _digest(package)
        versions = record.setdefault(package.name, {})
        while versions.get(manifest.version, [digest]) != [digest]:
            _raise(package, manifest)
            manifest, digest = _digest(package)
        versions[manifest.version] = [digest]
    file.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")


def _digest(package: Path) -> tuple[Manifest, str]:
    manifest = update_hashes(package)
    return manifest, Archive.from_directory(package).digest


def _raise(package: Path, manifest: Manifest) -> None:
    """Write the next patch version into a package's manifest."""
    file = package / "manifest.json"
    major, minor, patch = manifest.version.split(".")
    raised = f"{major}.{minor}.{int(patch) + 1}"
    _write(file, {**json.loads(file.read_text()), "version": raised})
    print(f"{package.name}: {manifest.version} became {raised}, as its content changed.")


def _committed() -> dict[str, dict[str, list[str]]]:
    """Return the record of the last commit."""
    shown = ["git", "-C", _ROOT, "show", f"HEAD:{RECORD.relative_to(_ROOT).as_posix()}"]
    return read_versions(subprocess.run(shown, capture_output=True, check=True).stdout)


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
