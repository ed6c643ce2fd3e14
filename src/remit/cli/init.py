"""``remit init``: creates a root, or restores missing parts of a root."""

from __future__ import annotations

from pathlib import Path

import click

from remit.cli.shared import FOLDER, common, note, show_step, whoami

EXAMPLES = ("batch_csv", "research_agent", "support_agent")
"""Names of the examples of the distribution."""


@click.command()
@click.argument("directory", required=False, type=FOLDER)
@click.option(
    "--bare", is_flag=True, help="Create only keys and an empty ledger, for `remit ledger import`."
)
@click.option(
    "--new-ledger",
    is_flag=True,
    help="Start a new ledger if the old one is lost, and trust the root's own key again.",
)
@click.option(
    "--example",
    type=click.Choice(EXAMPLES),
    help="Also write this example to a new directory of its name.",
)
@common
def init(
    directory: Path | None, root: Path | None, bare: bool, new_ledger: bool, example: str | None
) -> None:
    """Create a root in DIRECTORY (default: ./.remit), or restore its missing files."""
    from remit.kernel.installation import InstalledFiles
    from remit.kernel.root import Root, find_root
    from remit.packages.shipped import ASIDE_FOLDER, copy_files
    from remit.runtime import make_root

    if bare and new_ledger:
        raise click.UsageError("--bare and --new-ledger exclude each other.")
    if example is not None:
        copy_files(f"examples/{example}", Path(example))
        note(f"The example was written to {example}; the head of {example}.py describes it.")
    given = directory or root
    place = Root(given) if given is not None else find_root()
    before = _files(place.path)
    editable = make_root(place, bare=bare, new_ledger=new_ledger, by=whoami(), step=show_step)
    made = len(_files(place.path) - before)
    if editable and not before:
        note(
            "Remit is an editable install without file hashes. The check is waived; the waiver "
            "is recorded."
        )
    note(f"{place.path} {'was created' if made else 'already exists; no files are missing'}.")
    aside = place.path / ASIDE_FOLDER
    if aside.is_dir() and not any(file.is_relative_to(aside) for file in before):
        note(f"Files of an earlier version were moved to {aside}.")
    for path in InstalledFiles(place.path).changed():
        note(
            f"{path} was changed after installation. `remit package restore` replaces it; keep a "
            "copy."
        )
    if made and not bare:
        note(
            "next: `remit setup` configures a provider, creates a key with a budget, and makes "
            "a first call;"
        )
        note(
            "      `remit chat` starts a conversation with the ADMIN agent; `remit doctor` "
            "checks the installation."
        )


def _files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}
