"""A virtual key as it is stored; its secret is not."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from remit.gateway.auth.errors import AuthUnavailableError
from remit.gateway.auth.identity import ROLES, Grant, Identity
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError
from remit.ledger import AFTER_DAMAGE, Transaction

_Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_PREFIX = "sk-remit-"
_SECRET_BYTES = 32
_SECRET_CHARS = 43  # of them, as base64url without padding
_SHOWN_CHARS = 4  # of the secret
_MAX_CHARS = 128
_TIERS = ("hot", "ho2", "ho1")
_ID_PREFIX = "KEY-"
_ID_CHARS = 16
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_HOSTS_CHARS = len(_PREFIX) + _SECRET_CHARS
MOST_KEY_CHARS = _HOSTS_CHARS + 33
"""No key is longer: the prefix; for a tenant's its name and ``_``; the secret."""


def duration_of(text: str) -> timedelta:
    """``30d``, ``12h``, ``15m``, ``90s``.

    Raises:
        InvalidInputError: it is none of these.
    """
    if (found := _DURATION.fullmatch(text)) is None:
        raise InvalidInputError(
            f"{text!r} is not a duration.", next_step="Write 30d, 12h, 15m or 90s."
        )
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def expiry_of(text: str) -> datetime:
    """A duration from now, or an ISO date or time; without a zone it is UTC.

    Raises:
        InvalidInputError: it is neither.
    """
    try:
        if _DURATION.fullmatch(text):
            return datetime.now(UTC) + duration_of(text)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{text!r} is not a valid expiry.",
            next_step="Write 30d or 12h, or a date such as 2027-01-31T00:00:00Z.",
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made: the only time that its secret is shown.

    Attributes:
        key_id: names it for good; not secret.
        name: what people call it.
        key: the secret, ``sk-remit-…``.
    """

    key_id: str
    name: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class VirtualKey(Grant):
    """What may be shown of a key. Times are ISO 8601, UTC; empty where there is none.

    Its ``key_id`` stays over rotations; only one key that is not revoked has its ``name``.

    Attributes:
        prefix: the first characters of its secret.
        created: when it was made.
        expires: from when on it is refused.
        rotated: when it last got a new secret.
        old_until: until when the secret before that one is still valid.
        revoked: when it was revoked.
        revoked_entry: id of the ``KEY_REVOKED`` entry.
    """

    prefix: str = ""
    created: str = ""
    expires: str = ""
    rotated: str = ""
    old_until: str = ""
    revoked: str = ""
    revoked_entry: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The same by name, with its ``state``; the id is ``id``."""
        shown = asdict(self)
        return {"id": shown.pop("key_id"), "state": self.state, **shown}

    @property
    def state(self) -> str:
        """``live``, ``expired`` or ``revoked``, as of now."""
        if self.revoked:
            return "revoked"
        return "expired" if self.expires and self.expires <= now_text() else "live"

    @property
    def identity(self) -> Identity:
        """The identity of its callers."""
        grant = {item.name: getattr(self, item.name) for item in fields(Grant)}
        return Identity(**grant, expires_at=self.expires)

    def checked(self) -> VirtualKey:
        """Itself, when it can be recorded and shown as it is.

        Raises:
            InvalidInputError: a text is empty, too long or not printable; a role, tier or time
                is none.
        """
        check_text("name", self.name)
        if self.name.startswith(_ID_PREFIX):
            raise InvalidInputError(
                f"The name {self.name!r} has the form of a key id.",
                next_step="Choose another name.",
            )
        for what in ("user_id", "team_id", "organisation_id"):
            if getattr(self, what) != "":
                check_text(what, getattr(self, what))
        for what in ("models", "agents", "tiers"):
            for item in getattr(self, what):
                check_text(f"{what} list's item", item)
        if self.role not in ROLES:
            raise InvalidInputError(
                f"Unknown role {self.role!r}.", next_step=f"Roles are {', '.join(ROLES)}."
            )
        for tier in self.tiers:
            if tier not in _TIERS:
                raise InvalidInputError(
                    f"Unknown tier {tier!r}.", next_step=f"Tiers are {', '.join(_TIERS)}."
                )
        if self.expires and self.expires <= now_text():
            raise InvalidInputError(
                f"The expiry {self.expires} is in the past.",
                next_step="Give a later time.",
            )
        return self


_COLUMNS = (*(item.name for item in fields(VirtualKey)), "hash", "old_hash", "changed")
_LISTS = ("models", "agents", "tiers")


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One row of ``virtual_keys``.

    Attributes:
        key: what may be shown of it.
        hash: SHA-256 of the secret, hex.
        old_hash: of the secret before it, while ``old_until`` has not come; else empty.
        changed: the epoch of its latest change.
    """

    key: VirtualKey
    hash: str = field(repr=False)
    old_hash: str = field(default="", repr=False)
    changed: int = 0

    COLUMNS = _COLUMNS
    SELECT = f"SELECT {', '.join(_COLUMNS)} FROM virtual_keys"
    EPOCH = "SELECT epoch FROM key_epoch"

    @classmethod
    def of(cls, row: Sequence[Any]) -> KeyRow:
        """A row that :attr:`SELECT` gave.

        Raises:
            AuthUnavailableError: it is damaged, so whom it authenticates is unknown.
        """
        given = dict(zip(_COLUMNS, row, strict=True))
        hash_, old_hash, changed = (given.pop(name) for name in ("hash", "old_hash", "changed"))
        try:
            for name in _LISTS:
                given[name] = tuple(json.loads(given[name])) if given[name] != "[]" else ()
            for text in (hash_, old_hash):
                bytes.fromhex(text)
            for text in (given["expires"], given["old_until"]):
                seconds_of(text)
        except (TypeError, ValueError) as error:
            raise AuthUnavailableError(
                f"The row of the key {given['key_id']} in virtual_keys is damaged.",
                next_step=f"{AFTER_DAMAGE} `remit key rotate` gives this key a new secret.",
            ) from error
        return cls(VirtualKey(**given), hash_, old_hash, changed)

    @classmethod
    def find(cls, run: _Run, name_or_id: str) -> KeyRow:
        """The key of that id or name; of several of one name the live one, else the latest.

        Args:
            run: runs a query, inside a transaction or outside.
            name_or_id: which key.

        Raises:
            NotFoundError: there is none.
        """
        # No name has unprintable characters, and some engines refuse to search for them.
        rows = (
            run(
                f"{cls.SELECT} WHERE key_id = ? OR name = ? "
                "ORDER BY CASE WHEN revoked = '' THEN 0 ELSE 1 END, changed DESC LIMIT 1",
                (name_or_id, name_or_id),
            )
            if isinstance(name_or_id, str) and name_or_id.isprintable()
            else []
        )
        if not rows:
            raise NotFoundError(
                "No key has that name or id.",
                next_step="`remit key list --all` lists all keys, including revoked ones.",
            )
        return cls.of(rows[0])

    def numbered(self, tx: Transaction) -> KeyRow:
        """Itself, under a new epoch."""
        ((epoch,),) = tx.execute("UPDATE key_epoch SET epoch = epoch + 1 RETURNING epoch")
        return replace(self, changed=epoch)

    def saved(self, tx: Transaction) -> KeyRow:
        """Write it, and return it."""
        values = [getattr(self.key, item.name) for item in fields(VirtualKey)]
        tx.execute(
            f"INSERT INTO virtual_keys ({', '.join(_COLUMNS)}) "
            f"VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT (key_id) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name != "key_id"),
            [
                *(json.dumps(value) if isinstance(value, tuple) else value for value in values),
                self.hash,
                self.old_hash,
                self.changed,
            ],
        )
        return self

    def require_live(self) -> None:
        """Raise :class:`ConflictError` for a key that is revoked or expired."""
        if self.key.state != "live":
            raise ConflictError(
                f"The key {self.key.name!r} ({self.key.key_id}) is {self.key.state}.",
                next_step="Create a new key.",
            )


def new_secret(tenant: str = "") -> tuple[str, str, str]:
    """A key of a tenant, or of the host; the part of it that is shown, and its hash."""
    encoded = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=")
    prefix = f"{_PREFIX}{tenant}_" if tenant else _PREFIX
    key = prefix + encoded.decode("ascii")
    return key, key[: len(prefix) + _SHOWN_CHARS], hashlib.sha256(key.encode("ascii")).hexdigest()


def tenant_of_key(token: str | None) -> str:
    """The tenant that a key names; empty for one of the host, and for all that is none."""
    if token is None or len(token) <= _HOSTS_CHARS or not token.startswith(_PREFIX):
        return ""
    end = len(token) - _SECRET_CHARS - 1
    return token[len(_PREFIX) : end] if token[end] == "_" else ""


def new_key_id() -> str:
    """``KEY-`` and 16 upper-case alphanumerics, random, with nothing of the secret in it."""
    alphabet = string.ascii_uppercase + string.digits
    return _ID_PREFIX + "".join(secrets.choice(alphabet) for _ in range(_ID_CHARS))


def check_text(what: str, value: object, longest: int = _MAX_CHARS, of: str = "key") -> None:
    """Raise :class:`InvalidInputError` for what is not one short line of printable text."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"The {of}'s {what} is empty or not a string.")
    if len(value) > longest:
        raise InvalidInputError(f"The {of}'s {what} is longer than {longest} characters.")
    if not value.isprintable() or value != value.strip():
        raise InvalidInputError(
            f"The {of}'s {what} contains a control character, or begins or ends with a space."
        )


def items_of(what: str, values: Sequence[str]) -> tuple[str, ...]:
    """A list without duplicates, in its order."""
    if isinstance(values, str):
        raise InvalidInputError(f"The key's {what} is a string, not a list of strings.")
    return tuple(dict.fromkeys(values))


def now_text() -> str:
    """The current time as keys store it."""
    return time_text(datetime.now(UTC))


def time_text(moment: str | datetime | None) -> str:
    """ISO 8601 in UTC to the microsecond, which sorts as text; empty for ``None``.

    Raises:
        InvalidInputError: it is no time, or names no zone.
    """
    if moment is None:
        return ""
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if parsed.tzinfo is not None:
            return parsed.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"
    except (AttributeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{moment!r} is not a time.") from error
    raise InvalidInputError(
        "The time has no time zone.", next_step="Write it as 2027-01-31T00:00:00Z."
    )


def seconds_of(text: str) -> float:
    """A time from :func:`time_text`, in seconds since 1970; infinite for an empty one."""
    return datetime.fromisoformat(text).timestamp() if text else math.inf
