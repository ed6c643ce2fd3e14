"""Operations on the keys that may sign packages, and on key files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note, Table, table_of

if TYPE_CHECKING:
    from remit.packages import PackageKey, TrustPolicy


def _policy_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    yield f"threshold: {found['threshold']}"
    rows = [{**asdict(one), "key_id": one.key_id[:16]} for one in found["keys"]]
    if rows:
        yield table_of(rows, "key_id", "name", "status", "changed", "packages")


@verb("package trust show", lines=_policy_lines)
def show_trust(root: RootPort, caller: Caller) -> dict[str, Any]:
    """List trusted keys, their packages, and the required number of signatures.

    Returns:
        ``threshold`` and ``keys`` as recorded, retired and revoked keys included. If the file is
        missing or older, a note says so.

    Raises:
        PackageError: the trust file was never recorded or cannot be read, or the recorded policy is
            damaged or not valid.
        LedgerError: the ledger cannot be read.
    """
    from remit.packages import TrustPolicy
    from remit.packages.trust import read_trust, trust_problem

    path = root.place.path / TrustPolicy.FILE
    policy = read_trust(path, root.ledger)
    if problem := trust_problem(path, root.ledger):
        root.note(f"{problem} Keep a copy; `remit package trust restore` replaces it.")
    return _plain(policy)


@verb("package trust restore", lines=_policy_lines)
def restore_trust(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Rebuild the trust file from the ledger, and replace the current file.

    Returns:
        The policy in force after the change: ``threshold`` and ``keys``. The former file is lost,
        and no entry is appended.

    Raises:
        PackageError: another operation on packages is running, the ledger records no policy, the
            recorded policy is damaged or not valid, or the file cannot be written.
        LedgerError: the ledger cannot be read.
    """
    from remit.packages import TrustPolicy, package_lock, trust

    place = root.place.path
    with package_lock(place, root.settings.packages.lock_timeout_s):
        return _plain(trust.restore_trust(place / TrustPolicy.FILE, root.ledger))


def _changed(
    root: RootPort, caller: Caller, change: Callable[[TrustPolicy], TrustPolicy], reason: str = ""
) -> dict[str, Any]:
    """Change the policy, and record the change.

    Raises:
        PackageError: the key cannot be used or is unknown.
    """
    from remit.packages import TrustPolicy, package_lock
    from remit.packages.trust import change_trust

    place = root.place.path
    with package_lock(place, root.settings.packages.lock_timeout_s):
        policy, entry_id, what = change_trust(
            place / TrustPolicy.FILE, root.ledger, change, by=caller.name, reason=reason
        )
    return {"changed": what, "entry": entry_id, **_plain(policy)}


def _change_lines(found: dict[str, Any]) -> list[str]:
    entry = found["entry"]
    return [f"{found['changed']} ({entry})" if entry else "no change: the policy is already so"]


def _public(text: str) -> str:
    from remit.packages import PackageError, public_key

    try:
        public_key(text)
    except PackageError as error:
        raise InvalidInputError(error.message, next_step=error.next_step) from error
    return text


_KEY_ID: Any = field("Id of the key.", flag="")


@verb("package trust add", changes=True, lines=_change_lines)
def trust_key(
    root: RootPort, caller: Caller, *,
    public: str = field("The public key.", flag="", read=_public),
    name: str = field("Display name."),
    packages: list[str] = field(
        "Packages that the key may sign; PKG-ACME-* is a pattern. Repeat for several (default: "
        "all).", [], metavar="PATTERN",
    ),
) -> dict[str, Any]:  # fmt: skip
    """Trust a key (ed25519: and 64 hex digits), or change its name or packages.

    Returns:
        ``threshold`` and ``keys`` after the change; ``changed``, a line about the change, and
        ``entry``, both empty if nothing changed. Without ``packages``, a known key keeps its
        packages. A retired key is active again.

    Raises:
        InvalidInputError: ``public`` is no key; raised as the command reads it.
        PackageError: the key was revoked, another key has the name, the name or a pattern cannot be
            used, the keys do not fit into an entry, another operation on packages is running,
            another machine changed the keys at the same time, the recorded policy is damaged, or
            the trust file was never recorded or cannot be written. If it cannot be written, the
            change may be recorded: the next change then writes the file.
        LedgerError: the ledger cannot be read or written.
    """
    return _changed(
        root, caller, lambda policy: policy.with_key(public, name, tuple(packages) or None)
    )


@verb("package trust retire", changes=True, lines=_change_lines)
def retire_key(root: RootPort, caller: Caller, *, key_id: str = _KEY_ID) -> dict[str, Any]:
    """Stop accepting new signatures of a key. Installed packages stay valid.

    Returns:
        As :func:`trust_key`.

    Raises:
        PackageError: the key is unknown or revoked, too few active keys would remain, or a reason
            of :func:`trust_key` that is not the new key's.
        LedgerError: the ledger cannot be read or written.
    """
    return _changed(root, caller, lambda policy: policy.with_status(key_id, "retired"))


@verb("package trust revoke", changes=True, lines=_change_lines)
def revoke_trust(
    root: RootPort, caller: Caller, *,
    key_id: str = _KEY_ID,
    reason: str = field("Reason (recorded permanently)."),
) -> dict[str, Any]:  # fmt: skip
    """Revoke a compromised key permanently. All its signatures become invalid.

    Returns:
        As :func:`trust_key`.

    Raises:
        PackageError: as :func:`retire_key`; a retired key can be revoked.
        LedgerError: the ledger cannot be read or written.
    """
    return _changed(root, caller, lambda policy: policy.with_status(key_id, "revoked"), reason)


@verb("package trust threshold", changes=True, lines=_change_lines)
def set_threshold(
    root: RootPort, caller: Caller, *,
    number: int = field("Number of keys.", flag="", metavar="N", least=1),
) -> dict[str, Any]:  # fmt: skip
    """Set how many different keys must sign a package.

    Returns:
        As :func:`trust_key`.

    Raises:
        PackageError: fewer keys are trusted, or a reason of :func:`trust_key` that is not the new
            key's.
        LedgerError: the ledger cannot be read or written.
    """
    return _changed(root, caller, lambda policy: policy.with_threshold(number))


def _key_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the public key alone, so that a script can read it, and a note."""
    yield found["public"]
    name = f" ({found['name']})" if found["name"] else ""
    yield Note(f"This is the key {found['key_id'][:16]}…{name}.")


@verb("package key new", lines=_key_lines)
def new_package_key(
    root: RootPort, caller: Caller, *,
    file: Path = field("File to create for the private key.", flag="--out"),
    name: str = field("Display name."),
) -> dict[str, Any]:  # fmt: skip
    """Create a key pair and print the public key, for others to trust.

    Returns:
        ``key_id``, ``name`` and ``public``. The private key is only in the file.

    Raises:
        PackageError: the name cannot be used, or the file exists or cannot be written.
    """
    from remit.packages import PackageKey

    made = _of(PackageKey.create(file, name))
    root.note(f"The private key is in {file}; only you can read it. Keep a backup and never share "
              "it.")  # fmt: skip
    return made


@verb("package key show", lines=_key_lines)
def show_package_key(
    root: RootPort, caller: Caller, *,
    file: Path | None = field("File of the private key.", None, flag="", metavar="[FILE]"),
) -> dict[str, Any]:  # fmt: skip
    """Print the public key of a private key file (default: the root's own key).

    Returns:
        ``key_id``, ``name`` and ``public``.

    Raises:
        PackageError: the file cannot be read, or is not a usable key.
    """
    from remit.packages import PackageKey
    from remit.packages.shipped import root_key_path

    return _of(PackageKey.load(file or root_key_path(root.place)))


def _of(key: PackageKey) -> dict[str, Any]:
    return {"key_id": key.key_id, "name": key.name, "public": key.public}


def _plain(policy: TrustPolicy) -> dict[str, Any]:
    return {"threshold": policy.threshold, "keys": policy.keys}
