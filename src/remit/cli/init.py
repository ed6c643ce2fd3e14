"""``remit init``: making a root, or putting back what is missing of one."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.shared import FOLDER, common, note, show_step, whoami


@click.command()
@click.argument("directory", required=False, type=FOLDER)
@click.option(
    "--bare", is_flag=True, help="Keys and an empty ledger only: `remit ledger import` comes next."
)
@click.option(
    "--new-ledger",
    is_flag=True,
    help="Begin a new record where the old one is lost, and trust the root's own key again.",
)
@common
def init(directory: Path | None, root: Path | None, bare: bool, new_ledger: bool) -> None:
    """Make a root in DIRECTORY (default: ./.remit), or put back what is missing of one."""
    from remit.kernel.installation import InstalledFiles
    from remit.kernel.root import Root, find_root
    from remit.packages.shipped import ASIDE_FOLDER
    from remit.runtime import make_root

    if bare and new_ledger:
        raise click.UsageError("--bare and --new-ledger exclude each other.")
    given = directory or root
    place = Root(given) if given is not None else find_root()
    before = _files(place.path)
    editable = make_root(place, bare=bare, new_ledger=new_ledger, by=whoami(), step=show_step)
    made = len(_files(place.path) - before)
    if editable and not before:
        note("Remit runs from an editable install: no hashes to check. Waived, on record.")
    note(f"{place.path} is {'made' if made else 'complete'}.")
    aside = place.path / ASIDE_FOLDER
    if aside.is_dir() and not any(file.is_relative_to(aside) for file in before):
        note(f"Files of an earlier version were in the way; they lie in {aside} now.")
    for path in InstalledFiles(place.path).changed():
        note(
            f"{path} is not as it was installed; `remit package restore` replaces it. Keep a copy."
        )
    if made and not bare:
        note("next: `remit setup` sets a provider up, makes a key with a budget and a first call;")
        note("      `remit chat` talks to the ADMIN agent; `remit doctor` says what is missing.")


def _files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}
