"""The plan of a move of a tenant's ledger, as a file in the tenant's root holds it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from remit.kernel.root import Root
from remit.kernel.tenant import TenantError, TenantFile
from remit.ledger.keyfiles import write_over

__all__ = ["MovePlan", "old_plans"]


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A move: ``moving.json`` while it is made, ``moved-ID.json`` until the old ledger is removed.

    Attributes:
        before: where the ledger was.
        after: where it goes.
        move_id: of this move.
    """

    before: TenantFile
    after: TenantFile
    move_id: str

    @property
    def aside(self) -> TenantFile:
        """The old ledger, while it is moved and from then on."""
        end = f"_moved_{self.move_id}" if self.before.database else f".moved-{self.move_id}"
        return replace(self.before, ledger=f"{self.before.ledger}{end}")

    @property
    def mark(self) -> str:
        """The comment of a schema that this move made."""
        return f"remit tenant {self.after.origin} move {self.move_id}"

    @property
    def kept_as(self) -> str:
        """The name of the file that holds it once the move is done."""
        return f"moved-{self.move_id}.json"

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """That in a file; ``None`` where there is no such file; raises :class:`TenantError` where
        it is damaged."""
        try:
            plan = json.loads(path.read_text("utf-8"))
            return cls(TenantFile(**plan["before"]), TenantFile(**plan["after"]), plan["move_id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TenantError(f"{path} cannot be read: {error}.") from error

    def write(self, path: Path) -> None:
        """Write it, durably; raises :class:`TenantError` where it cannot be written."""
        data = json.dumps(asdict(self), indent=1).encode() + b"\n"
        try:
            write_over(path, data, 0o600)  # an address may hold a password
        except OSError as error:
            raise TenantError(f"{path} cannot be written: {error.strerror or error}.") from error


def old_plans(root: Root) -> list[MovePlan]:
    """The moves of a tenant whose old ledgers were not removed yet.

    Raises:
        TenantError: a file is damaged.
    """
    found = (MovePlan.read(path) for path in sorted(root.path.glob("moved-*.json")))
    return [plan for plan in found if plan is not None]
