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
    """Keys that sign packages."""


@key.command()
@click.option("--out", required=True, type=FILE, help="The new file, for the private key.")
@click.option("--name", required=True, help="What people call it.")
@reads
def new(root: Path | None, as_json: bool, out: Path, name: str) -> None:
    """Make a key pair. Prints the public key, which is what others need."""
    from remit.packages import PackageKey

    made = PackageKey.create(out, name)
    _show_key(made, as_json)
    note(f"The private key is in {out}, readable for you alone. Keep a copy and never share it.")


@key.command(name="show")
@click.argument("file", required=False, type=FILE)
@reads
def show_key(root: Path | None, as_json: bool, file: Path | None) -> None:
    """Print the public key of a private key's file; without one, of the root's own key."""
    from remit.packages import PackageKey

    if file is None:
        from remit.packages.shipped import root_key_path

        file = root_key_path(open_settings(root)[0])
    _show_key(PackageKey.load(file), as_json)


@click.group()
def trust() -> None:
    """Which keys may sign the packages of this root."""


@trust.command()
@reads
def show(root: Path | None, as_json: bool) -> None:
    """The keys, what they may sign, and how many have to. Exit 1 when the file was changed."""
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
@click.option("--name", required=True, help="What people call it.")
@click.option(
    "--packages", multiple=True, metavar="PATTERN",
    help="Only these packages: PKG-ACME-* is a pattern. May be given several times; all, when "
    "never given for this key.",
)  # fmt: skip
@reads
def add(
    root: Path | None, as_json: bool, public: str, name: str, packages: tuple[str, ...]
) -> None:
    """Trust a key: ed25519: and 64 hex digits. Again, with another name or other packages."""
    patterns = packages or None
    _change(root, as_json, lambda policy: policy.with_key(public, name, patterns))


@trust.command()
@click.argument("key_id")
@reads
def retire(root: Path | None, as_json: bool, key_id: str) -> None:
    """A key signs nothing new. What it signed and is installed stays good."""
    _change(root, as_json, lambda policy: policy.with_status(key_id, "retired"))


@trust.command()
@click.argument("key_id")
@click.option("--reason", required=True, help="Why; stays on record.")
@reads
def revoke(root: Path | None, as_json: bool, key_id: str, reason: str) -> None:
    """A key that others may have: no signature of it counts any more, for good."""
    _change(root, as_json, lambda policy: policy.with_status(key_id, "revoked"), reason)


@trust.command()
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@reads
def threshold(root: Path | None, as_json: bool, number: int) -> None:
    """So many different keys have to sign a package."""
    _change(root, as_json, lambda policy: policy.with_threshold(number))


@trust.command()
@reads
def restore(root: Path | None, as_json: bool) -> None:
    """Write the file again from the ledger, in the place of what is there."""
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
    line = f"{what} ({entry_id})" if entry_id else "nothing changed: it is so already"
    emit(as_json, {"changed": what, "entry": entry_id, **_plain(policy)}, [line])


def _plain(policy: TrustPolicy) -> dict[str, Any]:
    return {"threshold": policy.threshold, "keys": policy.keys}


def _lines(policy: TrustPolicy) -> Iterator[str]:
    noun = "key has" if policy.threshold == 1 else "keys have"
    yield f"{policy.threshold} trusted {noun} to sign a package"
    if not policy.keys:
        yield "no key is trusted"
    width = max((len(key.name) for key in policy.keys), default=0)
    for key in policy.keys:
        yield (
            f"  {key.key_id[:16]}  {key.name.ljust(width)}  {key.status:<7}  "
            f"since {key.changed}  {' '.join(key.packages)}"
        )


def _show_key(found: PackageKey, as_json: bool) -> None:
    """The public key alone on standard output, so that a script can take it."""
    public = {"key_id": found.key_id, "name": found.name, "public": found.public}
    emit(as_json, public, [found.public])
    if not as_json:
        note(f"This is the key {found.key_id[:16]}…{f' ({found.name})' if found.name else ''}.")
