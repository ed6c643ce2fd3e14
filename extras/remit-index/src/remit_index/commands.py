"""``remit package index``: use and publish package indexes."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from remit.cli.options import FOLDER, reads
from remit.cli.output import echo_json, emit, note, say
from remit.cli.roots import open_settings
from remit.kernel.canonical import sha256_hex
from remit.operations import package_settings
from remit.packages import PackageError
from remit_index.client import PackageIndex, open_indexes, remove_index
from remit_index.listing import Listed
from remit_index.publisher import IndexPublisher

__all__ = ["index"]

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_SERVED = click.argument("directory", type=FOLDER)
_KEYS = click.option(
    "--keys",
    required=True,
    type=FOLDER,
    metavar="KEYDIR",
    help="Directory of the private keys, outside DIRECTORY.",
)


@click.group()
def index() -> None:
    """Manage package indexes, which are signed so that no mirror can change a package."""


@index.command()
@click.argument("name")
@click.argument("location")
@click.option(
    "--root-metadata",
    required=True,
    type=_FILE,
    help="The index's N.root.json, from a source that you trust.",
)
@click.option("--insecure-http", is_flag=True, help="Allow http without encryption.")
@reads
def add(
    root: Path | None,
    as_json: bool,
    name: str,
    location: str,
    root_metadata: Path,
    insecure_http: bool,
) -> None:
    """Add an index, a directory or a web server, to install packages from."""
    place, loaded = open_settings(root)
    settings = loaded.settings.packages
    made = PackageIndex(place.path, name, location, settings, insecure_http=insecure_http)
    data = root_metadata.read_bytes()
    given = made.add(data)
    digest, keyids = _digest(data), sorted(given.roles["root"].keyids)
    status = _status(made)
    found = {**status, "root_sha256": digest, "root_keys": keyids}
    emit(as_json, found, [f"{name}: {made.location}, {_count(status)}"])
    if as_json:
        return
    note(f"trusted by root metadata {given.version}, {digest}")
    for keyid in keyids:
        note(f"  key {keyid}")
    if insecure_http:
        note("Packages are still verified, but the network can read and withhold them.")


@index.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """List the indexes of this root, with the expiry of their metadata."""
    found = [_status(each) for each in _opened(root, None)]
    emit(as_json, {"indexes": found}, (
        f"{each['name']}  {each['location']}  {each['problem'] or _validity(each)}"
        for each in found
    ))  # fmt: skip
    if not (found or as_json):
        note("This root has no index. `remit package index add` adds one.")
    for each in () if as_json else found:
        if each["expired"]:
            note(f"{each['name']} has expired. Run `remit package index refresh {each['name']}`.")


@index.command()
@click.argument("name", required=False)
@reads
def refresh(root: Path | None, as_json: bool, name: str | None) -> None:
    """Fetch the current metadata of an index, or of all indexes."""
    found: list[dict[str, Any]] = []
    failed: list[PackageError] = []
    for each in _opened(root, name):
        problem = {}
        try:
            each.refresh()
        except PackageError as error:
            failed.append(error)
            problem = {"problem": error.message}
        found.append({**_status(each), "refreshed": not problem, **problem})
    done = (each for each in found if each["refreshed"])
    emit(as_json, {"indexes": found}, (f"{each['name']}: {_validity(each)}" for each in done))
    for other in failed[:-1]:
        note(f"error: {other.message}")
        note(f"  next: {other.next_step}")
    if failed:
        raise failed[-1]


@index.command()
@click.argument("text", default="")
@click.option("--index", "name", help="Search only this index.")
@click.option("--versions", is_flag=True, help="List all versions instead of the newest only.")
@reads
def search(root: Path | None, as_json: bool, text: str, name: str | None, versions: bool) -> None:
    """List packages whose id or title contains TEXT, or all packages. Nothing is fetched."""
    rows: list[tuple[str, Listed]] = []
    for each in _opened(root, name):
        known = each.known()
        for newest in each.search(text):
            listed = known.packages[newest.package_id] if versions else [newest]
            rows += [(each.name, item) for item in listed]
        if known.expires <= datetime.now(UTC):
            note(f"The metadata of {each.name} has expired. Run `remit package index refresh`.")
    width = max((len(item.package_id) for _, item in rows), default=0)
    emit(
        as_json,
        {"packages": [{"index": where, **asdict(item)} for where, item in rows]},
        (
            f"{item.package_id:<{width}}  {item.version:<8}  {_signed(item):<8}  {where}  "
            f"{item.title}"
            for where, item in rows
        ),
    )


@index.command()
@click.argument("name")
@reads
def remove(root: Path | None, as_json: bool, name: str) -> None:
    """Remove an index from this root; packages installed from it stay."""
    place, loaded = open_settings(root)
    remove_index(place.path, name, loaded.settings.packages.lock_timeout_s)
    emit(as_json, {"removed": name}, [f"{name} removed"])


@index.command()
@_SERVED
@_KEYS
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="ROLE=N",
    help="Number of keys that must sign for a role, such as root=2 (default: 1).",
)
@reads
def init(
    root: Path | None, as_json: bool, directory: Path, keys: Path, thresholds: tuple[str, ...]
) -> None:
    """Create an empty index to publish, and its keys."""
    wanted: dict[str, int] = {}
    for text in thresholds:
        role, _, number = text.partition("=")
        if not (number.isascii() and number.isdigit() and len(number) < 4):
            raise click.BadParameter(
                f"{text!r} is not a role and a number, such as root=2.", param_hint="--threshold"
            )
        wanted[role] = int(number)
    made = _publisher(root, directory, keys).create(wanted)
    digest = _digest(made.read_bytes())
    emit(as_json, {"root_metadata": str(made), "sha256": digest, "keys": str(keys)}, [str(made)])
    if not as_json:
        note(f"Give the users of the index this file through a channel that they trust: {digest}")
        note(f"Keep {keys} secret, and store root.pem apart from the other keys.")


@index.command()
@_SERVED
@click.argument("archives", nargs=-1, required=True, type=_FILE, metavar="ARCHIVE…")
@_KEYS
@reads
def publish(
    root: Path | None, as_json: bool, directory: Path, archives: tuple[Path, ...], keys: Path
) -> None:
    """Publish packages in an index, with the signature files (….intoto.json) next to them."""
    publisher = _publisher(root, directory, keys)
    packages = publisher.publish(*archives)
    for item in () if as_json else packages:
        say(f"{item.package_id} {item.version} {_signed(item)} {item.digest}")
    _show_expiry(as_json, publisher.expiry, packages=[asdict(item) for item in packages])


@index.command()
@_SERVED
@click.argument("package_id")
@click.argument("version")
@_KEYS
@reads
def withdraw(
    root: Path | None, as_json: bool, directory: Path, package_id: str, version: str, keys: Path
) -> None:
    """Withdraw a version from an index; roots that installed it keep it."""
    _publisher(root, directory, keys).withdraw(package_id, version)
    found = {"withdrawn": {"package_id": package_id, "version": version}}
    emit(as_json, found, [f"{package_id} {version} withdrawn"])


@index.command()
@_SERVED
@_KEYS
@click.option(
    "--all", "everything", is_flag=True, help="Also sign root and targets with their keys."
)
@reads
def renew(root: Path | None, as_json: bool, directory: Path, keys: Path, everything: bool) -> None:
    """Sign an index again before it expires; run this with a timer."""
    _show_expiry(as_json, _publisher(root, directory, keys).renew(everything=everything))


@index.command()
@_SERVED
@click.argument("role", type=click.Choice(["root", "targets", "snapshot", "timestamp"]))
@_KEYS
@reads
def rotate(root: Path | None, as_json: bool, directory: Path, role: str, keys: Path) -> None:
    """Replace the keys of a role, which needs the root keys. Clients need no change."""
    retired = _publisher(root, directory, keys).rotate(role)
    found = {"role": role, "retired": [str(file) for file in retired]}
    emit(as_json, found, [f"{role} has new keys"])
    for file in () if as_json else retired:
        note(f"{file} is no longer valid.")


def _opened(root: Path | None, name: str | None) -> list[PackageIndex]:
    place, loaded = open_settings(root)
    if name is not None:
        return [PackageIndex.open(place.path, name, loaded.settings.packages)]
    return open_indexes(place.path, loaded.settings.packages)


def _publisher(root: Path | None, directory: Path, keys: Path) -> IndexPublisher:
    """Return a publisher; the settings come from the root, or are the defaults without one."""
    return IndexPublisher(directory, keys, package_settings(root))


def _status(index: PackageIndex) -> dict[str, Any]:
    """Return the state of an index; a damaged one has a ``problem``."""
    status: dict[str, Any] = {"name": index.name, "location": index.location}
    try:
        known = index.known()
    except PackageError as error:
        none = {"packages": 0, "expires": "", "expired": False, "root_version": 0}
        return {**status, **none, "problem": error.message}
    return {
        **status,
        "packages": len(known.packages),
        "expires": _time(known.expires),
        "expired": known.expires <= datetime.now(UTC),
        "root_version": known.root_version,
        "problem": "",
    }


def _count(status: dict[str, Any]) -> str:
    number = status["packages"]
    return f"{number} package" if number == 1 else f"{number} packages"


def _validity(status: dict[str, Any]) -> str:
    return f"{_count(status)}, valid until {status['expires']}"


def _signed(item: Listed) -> str:
    return "signed" if item.signed else "unsigned"


def _digest(data: bytes) -> str:
    return f"sha256:{sha256_hex(data)}"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _show_expiry(as_json: bool, expiry: dict[str, datetime], **more: Any) -> None:
    times = {role: _time(moment) for role, moment in expiry.items()}
    if as_json:
        echo_json({**more, "expires": times})
        return
    for role, moment in times.items():
        note(f"{role:<9} expires {moment}")
