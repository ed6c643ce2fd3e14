"""Plans of moves and removals, as files in a tenant's root hold them while they are carried out."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from remit.kernel.errors import RemitError
from remit.kernel.files import write_over
from remit.kernel.root import Root
from remit.kernel.tenant import TenantFile

__all__ = ["MovePlan", "RemovalPlan", "old_plans", "read_plan", "save"]

_ID = re.compile("[0-9a-f]{8}", re.ASCII)


class _Plan(Protocol):
    @classmethod
    def of(cls, said: Any, root: Path) -> Self: ...


_P = TypeVar("_P", bound=_Plan)


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

    @classmethod
    def of(cls, said: Any, root: Path) -> Self:
        """Return the plan that JSON in a tenant's root says; raise ValueError if it is none."""
        if not _ID.fullmatch(said["move_id"]):  # it is part of names of files and schemas
            raise ValueError("its move_id is none")
        before, after = (TenantFile.planned(said[one], root) for one in ("before", "after"))
        return cls(before, after, said["move_id"])

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
        """The name of the file that holds the plan once the move is done."""
        return f"moved-{self.move_id}.json"


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """A removal: ``removing.json`` until it is done or undone."""

    file: TenantFile
    removal_id: str
    by: str

    @classmethod
    def of(cls, said: Any, root: Path) -> Self:
        """Return the plan that JSON in a tenant's root says; raise ValueError if it is none."""
        file = TenantFile.planned(said["file"], root)
        return cls(file, str(said["removal_id"]), str(said["by"]))


def read_plan(kind: type[_P], path: Path) -> _P | None:
    """Return the plan in a file of a tenant's root; ``None`` if there is no such file.

    Raises:
        RemitError: the file is damaged, or of another tenant.
    """
    try:
        return kind.of(json.loads(path.read_text("utf-8")), path.parent)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RemitError(f"{path} cannot be read: {error}.") from error


def save(record: MovePlan | RemovalPlan | TenantFile, path: Path) -> None:
    """Write a plan or a tenant's file, durably, in one step.

    Raises:
        RemitError: it cannot be written.
    """
    try:  # an address may hold a password
        write_over(path, json.dumps(asdict(record), indent=1).encode() + b"\n", 0o600)
    except OSError as error:
        raise RemitError(f"{path} cannot be written: {error.strerror or error}.") from error


def old_plans(root: Root) -> list[MovePlan]:
    """Return the moves of a tenant whose old ledgers were not removed yet.

    Raises:
        RemitError: a file is damaged.
    """
    plans = []
    for path in sorted(root.path.glob("moved-*.json")):
        if (plan := read_plan(MovePlan, path)) is None:
            continue
        if plan.kept_as != path.name:
            raise RemitError(f"{path} belongs to another move.")
        plans.append(plan)
    return plans
