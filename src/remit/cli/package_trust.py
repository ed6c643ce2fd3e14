"""``remit package trust`` and ``remit package key``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import FILE, emit, note, open_ledger, open_settings, reads, whoami

if TYPE_CHECKING:
    from remit.packages import PackageKey
    from remit.packages.trust import TrustPolicy

__all__ = ["key", "trust"]


def _public(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from remit.packages import PackageError, public_key

    try:
        public_key(value)
    except PackageError as error:
        raise click.BadParameter(f"{error.message} {error.next_step}") from error
    return value


@click.group()
def key() -> None:
    """Manage keys that sign packages."""


@key.command()
@click.option("--out", required=True, type=FILE, help="File to create for the private key.")
@click.option("--name", required=True, help="Display name.")
@reads
def new(root: Path | None, as_json: bool, out: Path, name: str) -> None:
    """Create a key pair and print the public key, for others to trust."""
    from remit.packages import PackageKey

    made = PackageKey.create(out, name)
    _show_key(made, as_json)
    note(f"The private key is in {out}; only you can read it. Keep a backup and never share it.")


@key.command(name="show")
@click.argument("file", required=False, type=FILE)
@reads
def show_key(root: Path | None, as_json: bool, file: Path | None) -> None:
    """Print the public key of a private key file (default: the root's own key)."""
    from remit.packages import PackageKey

    if file is None:
        from remit.packages.shipped import root_key_path

        file = root_key_path(open_settings(root)[0])
    _show_key(PackageKey.load(file), as_json)


@click.group()
def trust() -> None:
    """Manage the keys that may sign packages of this root."""


@trust.command()
@reads
def show(root: Path | None, as_json: bool) -> None:
    """List trusted keys, their packages, and the required number of signatures."""
    from remit.packages.trust import TrustPolicy, read_trust, trust_problem

    path = open_settings(root)[0].path / TrustPolicy.FILE
    with open_ledger(root) as ledger:
        policy = read_trust(path, ledger)
        problem = trust_problem(path, ledger)
    emit(as_json, _plain(policy), _lines(policy))
    if problem:
        note(f"{problem} Keep a copy; `remit package trust restore` replaces it.")


@trust.command()
@click.argument("public", metavar="PUBLIC", callback=_public)
@click.option("--name", required=True, help="Display name.")
@click.option(
    "--packages", multiple=True, metavar="PATTERN",
    help="Packages that the key may sign; PKG-ACME-* is a pattern. Repeat for several (default: "
         "all).",
)  # fmt: skip
@reads
def add(
    root: Path | None, as_json: bool, public: str, name: str, packages: tuple[str, ...]
) -> None:
    """Trust a key (ed25519: and 64 hex digits), or change its name or packages."""
    patterns = packages or None
    _change(root, as_json, lambda policy: policy.with_key(public, name, patterns))


@trust.command()
@click.argument("key_id")
@reads
def retire(root: Path | None, as_json: bool, key_id: str) -> None:
    """Stop accepting new signatures of a key; installed packages stay valid."""
    _change(root, as_json, lambda policy: policy.with_status(key_id, "retired"))


@trust.command()
@click.argument("key_id")
@click.option("--reason", required=True, help="Reason (recorded permanently).")
@reads
def revoke(root: Path | None, as_json: bool, key_id: str, reason: str) -> None:
    """Revoke a compromised key permanently: all its signatures become invalid."""
    _change(root, as_json, lambda policy: policy.with_status(key_id, "revoked"), reason)


@trust.command()
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@reads
def threshold(root: Path | None, as_json: bool, number: int) -> None:
    """Set how many different keys must sign a package."""
    _change(root, as_json, lambda policy: policy.with_threshold(number))


@trust.command()
@reads
def restore(root: Path | None, as_json: bool) -> None:
    """Rebuild the trust file from the ledger, and replace the current file."""
    from remit.packages import package_lock
    from remit.packages.trust import TrustPolicy, restore_trust

    place, loaded = open_settings(root)
    with (
        open_ledger(root) as ledger,
        package_lock(place.path, loaded.settings.packages.lock_timeout_s),
    ):
        policy = restore_trust(place.path / TrustPolicy.FILE, ledger)
    emit(as_json, _plain(policy), _lines(policy))


def _change(
    root: Path | None,
    as_json: bool,
    change: Callable[[TrustPolicy], TrustPolicy],
    reason: str = "",
) -> None:
    from remit.packages import package_lock
    from remit.packages.trust import TrustPolicy, change_trust

    place, loaded = open_settings(root)
    with (
        open_ledger(root, signing=True) as ledger,
        package_lock(place.path, loaded.settings.packages.lock_timeout_s),
    ):
        policy, entry_id, what = change_trust(
            place.path / TrustPolicy.FILE, ledger, change, by=whoami(), reason=reason
        )
    line = f"{what} ({entry_id})" if entry_id else "no change: the policy is already as requested"
    emit(as_json, {"changed": what, "entry": entry_id, **_plain(policy)}, [line])


def _plain(policy: TrustPolicy) -> dict[str, Any]:
    return {"threshold": policy.threshold, "keys": policy.keys}


def _lines(policy: TrustPolicy) -> Iterator[str]:
    noun = "key" if policy.threshold == 1 else "keys"
    yield f"a package must be signed by {policy.threshold} trusted {noun}"
    if not policy.keys:
        yield "no key is trusted"
    width = max((len(key.name) for key in policy.keys), default=0)
    for key in policy.keys:
        yield (
            f"  {key.key_id[:16]}  {key.name.ljust(width)}  {key.status:<7}  "
            f"since {key.changed}  {' '.join(key.packages)}"
        )


def _show_key(found: PackageKey, as_json: bool) -> None:
    """Print only the public key on standard output, and a note on standard error.

    A script can read the key directly.
    """
    public = {"key_id": found.key_id, "name": found.name, "public": found.public}
    emit(as_json, public, [found.public])
    if not as_json:
        note(f"This is the key {found.key_id[:16]}…{f' ({found.name})' if found.name else ''}.")
