"""``trust.json``: keys that may sign the packages of a root, and how many must sign each."""

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
from remit.packages.errors import PackageError
from remit.packages.journal import replace_file
from remit.packages.paths import shown
from remit.packages.signing_key import key_name_problem, public_key

_VERSION = "1.0"
_MIN_ID_DIGITS = 8  # People may name a key by as many hex digits of its id.
_RESTORE = (
    "Keep a copy of the file: `remit package trust restore` replaces it with the recorded version."
)


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A key that is or was trusted; immutable.

    Attributes:
        key_id: 64 hex digits, derived from ``public``.
        name: a name for people, unique in the policy.
        public: ``ed25519:`` and 64 hex digits.
        status: ``active``; ``retired``: signatures of installed packages stay valid, new ones are
            not accepted; ``revoked``: no signature is valid.
        packages: ids of packages that the key may sign, or patterns in which ``*`` stands for any
            text.
        changed: the time of the last change of this key, as ``2027-01-31T12:00:00Z``.
    """

    key_id: str
    name: str
    public: str
    status: Literal["active", "retired", "revoked"]
    packages: tuple[str, ...]
    changed: str

    @property
    def label(self) -> str:
        """The first digits of the id and the name, for people."""
        return f"{self.key_id[:_MIN_ID_DIGITS]}… ({self.name})"

    def may_sign(self, package_id: str) -> bool:
        """Return True if a pattern in :attr:`packages` matches a package. Status is ignored, case
        counts.

        Args:
            package_id: id of the package.
        """
        return any(fnmatchcase(package_id, pattern) for pattern in self.packages)


@dataclass(frozen=True, slots=True)
class TrustPolicy:
    """The trusted keys, immutable: methods find a key, or return a changed policy.

    :meth:`load` and :meth:`save` read and write a file; the ledger is not read or written. The
    constructor checks nothing.

    Attributes:
        FILE: the file's place in a root, next to ``remit.toml``.
        threshold: the number of different keys that must sign a package.
        keys: all keys, retired and revoked ones included, sorted by id.
    """

    FILE: ClassVar[str] = "trust.json"

    threshold: int = 1
    keys: tuple[TrustedKey, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the policy in a file; a policy without keys if the file does not exist.

        Whether the ledger records the file is not checked.

        Args:
            path: the file.

        Raises:
            PackageError: ``bad_trust``: the file cannot be read, or is not a policy.
        """
        data = read_policy_file(path)
        return cls() if data is None else cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: bytes, source: str = FILE) -> Self:
        """Return the policy in the bytes of a JSON file.

        Whether enough keys are active for the threshold is not checked.

        Args:
            data: the file's bytes.
            source: the file's name, for errors.

        Raises:
            PackageError: ``bad_trust``: the bytes are not strict JSON that fits the schema, the
                keys are not sorted by id, two have one name, a name is unusable, or an id is not
                that of its key.
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
        except (ValueError, PackageError) as error:
            raise PackageError("bad_trust", f"{source} {error}.", next_step=_RESTORE) from error
        return cls(int(value["threshold"]), keys)

    def encoded(self) -> bytes:
        """Return the file's bytes, indented JSON in UTF-8: same policy, same bytes."""
        value = {"schema_version": _VERSION, **asdict(self)}
        return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"

    def save(self, path: Path) -> None:
        """Write the file durably with mode 0644: a crash leaves the old file or the new file.

        A root's own file may be written only after its content was recorded in the ledger, as
        :func:`change_trust` does. Nothing is recorded here.

        Args:
            path: the file, in an existing folder; an old one is replaced.

        Raises:
            PackageError: ``trust_unwritable``: the file cannot be written.
        """
        try:
            replace_file(path, self.encoded())
            path.chmod(0o644)
        except OSError as error:
            raise PackageError(
                "trust_unwritable",
                f"{path} cannot be written: {error.strerror or error}.",
                next_step="Make the root writable for this user, then run any command of "
                "`remit package trust`: it writes the recorded keys.",
            ) from error

    def get(self, key_id: str) -> TrustedKey | None:
        """Return the key with exactly this id; ``None`` if there is none.

        Args:
            key_id: the whole id, 64 hex digits.
        """
        return next((key for key in self.keys if key.key_id == key_id), None)

    def find(self, given: str) -> TrustedKey:
        """Return the key with an id, or with an id that begins with at least eight given digits.

        Retired and revoked keys are found too.

        Args:
            given: a whole id, or its first eight digits or more, in lower case.

        Raises:
            PackageError: ``no_such_key``: no id begins so, or fewer than eight digits are given;
                ``two_such_keys``: several ids begin so.
        """
        clear = len(given) >= _MIN_ID_DIGITS
        found = [key for key in self.keys if clear and key.key_id.startswith(given)]
        if len(found) != 1:
            count = f"{len(found) or 'No'} {'keys begin' if found else 'key begins'}"
            raise PackageError(
                "two_such_keys" if found else "no_such_key",
                f"{count} with {shown(given)}." if clear else f"{shown(given)} is too short.",
                next_step=f"Give the complete id, or at least its first {_MIN_ID_DIGITS} digits; "
                "`remit package trust show` lists the keys.",
            )
        return found[0]

    def with_key(self, public: str, name: str, packages: Iterable[str] | None = None) -> Self:
        """Return a policy with a key added, or with a new name and new packages of a known key.

        A retired key becomes active again. ``changed`` is the present time. Returns ``self`` if
        nothing changes. Nothing is written.

        Args:
            public: ``ed25519:`` and 64 hex digits.
            name: one line of at most 100 characters, unique in the policy.
            packages: ids of packages that the key may sign, or patterns in which ``*`` stands for
                any text. ``None`` keeps those of a known key, and permits all packages to a new
                one.

        Raises:
            PackageError: ``bad_key``: ``public`` is not a key; ``revoked_key``: the key was
                revoked; ``name_taken``: another key has the name; ``bad_trust``: the name or a
                pattern is invalid.
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
        """Return a policy with a key retired or revoked.

        ``changed`` of the key is the present time. Returns ``self`` if the key has the status
        already. Nothing is written.

        Args:
            given: the key's id, or at least its first eight digits.
            status: the new status. A revoked key stays revoked.

        Raises:
            PackageError: ``no_such_key``: no id begins so, or fewer than eight digits are given;
                ``two_such_keys``: several ids begin so; ``revoked_key``: a revoked key cannot be
                retired; ``threshold_unreachable``: fewer active keys than the threshold would
                remain.
        """
        key = self.find(given)
        if key.status == status:
            return self
        _check_not_revoked(key)
        changed = self._with(replace(key, status=status, changed=_now()))
        if key.status == "active":  # A retired key does not count for the threshold.
            changed._check_threshold(
                "Trust another key first (`remit package trust add`), or lower the threshold "
                "(`remit package trust threshold`)."
            )
        return changed

    def with_threshold(self, threshold: int) -> Self:
        """Return a policy with another number of keys that must sign; ``self`` if it is the same.

        Args:
            threshold: the number of different keys, at least 1.

        Raises:
            PackageError: ``threshold_unreachable``: there are fewer active keys, or the number is
                below 1.
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
    """Return the file's bytes; ``None`` if the file does not exist.

    Args:
        path: path of the policy; its content is not checked.

    Raises:
        PackageError: ``bad_trust``: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PackageError(
            "bad_trust",
            f"{path} cannot be read: {error.strerror or error}.",
            next_step="Make the file readable for this user.",
        ) from error


def format_time(at: datetime) -> str:
    """Return a time in UTC and whole seconds, such as ``2027-01-31T12:00:00Z``.

    Args:
        at: a time with its zone; fractions of a second are dropped.

    Raises:
        InvalidInputError: the time has no zone.
    """
    if at.utcoffset() is None:
        raise InvalidInputError(
            "The time has no time zone.", next_step="Give the time with its zone, such as UTC."
        )
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now() -> str:
    return format_time(datetime.now(UTC))


def _check(keys: Sequence[TrustedKey]) -> None:
    """Raise ValueError for faults that no schema can express; the message ends a sentence."""
    ids = [key.key_id for key in keys]
    if ids != sorted(set(ids)):
        raise ValueError("names a key twice, or not in the order of their ids")
    if len({key.name for key in keys}) != len(keys):
        raise ValueError("gives two keys the same name")
    for key in keys:
        if problem := key_name_problem(key.name):
            raise ValueError(f"has a key whose name {problem}")
        if public_key(key.public).keyid != key.key_id:
            raise ValueError(f"gives {key.key_id[:_MIN_ID_DIGITS]}… for the id of another key")


def _check_not_revoked(key: TrustedKey) -> None:
    if key.status == "revoked":
        raise PackageError(
            "revoked_key",
            f"The key {key.label} was revoked on {key.changed} and stays revoked.",
            next_step="Ask the owner to create a new key.",
        )
