"""``trust.json``: which keys may sign the packages of a root, and how many have to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar, Literal, Self

from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import JsonTextError, load_unique
from remit.kernel.schemas import first_problem, shipped_schema
from remit.packages.errors import PackageError, PackageKeyError
from remit.packages.files import replace_file
from remit.packages.package_key import key_name_problem, public_key
from remit.packages.paths import shown

__all__ = ["TrustPolicy", "TrustedKey", "format_time", "read_policy_file"]

_VERSION = "1.0"
_SHORTEST = 8  # hex digits by which people may name a key
_RESTORE = "Keep a copy of it: `remit package trust restore` replaces it with what is on record."


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key that is or was trusted.

    Attributes:
        key_id: 64 hex digits; follows from ``public``.
        public: ``ed25519:`` and 64 hex digits.
        status: ``active``; ``retired``: what it signed and is installed stays good, and it signs
            nothing new; ``revoked``: no signature of it counts any more.
        packages: ids of the packages that it may sign, in which ``*`` matches anything.
        changed: when its place here last changed, as ``2027-01-31T12:00:00Z``.
    """

    key_id: str
    name: str
    public: str
    status: Literal["active", "retired", "revoked"]
    packages: tuple[str, ...]
    changed: str

    @property
    def label(self) -> str:
        """The beginning of its id and its name, for people."""
        return f"{self.key_id[:_SHORTEST]}… ({self.name})"

    def may_sign(self, package_id: str) -> bool:
        """Whether one of its patterns is for that package."""
        return any(fnmatchcase(package_id, pattern) for pattern in self.packages)


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The keys that are trusted. Each change gives a new policy and leaves this one as it is.

    Attributes:
        FILE: its place in a root, beside ``remit.toml``.
        threshold: how many different keys have to sign a package.
        keys: in the order of their ids; retired and revoked ones too.
    """

    FILE: ClassVar[str] = "trust.json"

    threshold: int = 1
    keys: tuple[TrustedKey, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """The policy in a file; no key is trusted where there is none.

        Raises:
            PackageError: ``bad_trust``: the file cannot be read, or is not a policy.
        """
        data = read_policy_file(path)
        return cls() if data is None else cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: bytes, source: str = FILE) -> Self:
        """The policy in ``data``; ``source`` is the file's name, for the errors.

        Raises:
            PackageError: ``bad_trust``.
        """
        try:
            value = load_unique(data)
            if problem := first_problem(shipped_schema("trust"), value):
                raise ValueError(f"does not fit its schema: {shown(problem)}")
            keys = tuple(
                TrustedKey(**{**key, "packages": tuple(key["packages"])}) for key in value["keys"]
            )
            _check(keys)
        except JsonTextError as error:
            why = f"{source}: {error.message}"
            raise PackageError("bad_trust", why, next_step=_RESTORE) from error
        except (ValueError, PackageKeyError) as error:
            raise PackageError("bad_trust", f"{source} {error}.", next_step=_RESTORE) from error
        return cls(int(value["threshold"]), keys)

    def encoded(self) -> bytes:
        """The file's bytes: indented JSON in UTF-8; the same policy, the same bytes."""
        value = {"schema_version": _VERSION, **asdict(self)}
        return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"

    def save(self, path: Path) -> None:
        """Write the file, mode 0644: all of it or none, however the process ends.

        A root's own file is changed by :func:`change_trust` alone, which puts the change on
        record first.

        Raises:
            PackageError: ``trust_unwritable``.
        """
        try:
            replace_file(path, self.encoded())
            path.chmod(0o644)
        except OSError as error:
            raise PackageError(
                "trust_unwritable",
                f"{path} cannot be written: {error.strerror or error}.",
                next_step="Make the root writable for this user, then run any command of "
                "`remit package trust`: it writes what is on record.",
            ) from error

    def get(self, key_id: str) -> TrustedKey | None:
        """The key with exactly that id."""
        return next((key for key in self.keys if key.key_id == key_id), None)

    def find(self, given: str) -> TrustedKey:
        """The key that a person means: by its id, or at least its first eight digits.

        Raises:
            PackageError: ``no_such_key``, or ``two_such_keys``.
        """
        clear = len(given) >= _SHORTEST
        found = [key for key in self.keys if clear and key.key_id.startswith(given)]
        if len(found) != 1:
            count = f"{len(found) or 'No'} {'keys begin' if found else 'key begins'}"
            raise PackageError(
                "two_such_keys" if found else "no_such_key",
                f"{count} with {shown(given)}." if clear else f"{shown(given)} is too short.",
                next_step="`remit package trust show` lists them; give the complete id, or at "
                f"least its first {_SHORTEST} digits.",
            )
        return found[0]

    def with_key(self, public: str, name: str, packages: Iterable[str] | None = None) -> Self:
        """This policy and one more key; or, where it is there, with that name and those packages.

        A retired key is active again; a revoked one never. What changes nothing gives ``self``.

        Args:
            public: ``ed25519:`` and 64 hex digits.
            name: one line of at most 100 characters, unlike those of the others.
            packages: ids of packages that it may sign, in which ``*`` matches anything; when left
                out, those of before, or all for a new key.

        Raises:
            PackageKeyError: ``bad_key``: ``public`` is not a key.
            PackageError: ``revoked_key``: it was revoked; ``name_taken``; ``bad_trust``: a name or
                a pattern cannot be one.
        """
        key_id = public_key(public).keyid
        old = self.get(key_id)
        if old is not None:
            _check_not_revoked(old)
        if any(key.name == name and key.key_id != key_id for key in self.keys):
            raise PackageError(
                "name_taken",
                f"Another key has the name {shown(name)}.",
                next_step="Choose another name, such as one with the year in it.",
            )
        if packages is None:
            packages = ("*",) if old is None else old.packages
        new = TrustedKey(key_id, name, public, "active", tuple(packages), _now())
        if old is not None and replace(new, changed=old.changed) == old:
            return self
        return self.parse(self._with(new).encoded(), "The new list of keys")

    def with_status(self, given: str, status: Literal["retired", "revoked"]) -> Self:
        """This policy with a key retired or revoked, see :class:`TrustedKey`.

        Args:
            given: the key's id, or at least its first eight digits.
            status: revoking is for good.

        Raises:
            PackageError: ``no_such_key``; ``revoked_key``: it cannot be retired any more;
                ``threshold_unreachable``: too few keys would be left.
        """
        key = self.find(given)
        if key.status == status:
            return self
        _check_not_revoked(key)
        changed = self._with(replace(key, status=status, changed=_now()))
        if key.status == "active":  # a key that signs nothing anyway makes none fewer
            changed._check_threshold(
                "Trust another key first (`remit package trust add`), or lower the threshold "
                "(`remit package trust threshold`)."
            )
        return changed

    def with_threshold(self, threshold: int) -> Self:
        """This policy with so many different keys that have to sign.

        Raises:
            PackageError: ``threshold_unreachable``: there are not so many active keys.
        """
        if threshold == self.threshold:
            return self
        changed = replace(self, threshold=threshold)
        changed._check_threshold("Trust more keys first: `remit package trust add`.")
        return changed

    def _check_threshold(self, next_step: str) -> None:
        have = sum(key.status == "active" for key in self.keys)
        if not 1 <= self.threshold <= have:
            raise PackageError(
                "threshold_unreachable",
                f"The threshold would be {self.threshold}, with {have} active "
                f"{'key' if have == 1 else 'keys'}.",
                next_step=next_step,
            )

    def _with(self, new: TrustedKey) -> Self:
        others = [key for key in self.keys if key.key_id != new.key_id]
        return replace(self, keys=tuple(sorted([*others, new], key=lambda key: key.key_id)))


def read_policy_file(path: Path) -> bytes | None:
    """The file's bytes; ``None`` where there is none; raises PackageError (``bad_trust``)."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PackageError(
            "bad_trust",
            f"{path} cannot be read: {error.strerror or error}.",
            next_step="Make it readable for this user.",
        ) from error


def format_time(at: datetime) -> str:
    """A time as policies and signatures have it: UTC, whole seconds, ``2027-01-31T12:00:00Z``.

    Raises:
        InvalidInputError: it has no zone.
    """
    if at.utcoffset() is None:
        raise InvalidInputError(
            "A time without a zone was given.", next_step="Give one with its zone, such as UTC."
        )
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now() -> str:
    return format_time(datetime.now(UTC))


def _check(keys: Sequence[TrustedKey]) -> None:
    """What a schema cannot say; raises ValueError, whose message ends a sentence."""
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


def _check_not_revoked(key: TrustedKey) -> None:
    if key.status == "revoked":
        raise PackageError(
            "revoked_key",
            f"The key {key.label} was revoked on {key.changed}; that is for good.",
            next_step="Have its owner make a new key.",
        )
