"""Installs what a bootstrap brings."""

from __future__ import annotations

from pathlib import Path

from remit.packages import ArchiveLimits
from remit.packages.bootstrap.errors import BootstrapError
from remit.packages.bootstrap.ordering import in_install_order
from remit.packages.bootstrap.report import Installer, InstallReport

__all__ = ["install_bundle"]

_SUFFIX = ".tar.gz"


def install_bundle(
    root: Path, directory: Path, *, dev: bool, install: Installer, limits: ArchiveLimits
) -> InstallReport:
    """Install every package in a directory, in the order in which they need each other.

    Args:
        root: where to.
        directory: the unpacked ``packages/``.
        dev: see :class:`Installer`.
        install: does it.
        limits: what reading one archive may cost.

    Raises:
        BootstrapError: the directory cannot be read or holds no packages.
        PackageError: one is not a package or cannot be installed; nothing was changed.
    """
    archives: dict[str, bytes] = {}
    try:
        for path in sorted(directory.iterdir()):
            if path.name.endswith(_SUFFIX):
                with path.open("rb") as stream:  # one byte too many is refused by the reader
                    archives[path.name] = stream.read(limits.compressed_bytes + 1)
    except OSError as error:
        raise BootstrapError(
            f"{error.filename or directory} cannot be read: {error.strerror or error}.",
            next_step="Give the directory packages/ of the unpacked CP_BOOTSTRAP.tar.gz.",
        ) from error
    ordered = in_install_order(archives, limits)
    return install(root, [directory / one.archive for one in ordered], dev)
