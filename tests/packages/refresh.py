"""``make packages``: states anew what follows from the shipped packages' files and from the code.

The events in the vocabulary, the list of schemas, the hashes in every manifest, and the table of
``docs/packages-shipped.md``. A package whose content changes gets a new version by hand.
"""

from __future__ import annotations

import json
from pathlib import Path

from remit.ledger import EVENTS
from remit.packages.authoring import update_hashes
from tests.packages.shipped import SHIPPED
from tests.packages.test_shipped_content import _table

_PAGE = Path(__file__).parents[2] / "docs" / "packages-shipped.md"
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
    for package in sorted(SHIPPED.iterdir()):
        update_hashes(package)
    page = _PAGE.read_text()
    head, rest = page.split(_BEGIN)
    _PAGE.write_text(f"{head}{_BEGIN}" + "\n".join(_table()) + f"\n{_END}{rest.split(_END)[1]}")


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
