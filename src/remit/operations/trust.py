"""Operations on the keys that may sign packages, and on key files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.operations.operation import Caller, Note, Operation, RootPort, field

if TYPE_CHECKING:
    from remit.packages import PackageKey
    from remit.packages.trust import TrustPolicy


class _Policy(Operation):
    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the threshold, then a line for each key."""
        noun, keys = "key" if found["threshold"] == 1 else "keys", found["keys"]
        yield f"a package must be signed by {found['threshold']} trusted {noun}"
        if not keys:
            yield "no key is trusted"
        width = max((len(key.name) for key in keys), default=0)
        for key in keys:
            yield (f"  {key.key_id[:16]}  {key.name.ljust(width)}  {key.status:<7}  "
                   f"since {key.changed}  {' '.join(key.packages)}")  # fmt: skip


class ShowTrust(_Policy):
    """List trusted keys, their packages, and the required number of signatures."""

    command = "package trust show"

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the policy."""
        from remit.packages.trust import TrustPolicy, read_trust, trust_problem

        path = root.place.path / TrustPolicy.FILE
        policy = read_trust(path, root.ledger)
        self.problem = trust_problem(path, root.ledger)
        return _plain(policy)

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the policy, and a note if the file differs from the ledger."""
        yield from super().lines(found)
        if self.problem:
            yield Note(f"{self.problem} Keep a copy; `remit package trust restore` replaces it.")


class RestoreTrust(_Policy):
    """Rebuild the trust file from the ledger, and replace the current file."""

    command = "package trust restore"

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Restore the file, and return the policy."""
        from remit.packages import package_lock
        from remit.packages.trust import TrustPolicy, restore_trust

        place = root.place.path
        with package_lock(place, root.settings.packages.lock_timeout_s):
            return _plain(restore_trust(place / TrustPolicy.FILE, root.ledger))


class _Change(Operation):
    changes = True

    def changed(self, policy: TrustPolicy) -> TrustPolicy:
        """Return the policy with the change."""
        raise NotImplementedError

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Change the policy, and record the change.

        Raises:
            PackageError: the key cannot be used or is unknown.
        """
        from remit.packages import package_lock
        from remit.packages.trust import TrustPolicy, change_trust

        place, reason = root.place.path, getattr(self, "reason", "")
        with package_lock(place, root.settings.packages.lock_timeout_s):
            policy, entry_id, what = change_trust(
                place / TrustPolicy.FILE, root.ledger, self.changed, by=caller.name, reason=reason
            )
        return {"changed": what, "entry": entry_id, **_plain(policy)}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the change and its entry."""
        entry = found["entry"]
        yield (f"{found['changed']} ({entry})" if entry
               else "no change: the policy is already as requested")  # fmt: skip


def _public(text: str) -> str:
    from remit.packages import PackageError, public_key

    try:
        public_key(text)
    except PackageError as error:
        raise InvalidInputError(error.message, next_step=error.next_step) from error
    return text


def _key_id() -> Any:
    return field("Id of the key.", flag="")


class TrustKey(_Change):
    """Trust a key (ed25519: and 64 hex digits), or change its name or packages."""

    command = "package trust add"

    public: str = field("The public key.", flag="", read=_public)
    name: str = field("Display name.")
    packages: list[str] = field(
        "Packages that the key may sign; PKG-ACME-* is a pattern. Repeat for several (default: "
        "all).", [], metavar="PATTERN",
    )  # fmt: skip

    def changed(self, policy: TrustPolicy) -> TrustPolicy:
        """Return the policy with the key."""
        return policy.with_key(self.public, self.name, tuple(self.packages) or None)


class RetireKey(_Change):
    """Stop accepting new signatures of a key; installed packages stay valid."""

    command = "package trust retire"

    key_id: str = _key_id()

    def changed(self, policy: TrustPolicy) -> TrustPolicy:
        """Return the policy with the key retired."""
        return policy.with_status(self.key_id, "retired")


class RevokeTrust(_Change):
    """Revoke a compromised key permanently: all its signatures become invalid."""

    command = "package trust revoke"

    key_id: str = _key_id()
    reason: str = field("Reason (recorded permanently).")

    def changed(self, policy: TrustPolicy) -> TrustPolicy:
        """Return the policy with the key revoked."""
        return policy.with_status(self.key_id, "revoked")


class SetThreshold(_Change):
    """Set how many different keys must sign a package."""

    command = "package trust threshold"

    number: int = field("Number of keys.", flag="", metavar="N", least=1)

    def changed(self, policy: TrustPolicy) -> TrustPolicy:
        """Return the policy with the threshold."""
        return policy.with_threshold(self.number)


class _KeyFile(Operation):
    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the public key alone, so that a script can read it, and a note."""
        yield found["public"]
        name = f" ({found['name']})" if found["name"] else ""
        yield Note(f"This is the key {found['key_id'][:16]}…{name}.")


class NewPackageKey(_KeyFile):
    """Create a key pair and print the public key, for others to trust."""

    command = "package key new"

    file: Path = field("File to create for the private key.", flag="--out")
    name: str = field("Display name.")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Create the file, and return the public key.

        Raises:
            PackageError: the file exists or cannot be written.
        """
        from remit.packages import PackageKey

        return _of(PackageKey.create(self.file, self.name))

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the public key, and notes on the private one."""
        yield from super().lines(found)
        yield Note(f"The private key is in {self.file}; only you can read it. Keep a backup and "
                   "never share it.")  # fmt: skip


class ShowPackageKey(_KeyFile):
    """Print the public key of a private key file (default: the root's own key)."""

    command = "package key show"

    file: Path | None = field("File of the private key.", None, flag="", metavar="[FILE]")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the public key.

        Raises:
            PackageError: the file cannot be read.
        """
        from remit.packages import PackageKey
        from remit.packages.shipped import root_key_path

        return _of(PackageKey.load(self.file or root_key_path(root.place)))


def _of(key: PackageKey) -> dict[str, Any]:
    return {"key_id": key.key_id, "name": key.name, "public": key.public}


def _plain(policy: TrustPolicy) -> dict[str, Any]:
    return {"threshold": policy.threshold, "keys": policy.keys}
