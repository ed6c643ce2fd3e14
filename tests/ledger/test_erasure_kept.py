"""What is installed follows from entries whose content is never erased."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import ErasureError, LedgerClient, LedgerEntry, content


def test_what_is_installed_stays(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        long = LedgerEntry(
            "INSTALLED", "PKG-A-001", "INSTALLED", "", [], {"manifest": content("x")}
        )
        kept = ledger.write(long)
        ledger.write(LedgerEntry("NOTE", "n", "d", "", [], {"text": content("a person's words")}))
        with pytest.raises(ErasureError, match="registries are rebuilt"):
            ledger.erase(kept, reason="asked for")
        with pytest.raises(InvalidInputError, match="INSTALLED"):
            ledger.retain({"INSTALLED": 0.0})
        (report,) = ledger.retain({"*": 0.0})
        assert report.values == 1
        assert ledger.read(kept).metadata["manifest"] == "x"
