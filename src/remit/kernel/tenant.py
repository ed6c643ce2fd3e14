"""Tenant roots: a file in the root names the tenant and the place of its ledger."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from remit.kernel.errors import RemitError

# Earlier names, for programs that catch them; they end with version 1.0.
TenantError = RemitError

TENANTS = "tenants"
"""The folder of a host's root that holds the roots of its tenants, each by its name."""

HOST = "host"
"""The value of :attr:`TenantFile.database` for the host's database, whatever its address."""

_FILE = "tenant.json"
_MOVING = "moving.json"
_REMOVING = "removing.json"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)
_ORIGIN = re.compile(rf".+/{TENANTS}/({_NAME.pattern})(?:/fork-[1-9][0-9]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TenantFile:
    """The content of the file ``tenant.json`` of a tenant's root; immutable.

    :meth:`read` reads the file; nothing here writes it. Static methods give the paths of the file
    and of the plans of a move or removal.

    Attributes:
        name: name of the tenant.
        origin: origin of the tenant's log, without forks.
        database: the PostgreSQL database of the ledger; :data:`HOST` for the host's own; empty for
            a file.
        ledger: the schema in that database; or the file, relative to the root or absolute.
        ready: True once the tenant is completely made.
    """

    name: str
    origin: str
    database: str
    ledger: str
    ready: bool = True

    @classmethod
    def read(cls, root: Path, *, to_open: bool = False) -> Self | None:
        """Return the tenant file of a root; ``None`` if the root has none and so is not a tenant's.

        The tenant's name is compared with the log's, not with the folder's name.

        Args:
            root: directory of the root.
            to_open: True to refuse, before anything else, a tenant that is being moved or removed.

        Raises:
            RemitError: the file cannot be read, is damaged or names another tenant's log; or the
                tenant is being moved or removed and ``to_open`` is True.
        """
        path = root / _FILE
        if to_open and cls.is_held_back(root):
            doing = "moved" if cls.moving_path(root).exists() else "removed"
            raise RemitError(
                f"The tenant {root.name} is being {doing}, so its ledger cannot be opened.",
                next_step="Wait until the operation is done. If it was interrupted, run `remit "
                "tenant list` on the host, which undoes or completes it.",
            )
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise RemitError(f"{path} cannot be read: {error}.") from error
        try:
            found = cls.of(json.loads(text))
        except (ValueError, TypeError) as error:
            raise RemitError(
                f"{path} is damaged: it does not say where the tenant's ledger is.",
                next_step="Keep a copy of the file, and restore it from a backup of this root.",
            ) from error
        if tenant_of_origin(found.origin) != found.name:
            raise RemitError(
                f"{path} does not belong to the tenant {found.name[:40]!r}: it names the log "
                f"{found.origin[:200]!r}.",
                next_step="Keep a copy of the file, and restore it from a backup of this root.",
            )
        return found

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the record in a JSON value.

        Whether the origin is the tenant's is not checked.

        Args:
            value: the parsed content of a tenant file.

        Raises:
            TypeError: the value is no object, a member other than ``ready`` is missing, unknown or
                not a text, or ``database`` is neither empty, ``host`` nor a URL.
        """
        found = cls(**value)
        names = {field.name for field in fields(cls)} - {"ready"}
        if not all(type(getattr(found, name)) is str for name in names):
            raise TypeError
        if found.database not in ("", HOST) and "://" not in found.database:
            raise TypeError
        return found

    @classmethod
    def planned(cls, value: Any, root: Path) -> Self:
        """Return the record in the value of a plan to move or remove a tenant.

        Args:
            value: a JSON value from the plan.
            root: directory of the tenant's root, whose name is the tenant's.

        Raises:
            TypeError: the value does not have the members of a tenant file.
            ValueError: the plan, or the origin in it, names another tenant than the root.
        """
        found = cls.of(value)
        if not found.name == tenant_of_origin(found.origin) == root.name:
            raise ValueError(f"it does not belong to the tenant {root.name}")
        return found

    @staticmethod
    def path(root: Path) -> Path:
        """Return the path of the tenant file, ``tenant.json``, in a root; the file need not exist.

        Args:
            root: directory of the root.
        """
        return root / _FILE

    @staticmethod
    def moving_path(root: Path) -> Path:
        """Return the path of a move's plan, ``moving.json``, which exists while the ledger is
        moved.

        Args:
            root: directory of the tenant's root.
        """
        return root / _MOVING

    @staticmethod
    def removing_path(root: Path) -> Path:
        """Return the path of a removal's plan, ``removing.json``, which exists during the removal.

        Args:
            root: directory of the tenant's root.
        """
        return root / _REMOVING

    @classmethod
    def is_held_back(cls, root: Path) -> bool:
        """Return True if the tenant is being moved or removed: a plan lies in the root.

        Args:
            root: directory of the tenant's root.
        """
        return cls.moving_path(root).exists() or cls.removing_path(root).exists()

    def encoded(self) -> bytes:
        """Return the content of the file: JSON in UTF-8. Nothing is written."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    def ledger_path(self, host_path: str) -> str:
        """Return the path or URL of the tenant's ledger, in the form of ``[ledger] path``.

        A path is relative to the tenant's root or absolute. A URL names the schema in its query.

        Args:
            host_path: ``[ledger] path`` of the host's root; used only for a ledger in the host's
                database.

        Raises:
            RemitError: the ledger is in the host's database, and the host names none.
        """
        if not self.database:
            return self.ledger
        database = host_path if self.database == HOST else self.database
        if "://" not in database:
            raise RemitError(
                f"The ledger of the tenant {self.name} is in the database of its host, and neither "
                "REMIT_DATABASE_URL nor the host's [ledger] path names one.",
                next_step="Set REMIT_DATABASE_URL to the database of the host.",
            )
        return with_schema(database, self.ledger)


def is_name(name: str) -> bool:
    """Return True if a tenant can have this name.

    A name has 1 to 32 lower-case letters, digits and hyphens, with no hyphen at either end.

    Args:
        name: the candidate.
    """
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return a tenant's name unchanged; raise RemitError if :func:`is_name` is False.

    Args:
        name: the candidate.
    """
    if not is_name(name):
        raise RemitError(
            f"{name[:40]!r} is not a valid tenant name.",
            next_step="Use 1 to 32 lower-case letters, digits and hyphens, such as acme-eu.",
        )
    return name


def tenant_of_origin(origin: str) -> str:
    """Return the tenant whose log has this origin; empty if the origin is not a tenant's.

    A tenant's origin ends with ``/tenants/NAME``; that of a fork, with ``/tenants/NAME/fork-2``.

    Args:
        origin: origin of a log.
    """
    found = _ORIGIN.fullmatch(origin)
    return found[1] if found else ""


def with_schema(url: str, schema: str) -> str:
    """Return a PostgreSQL URL with ``search_path`` set to a schema, at the end of the query.

    Other parts stay; every existing ``search_path`` is dropped.

    Args:
        url: a PostgreSQL URL, with or without a query.
        schema: name of the schema, inserted unchanged.
    """
    base, _, query = url.partition("?")
    kept = [item for item in query.split("&") if item and not item.startswith("search_path=")]
    return f"{base}?{'&'.join([*kept, f'search_path={schema}'])}"
