"""What came of installing a bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

__all__ = ["GateLine", "InstallReport", "Installer", "ReceiptLine"]


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """One package that is installed now.

    Attributes:
        receipt: where its receipt lies, relative to the root.
    """

    package_id: str
    version: str
    receipt: str


@dataclass(frozen=True, slots=True)
class GateLine:
    """What one gate said."""

    gate: str
    passed: bool
    message: str
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstallReport:
    """The root as it stands after the installation."""

    receipts: tuple[ReceiptLine, ...]
    gates: tuple[GateLine, ...]

    @property
    def passed(self) -> bool:
        """Whether something was installed and every gate passed."""
        return bool(self.receipts and self.gates) and all(one.passed for one in self.gates)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"passed": self.passed, **asdict(self)}

    def lines(self) -> list[str]:
        """For people: a line for each receipt and each gate, and what is wrong."""
        wide = max((len(one.package_id) for one in self.receipts), default=0)
        found = [f"{one.package_id:<{wide}}  {one.version}  {one.receipt}" for one in self.receipts]
        for one in self.gates:
            found.append(f"{'ok  ' if one.passed else 'FAIL'}  {one.gate}: {one.message}")
            found += [f"      {error}" for error in one.errors]
        count = sum(one.passed for one in self.gates)
        found.append(f"{len(self.receipts)} packages installed, gates {count}/{len(self.gates)}")
        return found


class Installer(Protocol):
    """Installs archives into a root, all or none, and runs every gate."""

    def __call__(self, root: Path, archives: Sequence[Path], dev: bool) -> InstallReport:
        """Install.

        Args:
            root: where; made when it is not there.
            archives: files, each after those that it needs.
            dev: let unsigned packages pass; their record says so.

        Raises:
            PackageError: nothing was changed.
        """
        ...
