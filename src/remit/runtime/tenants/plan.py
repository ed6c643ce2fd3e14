"""The plan of a move of a tenant's ledger, as a file in the tenant's root holds it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from remit.kernel.errors import RemitError
from remit.kernel.files import write_over
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile

__all__ = ["MovePlan", "old_plans"]

_ID = re.compile("[0-9a-f]{8}", re.ASCII)


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
        """That in a file of a tenant's root; ``None`` where there is no such file; raises
        :class:`RemitError` where it is damaged, or of another tenant."""
        try:
            said, root = json.loads(path.read_text("utf-8")), path.parent
            before, after = (TenantFile.planned(said[one], root) for one in ("before", "after"))
            plan = cls(before, after, said["move_id"])
            if not _ID.fullmatch(plan.move_id):  # it is part of names of files and schemas
                raise ValueError("its move_id is none")
            return plan
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RemitError(f"{path} cannot be read: {error}.") from error

    def write(self, path: Path) -> None:
        """Write it, durably; raises :class:`RemitError` where it cannot be written."""
        data = json.dumps(asdict(self), indent=1).encode() + b"\n"
        try:
            write_over(path, data, 0o600)  # an address may hold a password
        except OSError as error:
            raise RemitError(f"{path} cannot be written: {error.strerror or error}.") from error


def old_plans(root: Root) -> list[MovePlan]:
    """The moves of a tenant whose old ledgers were not removed yet.

    Raises:
        RemitError: a file is damaged.
    """
    found = {path: MovePlan.read(path) for path in sorted(root.path.glob("moved-*.json"))}
    for path, plan in found.items():
        if plan is not None and plan.kept_as != path.name:
            raise RemitError(f"{path} cannot be read: it is the plan of another move.")
    return [plan for plan in found.values() if plan is not None]
