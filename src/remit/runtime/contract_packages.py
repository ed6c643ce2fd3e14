"""The package and framework of each contract, read from the record."""

from __future__ import annotations

from functools import cached_property
from pathlib import PurePosixPath

from remit.kernel.installed_files import InstalledFiles
from remit.ledger import LedgerClient
from remit.packages import Registry

_CONTRACTS = "HO1/contracts/"


class Owners:
    """Packages and frameworks of a root's contracts, read from the record when they are first
    needed.

    They are remembered: an installation during the lifetime of an instance is seen only by
    :meth:`framework_of`, for packages that were unknown before.

    Args:
        files: the root's installed files, with the package of each.
        ledger: the record of each package's framework.
    """

    def __init__(self, files: InstalledFiles, ledger: LedgerClient) -> None:
        self._files = files
        self._ledger = ledger
        self._frameworks: dict[str, str] = {}

    def framework_of(self, package_id: str) -> str:
        """Return the framework of an installed package; empty if there is no such package.

        The ledger is read again for an unknown package.

        Args:
            package_id: id of the package.

        Raises:
            LedgerError: the ledger cannot be read.
            PackageError: an entry does not describe a package.
        """
        if package_id not in self._frameworks:
            found = Registry.from_ledger(self._ledger).packages
            self._frameworks = {name: one.manifest.framework_id for name, one in found.items()}
        return self._frameworks.get(package_id, "")

    @cached_property
    def of_contracts(self) -> dict[str, tuple[str, str]]:
        """Pairs of package and framework, keyed by contract id; read once.

        Contracts that no package brought are left out.

        Raises:
            LedgerError: the ledger cannot be read.
            PackageError: an entry does not describe a package.
            ChangedFileError: the table of installed files cannot be read.
        """
        found = {}
        for path in self._files.paths(_CONTRACTS):
            package_id = self._files.owner(path)
            contract_id = PurePosixPath(path).stem.partition("@")[0]
            found[contract_id] = package_id, self.framework_of(package_id)
        return found
