"""``trust.json``: which keys may sign the packages of a root, and how many have to (SPEC 10)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar, Literal, Self

from securesystemslib.signer import SSlibKey

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.schemas import first_problem, shipped_schema
from remit.packages.errors import PackageKeyError, TrustError
from remit.packages.files import replace_file
from remit.packages.json_text import parse_json
from remit.packages.package_key import key_name_problem, public_key
from remit.packages.paths import shown

__all__ = ["TRUST_FILE", "KeyStatus", "TrustPolicy", "TrustedKey", "format_time"]

TRUST_FILE = "trust.json"
"""Its place in a root, beside ``remit.toml``."""

KeyStatus = Literal["active", "retired", "revoked"]

_VERSION = "1.0"
_SHORTEST = 8  # hex digits by which people may name a key
_FILE_MODE = 0o644
_RESTORE = "`remit package trust restore` puts back what is on record."


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key that is or was trusted.

    Attributes:
        key_id: 64 hex digits; follows from ``public``.
        public: ``ed25519:`` and 64 hex digits.
        status: ``active``; ``retired``: what it signed and is installed stays good, and it signs
            nothing new; ``revoked``: no signature of it counts any more.
        packages: ids of the packages that it may sign; ``*`` stands for anything.
        changed: when its place here last changed, as ``2027-01-31T12:00:00Z``.
    """

    key_id: str
    name: str
    public: str
    status: KeyStatus
    packages: tuple[str, ...]
    changed: str

    @property
    def label(self) -> str:
        """The beginning of its id and its name, for people."""
        return f"{self.key_id[:_SHORTEST]}… ({self.name})"

    @property
    def verifier(self) -> SSlibKey:
        """What its signatures are checked with."""
        return public_key(self.public)

    def may_sign(self, package_id: str) -> bool:
        """Whether one of its patterns is for that package."""
        return any(fnmatchcase(package_id, pattern) for pattern in self.packages)


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The keys that are trusted. Each change gives a new one and leaves this one as it is.

    Attributes:
        FILE: the policy's place in a root.
        threshold: how many different keys have to sign a package.
        keys: in the order of their ids; retired and revoked ones too.
    """

    FILE: ClassVar[str] = TRUST_FILE

    threshold: int = 1
    keys: tuple[TrustedKey, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """The policy in a file; nobody is trusted where there is none.

        Raises:
            TrustError: ``bad_trust``: the file cannot be read, or is not a policy.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise TrustError(
                "bad_trust",
                f"{path} cannot be read: {error.strerror or error}.",
                next_step="Make it readable for this user.",
            ) from error
        return cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: bytes, source: str = TRUST_FILE) -> Self:
        """The policy in ``data``; ``source`` is the file's name, for the errors.

        Raises:
            TrustError: ``bad_trust``.
        """
        try:
            value = parse_json(data)
            if problem := first_problem(shipped_schema("trust"), value):
                raise ValueError(f"does not fit its schema: {shown(problem)}")
            keys = tuple(
                TrustedKey(**{**one, "packages": tuple(one["packages"])}) for one in value["keys"]
            )
            _check(keys)
        except (ValueError, PackageKeyError) as error:
            raise TrustError("bad_trust", f"{source} {error}.", next_step=_RESTORE) from error
        return cls(value["threshold"], keys)

    def encoded(self) -> bytes:
        """The file's bytes: indented JSON in UTF-8; the same policy, the same bytes."""
        value = {
            "schema_version": _VERSION,
            "threshold": self.threshold,
            "keys": [asdict(key) for key in self.keys],
        }
        return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"

    @property
    def digest(self) -> str:
        """``sha256:`` and the SHA-256 of :meth:`encoded` in hex."""
        return f"sha256:{sha256_hex(self.encoded())}"

    def save(self, path: Path) -> None:
        """Write the file, mode 0644: all of it or none, however the process ends.

        A root's own file is changed by :func:`remit.packages.trust.change_trust` alone, which
        puts the change on record first.

        Raises:
            TrustError: ``trust_unwritable``.
        """
        try:
            replace_file(path, self.encoded())
            path.chmod(_FILE_MODE)
        except OSError as error:
            raise TrustError(
                "trust_unwritable",
                f"{path} cannot be written: {error.strerror or error}.",
                next_step="Make the root writable for this user, then run any command of "
                "`remit package trust`: it writes what is on record.",
            ) from error

    # -- finding -----------------------------------------------------------------------

    def get(self, key_id: str) -> TrustedKey | None:
        """The key with exactly that id."""
        return next((key for key in self.keys if key.key_id == key_id), None)

    def find(self, given: str) -> TrustedKey:
        """The key that a person means: by its id, or at least its first eight digits.

        Raises:
            TrustError: ``no_such_key``, or ``two_such_keys``.
        """
        found = [
            key
            for key in self.keys
            if key.key_id == given or (len(given) >= _SHORTEST and key.key_id.startswith(given))
        ]
        if len(found) == 1:
            return found[0]
        raise TrustError(
            "two_such_keys" if found else "no_such_key",
            f"{'Several keys begin' if found else 'No key begins'} with {shown(given)}."
            if len(given) >= _SHORTEST
            else f"{shown(given)} is too short to tell which key is meant.",
            next_step="`remit package trust show` lists them; give the whole id, or at least its "
            f"first {_SHORTEST} digits.",
        )

    @property
    def active(self) -> tuple[TrustedKey, ...]:
        """The keys that may sign something new."""
        return tuple(key for key in self.keys if key.status == "active")

    # -- changing ----------------------------------------------------------------------

    def with_key(
        self,
        public: str,
        name: str,
        packages: Iterable[str] | None = None,
        *,
        at: datetime | None = None,
    ) -> Self:
        """This policy and one more key; or, where it is there, with that name and those packages.

        A retired key is active again; a revoked one never. What changes nothing gives ``self``.

        Args:
            public: ``ed25519:`` and 64 hex digits.
            name: one line of at most 100 characters, unlike those of the others.
            packages: ids of packages that it may sign, ``*`` standing for anything; when left
                out, those of before, or all for a new key.
            at: when, with its zone; now when left out.

        Raises:
            PackageKeyError: ``bad_key``: ``public`` is not a key.
            TrustError: ``revoked_key``: it was revoked; ``name_taken``; ``bad_trust``: a name or
                a pattern cannot be one.
        """
        key_id = public_key(public).keyid
        old = self.get(key_id)
        if old is not None and old.status == "revoked":
            raise TrustError(
                "revoked_key",
                f"The key {old.label} was revoked on {old.changed}; that is for good.",
                next_step="Have its owner make a new key.",
            )
        if any(key.name == name and key.key_id != key_id for key in self.keys):
            raise TrustError(
                "name_taken",
                f"Another key has the name {shown(name)}.",
                next_step="Choose another name, such as one with the year in it.",
            )
        if packages is None:
            packages = ("*",) if old is None else old.packages
        new = TrustedKey(key_id, name, public, "active", tuple(packages), _now(at))
        if old is not None and replace(new, changed=old.changed) == old:
            return self
        changed = self._with(new)
        return self.parse(changed.encoded(), "The new list of keys")

    def retired(self, key_id: str, *, at: datetime | None = None) -> Self:
        """What that key signed and is installed stays good; it signs nothing new.

        Raises:
            TrustError: ``no_such_key``, ``revoked_key``; ``threshold_unreachable``: too few keys
                would be left.
        """
        key = self.find(key_id)
        if key.status == "revoked":
            raise TrustError(
                "revoked_key",
                f"The key {key.label} was revoked on {key.changed}; that is for good.",
                next_step="Nothing is left to do: it counts for nothing.",
            )
        return self._ended(key, "retired", at)

    def revoked(self, key_id: str, *, at: datetime | None = None) -> Self:
        """No signature of that key counts any more, however old.

        Raises:
            TrustError: ``no_such_key``; ``threshold_unreachable``: too few keys would be left.
        """
        return self._ended(self.find(key_id), "revoked", at)

    def with_threshold(self, threshold: int) -> Self:
        """So many different keys have to sign.

        Raises:
            TrustError: ``threshold_unreachable``: there are not so many active keys.
        """
        if threshold == self.threshold:
            return self
        return replace(self, threshold=threshold)._reachable(
            "Trust more keys first: `remit package trust add`."
        )

    def _ended(self, key: TrustedKey, status: KeyStatus, at: datetime | None) -> Self:
        if key.status == status:
            return self
        changed = self._with(replace(key, status=status, changed=_now(at)))
        if key.status != "active":  # a key that signs nothing anyway makes none fewer
            return changed
        return changed._reachable(
            "Trust another key first (`remit package trust add`), or lower the threshold "
            "(`remit package trust threshold`)."
        )

    def _reachable(self, next_step: str) -> Self:
        have = len(self.active)
        if not 1 <= self.threshold <= have:
            raise TrustError(
                "threshold_unreachable",
                f"The threshold would be {self.threshold}, with {have} active "
                f"{'key' if have == 1 else 'keys'}.",
                next_step=next_step,
            )
        return self

    def _with(self, key: TrustedKey) -> Self:
        others = [one for one in self.keys if one.key_id != key.key_id]
        return replace(self, keys=tuple(sorted([*others, key], key=lambda one: one.key_id)))


def format_time(at: datetime) -> str:
    """A time as policies and signatures bear it: UTC, whole seconds, ``2027-01-31T12:00:00Z``.

    Raises:
        InvalidInputError: it has no zone.
    """
    if at.utcoffset() is None:
        raise InvalidInputError(
            "A time without a zone was given.", next_step="Give one with its zone, such as UTC."
        )
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now(at: datetime | None) -> str:
    return format_time(datetime.now(UTC) if at is None else at)


def _check(keys: tuple[TrustedKey, ...]) -> None:
    """What a schema cannot say.

    Raises:
        ValueError: the message ends a sentence.
    """
    ids = [key.key_id for key in keys]
    if ids != sorted(set(ids)):
        raise ValueError("names a key twice, or not in the order of their ids")
    if len({key.name for key in keys}) != len(keys):
        raise ValueError("gives two keys one name")
    for key in keys:
        if problem := key_name_problem(key.name):
            raise ValueError(f"has a key whose name {problem}")
        if public_key(key.public).keyid != key.key_id:
            raise ValueError(f"gives {key.key_id[:_SHORTEST]}… for the id of another key")
