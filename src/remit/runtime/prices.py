"""What the models of a root cost."""

from __future__ import annotations

from remit.kernel.installed import InstalledFiles
from remit.kernel.root import Root
from remit.providers.prices import PriceTable


def prices_of(root: Root, file: str) -> PriceTable:
    """The prices that packages brought, under those of a file of the root, where it names one."""
    files = InstalledFiles(root.path)
    brought = PriceTable.installed(files)
    if not file:
        return brought
    if files.owner(file):  # what a package brought counts only as it brought it
        files.read(file)
    return brought.overlaid(PriceTable.from_file(root.path / file))
