"""``remit package index``: where packages come from, and publishing such a place."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.package_authoring import package_settings
from remit.cli.shared import echo_json, note, open_settings, reads, say

if TYPE_CHECKING:
    from remit.packages.index import IndexPublisher, Listed, PackageIndex

__all__ = ["index"]

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_SERVED = click.argument("directory", type=_DIRECTORY)
_KEYS = click.option(
    "--keys",
    required=True,
    type=_DIRECTORY,
    metavar="KEYDIR",
    help="Where the private keys lie; not in DIRECTORY.",
)


@click.group()
def index() -> None:
    """Package indexes: where packages come from, signed so that nobody in between can lie."""


@index.command()
@click.argument("name")
@click.argument("location")
@click.option(
    "--root-metadata",
    required=True,
    type=_FILE,
    help="The index's N.root.json, which you got on a way that you trust.",
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
    """Take packages from a directory or a web server from now on."""
    from remit.packages.index import PackageIndex

    place, loaded = open_settings(root)
    settings = loaded.settings.packages
    made = PackageIndex(place.path, name, location, settings, insecure_http=insecure_http)
    with root_metadata.open("rb") as file:
        data = file.read(settings.index.metadata_bytes + 1)
    if len(data) > settings.index.metadata_bytes:
        raise click.BadParameter(f"{root_metadata} is too long for root metadata.")
    given = made.add(data)
    if as_json:
        echo_json({**_status(made), "root_sha256": given.sha256, "root_keys": list(given.keyids)})
        return
    say(f"{name}: {made.location}, {_count(len(made.search()))}")
    note(f"trusted by root metadata {given.version}, {given.sha256}")
    for keyid in given.keyids:
        note(f"  key {keyid}")
    if insecure_http:
        note("What is installed is verified; who is in between sees it and can keep it from you.")


@index.command("list")
@reads
def list_all(root: Path | None, as_json: bool) -> None:
    """The indexes of this root, and how fresh what is known of them is."""
    found = [_status(one) for one in _opened(root, None)]
    if as_json:
        echo_json({"indexes": found})
        return
    for one in found:
        state = f"{_count(one['packages'])}, good until {one['expires']}"
        say(f"{one['name']}  {one['location']}  {one['problem'] or state}")
        if one["expired"]:
            note(f"{one['name']} has expired: `remit package index refresh {one['name']}`.")


@index.command()
@click.argument("name", required=False)
@reads
def refresh(root: Path | None, as_json: bool, name: str | None) -> None:
    """Fetch what an index, or each of them, has now."""
    from remit.packages import PackageError

    done: list[dict[str, Any]] = []
    failed: list[PackageError] = []
    for one in _opened(root, name):
        try:
            one.refresh()
        except PackageError as error:
            failed.append(error)
            done.append({**_status(one), "refreshed": False, "problem": error.message})
        else:
            done.append({**_status(one), "refreshed": True})
            if not as_json:
                status = done[-1]
                say(f"{one.name}: {_count(status['packages'])}, good until {status['expires']}")
    if as_json:
        echo_json({"indexes": done})
    for problem in failed[:-1]:
        note(f"error: {problem.message}")
        note(f"  next: {problem.next_step}")
    if failed:
        raise failed[-1]


@index.command()
@click.argument("text", default="")
@click.option("--index", "name", help="Only in this one.")
@click.option("--versions", is_flag=True, help="All versions, not the newest alone.")
@reads
def search(root: Path | None, as_json: bool, text: str, name: str | None, versions: bool) -> None:
    """Packages whose id or title holds TEXT; all without it. Nothing is fetched."""
    rows: list[tuple[str, Listed]] = []
    for one in _opened(root, name):
        for newest in one.search(text):
            listed = one.versions(newest.package_id) if versions else [newest]
            rows += [(one.name, item) for item in listed]
        if one.known().expires <= datetime.now(UTC):
            note(f"What is known of {one.name} has expired: `remit package index refresh`.")
    if as_json:
        echo_json({"packages": [{"index": where, **asdict(item)} for where, item in rows]})
        return
    width = max((len(item.package_id) for _, item in rows), default=0)
    for where, item in rows:
        signed = "signed" if item.signed else "unsigned"
        say(f"{item.package_id:<{width}}  {item.version:<8}  {signed:<8}  {where}  {item.title}")


@index.command()
@click.argument("name")
@reads
def remove(root: Path | None, as_json: bool, name: str) -> None:
    """Take no packages from an index any more; what came from it stays."""
    from remit.packages.index import remove_index

    place, loaded = open_settings(root)
    remove_index(place.path, name, loaded.settings.packages.lock_timeout_s)
    if as_json:
        echo_json({"removed": name})
    else:
        say(f"{name} removed")


@index.command()
@_SERVED
@_KEYS
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="ROLE=N",
    help="So many keys have to sign: root=2. 1 where nothing is said.",
)
@reads
def init(
    root: Path | None, as_json: bool, directory: Path, keys: Path, thresholds: tuple[str, ...]
) -> None:
    """Make an empty index to publish, and its keys."""
    from remit.packages.index import RootMetadata

    wanted: dict[str, int] = {}
    for text in thresholds:
        role, _, number = text.partition("=")
        if not (number.isascii() and number.isdigit() and len(number) < 4):
            raise click.BadParameter(f"{text!r} is not such as root=2.", param_hint="--threshold")
        wanted[role] = int(number)
    made = _publisher(root, directory, keys).create(wanted)
    metadata = RootMetadata.parse(made.read_bytes())
    if as_json:
        echo_json({"root_metadata": str(made), "sha256": metadata.sha256, "keys": str(keys)})
        return
    say(str(made))
    note(f"Give this file to those who use the index, on a way that they trust: {metadata.sha256}")
    note(f"Keep {keys} to yourself, and root.pem apart from the rest.")


@index.command()
@_SERVED
@click.argument("archives", nargs=-1, required=True, type=_FILE, metavar="ARCHIVE…")
@_KEYS
@reads
def publish(
    root: Path | None, as_json: bool, directory: Path, archives: tuple[Path, ...], keys: Path
) -> None:
    """Put packages into an index, with the signatures (….intoto.json) that lie beside them."""
    from remit.packages.admission import IncomingArchive

    beside = [(one, IncomingArchive.envelope_file(one)) for one in archives]
    publisher = _publisher(root, directory, keys)
    listed = publisher.publish_all(
        (archive, envelope if envelope.exists() else None) for archive, envelope in beside
    )
    expiry = publisher.expiry()
    if as_json:
        packages = [asdict(item) for item in listed]
        echo_json({"packages": packages, "expires": _times(expiry)})
        return
    for one in listed:
        say(f"{one.package_id} {one.version} {'signed' if one.signed else 'unsigned'} {one.digest}")
    _note_expiry(expiry)


@index.command()
@_SERVED
@click.argument("package_id")
@click.argument("version")
@_KEYS
@reads
def withdraw(
    root: Path | None, as_json: bool, directory: Path, package_id: str, version: str, keys: Path
) -> None:
    """Take a version out of an index; where it is installed, it stays."""
    _publisher(root, directory, keys).withdraw(package_id, version)
    if as_json:
        echo_json({"withdrawn": {"package_id": package_id, "version": version}})
    else:
        say(f"{package_id} {version} withdrawn")


@index.command()
@_SERVED
@_KEYS
@click.option("--all", "everything", is_flag=True, help="Root and targets too, with their keys.")
@reads
def renew(root: Path | None, as_json: bool, directory: Path, keys: Path, everything: bool) -> None:
    """Sign an index again before it expires; to be run by a timer."""
    expiry = _publisher(root, directory, keys).refresh(everything=everything)
    if as_json:
        echo_json({"expires": _times(expiry)})
    else:
        _note_expiry(expiry)


@index.command()
@_SERVED
@click.argument("role", type=click.Choice(["root", "targets", "snapshot", "timestamp"]))
@_KEYS
@reads
def rotate(root: Path | None, as_json: bool, directory: Path, role: str, keys: Path) -> None:
    """Give a role new keys; clients follow by themselves. Needs the keys of root."""
    aside = _publisher(root, directory, keys).rotate(role)
    if as_json:
        echo_json({"role": role, "retired": [str(file) for file in aside]})
        return
    say(f"{role} has new keys")
    for file in aside:
        note(f"{file} counts no more.")


def _opened(root: Path | None, name: str | None) -> list[PackageIndex]:
    from remit.packages.index import PackageIndex, open_indexes

    place, loaded = open_settings(root)
    if name is not None:
        return [PackageIndex.open(place.path, name, loaded.settings.packages)]
    return open_indexes(place.path, loaded.settings.packages)


def _publisher(root: Path | None, directory: Path, keys: Path) -> IndexPublisher:
    """Publishers need no root; the settings of one that is there count."""
    from remit.packages.index import IndexPublisher

    return IndexPublisher(directory, keys, package_settings(root))


def _status(index: PackageIndex) -> dict[str, Any]:
    """What is known of it; a damaged one is listed with its problem."""
    from remit.packages import PackageError

    status: dict[str, Any] = {"name": index.name, "location": index.location}
    try:
        state, packages = index.known(), len(index.search())
    except PackageError as error:
        none = {"packages": 0, "expires": "", "expired": False, "root_version": 0}
        return {**status, **none, "problem": error.message}
    return {
        **status,
        "packages": packages,
        "expires": _time(state.expires),
        "expired": state.expires <= datetime.now(UTC),
        "root_version": state.root_version,
        "problem": "",
    }


def _count(number: int) -> str:
    return f"{number} package" if number == 1 else f"{number} packages"


def _times(expiry: dict[str, datetime]) -> dict[str, str]:
    return {role: _time(moment) for role, moment in expiry.items()}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _note_expiry(expiry: dict[str, datetime]) -> None:
    for role, moment in _times(expiry).items():
        note(f"{role:<9} expires {moment}")
