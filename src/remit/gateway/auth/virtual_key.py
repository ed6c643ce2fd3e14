"""A virtual key as it is stored, and the form of its secret."""

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
from difflib import get_close_matches
from typing import Any

from remit.gateway.auth.identity import ROLES, AuthUnavailableError, Grant, Identity
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError
from remit.ledger import AFTER_DAMAGE, Transaction, time_text as entry_time
from remit.providers.wire import PASSED_PATHS, matches

_Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_PREFIX = "sk-remit-"
_SECRET_BYTES = 32
_SECRET_CHARS = 43  # The secret has this length as base64url without padding.
_SHOWN_CHARS = 4  # A listing shows this many characters of the secret.
_MAX_CHARS = 128
_TIERS = ("hot", "ho2", "ho1")
ALWAYS_RECORDED = ("models", "agents", "tiers")
LISTS = (*ALWAYS_RECORDED, "pass_through", "pass_through_unpriced")
"""Fields of a key that are lists. Those that came later are recorded if they are not empty."""
_ID_PREFIX = "KEY-"
_ID_CHARS = 16
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_HOSTS_CHARS = len(_PREFIX) + _SECRET_CHARS
MAX_KEY_CHARS = _HOSTS_CHARS + 33
"""No key is longer: the prefix; for a tenant's its name and ``_``; the secret."""


def duration_of(text: str) -> timedelta:
    """Return the duration in a text such as ``30d``, ``12h``, ``15m`` or ``90s``.

    Args:
        text: a number of at most 9 digits and ``s``, ``m``, ``h`` or ``d``.

    Raises:
        InvalidInputError: the text has another form.
        OverflowError: the duration is longer than Python can express.
    """
    if (found := _DURATION.fullmatch(text)) is None:
        raise InvalidInputError(
            f"{text!r} is not a duration.", next_step="Write 30d, 12h, 15m or 90s."
        )
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def expiry_of(text: str, now: datetime) -> datetime:
    """Return the time that a duration from now, or an ISO date or time, stands for.

    A date means its midnight, and a time without a zone is UTC. The time may be past.

    Args:
        text: a duration as for :func:`duration_of`, or an ISO 8601 date or time.
        now: the present time, from :attr:`remit.ledger.LedgerClient.wall_time`: a machine whose
            clock is wrong must not move a deadline that others keep.

    Raises:
        InvalidInputError: the text has another form, or the time is out of range.
    """
    try:
        if _DURATION.fullmatch(text):
            return now + duration_of(text)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{text!r} is not a valid expiry.",
            next_step="Write 30d or 12h, or a date such as 2027-01-31T00:00:00Z.",
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key or a rotated one, with its secret. The secret cannot be read again.

    Immutable; ``repr`` does not show the secret.

    Attributes:
        key_id: the id of the key.
        name: the name of the key.
        key: the secret.
    """

    key_id: str
    name: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class VirtualKey(Grant):
    """The public part of a key. Times are ISO 8601, UTC; a missing time is empty.

    The ``key_id`` stays the same over rotations. The ``name`` is unique among unrevoked keys.
    Immutable; a copy of a row, without the secret and its hash.

    Attributes:
        prefix: the first characters of the secret.
        created: time of creation.
        expires: the key is refused from this time on.
        rotated: time of the latest rotation.
        old_until: end of the grace period of the secret before the current one.
        revoked: time of revocation.
        revoked_entry: id of the ``KEY_REVOKED`` entry.
    """

    prefix: str = ""
    created: str = ""
    expires: str = ""
    rotated: str = ""
    old_until: str = ""
    revoked: str = ""
    revoked_entry: str = ""

    def to_dict(self, now: datetime) -> dict[str, Any]:
        """Return the fields as JSON, with the id as ``id`` and the ``state`` added.

        Args:
            now: as for :meth:`state_at`.
        """
        shown = asdict(self)
        return {"id": shown.pop("key_id"), "state": self.state_at(now), **shown}

    def state_at(self, now: datetime) -> str:
        """Return the state of the key: ``live``, ``expired`` or ``revoked``.

        Args:
            now: the present time, as for :func:`expiry_of`.
        """
        if self.revoked:
            return "revoked"
        return "expired" if self.expires and self.expires <= time_text(now) else "live"

    @property
    def identity(self) -> Identity:
        """The identity of callers that use the key."""
        grant = {item.name: getattr(self, item.name) for item in fields(Grant)}
        return Identity(**grant, expires_at=self.expires)

    def checked(self) -> VirtualKey:
        """Return the key itself, if all its values can be used.

        Raises:
            InvalidInputError: a text is empty, too long or not printable, the role or a tier does
                not exist, a pattern of passed requests covers no path, or the name looks like a
                key's id.
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
        for what in LISTS:
            for item in getattr(self, what):
                check_text(f"{what} list's item", item)
        for item in (*self.pass_through, *self.pass_through_unpriced):
            _check_pattern(item)
        if self.role not in ROLES:
            raise InvalidInputError(
                f"Unknown role {self.role!r}.", next_step=f"Roles are {', '.join(ROLES)}."
            )
        for tier in self.tiers:
            if tier not in _TIERS:
                raise InvalidInputError(
                    f"Unknown tier {tier!r}.", next_step=f"Tiers are {', '.join(_TIERS)}."
                )
        return self


_COLUMNS = (*(item.name for item in fields(VirtualKey)), "hash", "old_hash", "changed")


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A row of ``virtual_keys``.

    Immutable. :attr:`SELECT` reads all columns, in the order of :attr:`COLUMNS`.

    Attributes:
        key: the public part.
        hash: SHA-256 of the secret, hex.
        old_hash: SHA-256 of the previous secret during its grace period; else empty.
        changed: the epoch of the latest change.
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
        """Return the row in a result of :attr:`SELECT`.

        The identity's values are not checked.

        Args:
            row: the columns, in the order of :attr:`COLUMNS`.

        Raises:
            AuthUnavailableError: the row is damaged, so the caller that it authenticates is
                unknown.
        """
        given = dict(zip(_COLUMNS, row, strict=True))
        hash_, old_hash, changed = (given.pop(name) for name in ("hash", "old_hash", "changed"))
        try:
            for name in LISTS:
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
        """Return the row of the key with this id or name.

        Of several keys with one name the unrevoked one is returned, else the latest.

        Args:
            run: runs a query, inside a transaction or outside.
            name_or_id: the key.

        Raises:
            NotFoundError: no key has this id or name.
            AuthUnavailableError: the row is damaged.
            LedgerError: the query fails.
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
                f"No key has the name or id {name_or_id!r}.",
                next_step="`remit key list --all` lists all keys, including revoked ones.",
            )
        return cls.of(rows[0])

    def numbered(self, tx: Transaction) -> KeyRow:
        """Return a copy with the next epoch; advances ``key_epoch`` in the transaction."""
        ((epoch,),) = tx.execute("UPDATE key_epoch SET epoch = epoch + 1 RETURNING epoch")
        return replace(self, changed=epoch)

    def require_live(self, now: datetime) -> None:
        """Check that the key can be used.

        Args:
            now: the present time, as for :func:`expiry_of`.

        Raises:
            ConflictError: the key is revoked or expired.
        """
        if (state := self.key.state_at(now)) != "live":
            raise ConflictError(
                f"The key {self.key.name!r} ({self.key.key_id}) is {state}.",
                next_step="Create a new key.",
            )


def new_secret(tenant: str = "") -> tuple[str, str, str]:
    """Return a new random secret, the part of it that may be shown, and its SHA-256 in hex.

    The secret is ``sk-remit-``, for a tenant its name and ``_``, and 43 characters (256 random
    bits). The prefix and four of these characters may be shown. Nothing is stored.

    Args:
        tenant: name of the tenant that the key belongs to; empty for the host.
    """
    encoded = base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).rstrip(b"=")
    prefix = f"{_PREFIX}{tenant}_" if tenant else _PREFIX
    key = prefix + encoded.decode("ascii")
    return key, key[: len(prefix) + _SHOWN_CHARS], hashlib.sha256(key.encode("ascii")).hexdigest()


def tenant_of_key(token: str | None) -> str:
    """Return the tenant that a key names; empty for a key of the host and for any other text.

    The key and the tenant are not looked up.

    Args:
        token: the secret; None gives an empty text.
    """
    if token is None or len(token) <= _HOSTS_CHARS or not token.startswith(_PREFIX):
        return ""
    end = len(token) - _SECRET_CHARS - 1
    return token[len(_PREFIX) : end] if token[end] == "_" else ""


def new_key_id() -> str:
    """Return a random id: ``KEY-`` and 16 upper-case letters or digits."""
    alphabet = string.ascii_uppercase + string.digits
    return _ID_PREFIX + "".join(secrets.choice(alphabet) for _ in range(_ID_CHARS))


def _check_pattern(pattern: str) -> None:
    """Check that a pattern of passed requests covers at least one.

    Raises:
        InvalidInputError: the pattern covers none.
    """
    if not any(matches(pattern, row) for row in PASSED_PATHS):
        near = get_close_matches(pattern, [row.name for row in PASSED_PATHS], 1, 0.3)
        raise InvalidInputError(
            f"No path that Remit passes on matches {pattern!r}.",
            next_step=f"Write a pattern such as {near[0] if near else '/vector_stores*'!r}; "
            "docs/pass-through.md lists the paths.",
        )


def check_text(what: str, value: object, longest: int = _MAX_CHARS, of: str = "key") -> None:
    """Check that a value is one line of printable characters without spaces at its ends.

    Returns nothing.

    Args:
        what: the name of the value, for the message.
        value: the value.
        longest: most characters.
        of: the thing that the value belongs to, for the message.

    Raises:
        InvalidInputError: the value is no such line, is empty, or is longer than ``longest``.
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"The {of}'s {what} is empty or not a string.")
    if len(value) > longest:
        raise InvalidInputError(f"The {of}'s {what} is longer than {longest} characters.")
    if not value.isprintable() or value != value.strip():
        raise InvalidInputError(
            f"The {of}'s {what} contains a control character, or begins or ends with a space."
        )


def items_of(what: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return the values as a tuple without duplicates, in their order.

    The items are not checked.

    Args:
        what: name of the list, for the message.
        values: the values.

    Raises:
        InvalidInputError: the values are one text instead of a list.
    """
    if isinstance(values, str):
        raise InvalidInputError(f"The key's {what} is a string, not a list of strings.")
    return tuple(dict.fromkeys(values))


def time_text(moment: str | datetime | None) -> str:
    """Return a time as ISO 8601 in UTC to the microsecond, which sorts as text; empty for None.

    Args:
        moment: an aware ``datetime``, or ISO 8601 with a zone; None for no time.

    Raises:
        InvalidInputError: the value is not a time, or has no zone.
    """
    if moment is None:
        return ""
    try:
        parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if parsed.tzinfo is not None:
            return entry_time(parsed)
    except (AttributeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{moment!r} is not a time.") from error
    raise InvalidInputError(
        "The time has no time zone.", next_step="Write it as 2027-01-31T00:00:00Z."
    )


def seconds_of(text: str) -> float:
    """Return a time written by :func:`time_text` in seconds since 1970; infinite for an empty
    text.
    """
    return datetime.fromisoformat(text).timestamp() if text else math.inf
