"""Files of installed packages on the disk: the changes that follow from the ledger.

Every change may be repeated: what a killed process left is finished by the next one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from remit.kernel.installed_files import digest_of
from remit.packages.archive import Archive
from remit.packages.archive_checks import Candidate
from remit.packages.errors import PackageError
from remit.packages.journal import (
    INSTALLED_FOLDER,
    Operation,
    Step,
    check_folders,
    has_digest,
    remove_file,
)
from remit.packages.registry import (
    REGISTRY_FOLDER,
    InstalledPackage,
    Registry,
    archive_path,
    envelope_path,
    receipt_bytes,
    receipt_path,
)

ArchiveOf = Callable[[InstalledPackage], Archive]
"""Returns the stored archive of a package. Raises PackageError if it is lost."""


class PackageFiles:
    """The files, archives, receipts and registries of the packages of one root.

    The methods make the disk agree with the ledger: they place the files of an operation, delete
    obsolete files, and write missing or differing files. The caller holds the packages' lock.
    Nothing is cached.

    Args:
        root: the directory of the root.
        keep_versions: number of versions of a package whose archives stay stored.
        step: called with a text before each step on the disk.
    """

    def __init__(self, root: Path, keep_versions: int, step: Step) -> None:
        self._path = root
        self._keep_versions = keep_versions
        self._step = step

    def finish(self, operation: Operation, registry: Registry) -> None:
        """Make the root agree with a recorded operation, and delete its journal; may be repeated.

        Places staged files, deletes obsolete ones and folders of removed packages, and writes
        registries and receipts. After an error the journal stays.

        Args:
            operation: the operation, with its staged files.
            registry: the registry after the operation, which must contain the operation.

        Raises:
            PackageError: ``unfinished``: a file could not be written or deleted; ``linked_folder``:
                a path leads through a link or file.
        """
        packages = registry.operations[operation.operation_id]
        files: dict[str, str] = {}
        for package in (registry.packages[name] for name in packages if name in registry.packages):
            files |= {asset.path: asset.sha256 for asset in package.manifest.assets}
            files[archive_path(package)] = package.archive_sha256
            files[envelope_path(package)] = str(package.signature["envelope_sha256"])
        try:
            operation.place(files, self._step)
            self.delete(self.obsolete(registry, packages))
            self.write_documents(registry, packages)
            self.delete_folders(registry, packages)
            self._step("close")
            operation.close()
        except OSError as error:
            raise PackageError(
                "unfinished",
                f"The change of {', '.join(packages)} is recorded, but its files could not be "
                f"written: {error.strerror or error}.",
                next_step="Repair the disk; the next package command finishes the change.",
            ) from error

    def obsolete(self, registry: Registry, packages: Iterable[str]) -> Iterator[str]:
        """Yield paths of files that the given packages once installed and that no package owns now.

        Paths are relative to the root. A changed or unreadable file is not obsolete. A missing file
        is, because a killed deletion may leave empty folders. Of each package, stored archives and
        signature envelopes beyond the ``keep_versions`` versions installed last are obsolete too.

        Args:
            registry: the registry after the change.
            packages: ids of the packages.
        """
        for name in packages:
            history = registry.history.get(name, [])
            digests: dict[str, set[str]] = {}
            for asset in (asset for known in history for asset in known.manifest.assets):
                digests.setdefault(asset.path, set()).add(asset.sha256)
            for path, known_digests in digests.items():
                file = self._path / path
                if path not in registry.owners and (
                    not os.path.lexists(file)
                    or any(has_digest(file, digest) for digest in known_digests)
                ):
                    yield path
            versions = list({known.version: known for known in reversed(history)}.values())
            for known in versions[self._keep_versions :]:
                stored = archive_path(known), envelope_path(known)
                yield from (path for path in stored if os.path.lexists(self._path / path))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files and the folders that become empty; missing files are skipped.

        Args:
            paths: paths relative to the root.

        Raises:
            PackageError: ``linked_folder``: a part of a path above the file is a link or file.
            OSError: a file cannot be deleted.
        """
        for path in paths:
            self._step(f"drop {path}")
            remove_file(self._path, path)

    def delete_folders(self, registry: Registry, packages: Iterable[str]) -> None:
        """Delete the folders of packages that are not installed, with their receipts and archives.

        A missing folder is skipped.

        Args:
            registry: the registry, which names the installed packages.
            packages: ids of packages; installed ones are skipped.

        Raises:
            OSError: a folder cannot be deleted.
        """
        for name in packages:
            folder = self._path / INSTALLED_FOLDER / name
            if name not in registry.packages and folder.is_dir():
                self._step(f"drop {name}")
                shutil.rmtree(folder)

    def write_missing(self, candidates: Sequence[Candidate], registry: Registry) -> None:
        """Write the missing files of installed packages, with missing receipts and registries.

        Existing files are not changed, except a stored archive with other bytes, which is replaced.

        Args:
            candidates: packages of the registry, with the bytes that are installed. Without any,
                nothing is written. A signature that differs from the installed one is not written.
            registry: the installed packages.

        Raises:
            PackageError: ``linked_folder``: a path leads through a link or file.
            OSError: a file cannot be written.
        """
        files: dict[str, bytes] = {}
        archives: dict[str, bytes] = {}
        for candidate in candidates:
            package = registry.packages[candidate.package.package_id]
            files |= candidate.archive.files
            if digest_of(candidate.envelope) == package.signature["envelope_sha256"]:
                files[envelope_path(package)] = candidate.envelope
            if not has_digest(self._path / archive_path(package), package.archive_sha256):
                archives[archive_path(package)] = candidate.archive.data
        if candidates:
            names = [candidate.package.package_id for candidate in candidates]
            files |= _documents(registry, names)
        missing = {path: data for path, data in files.items() if not (self._path / path).exists()}
        self._write(missing | archives)

    def restore(self, packages: Iterable[InstalledPackage], archives: ArchiveOf) -> dict[str, str]:
        """Write the files of packages that differ from their archives.

        Links and devices in place of a file are replaced. Receipts and registries are not written.

        Args:
            packages: the packages.
            archives: returns the stored archive of a package.

        Returns:
            By path of each written file, a few words on the content before.

        Raises:
            PackageError: with the code of the first failure, once all other files are restored:
                ``linked_folder``, ``file_in_the_way``, or the error of ``archives``.
            OSError: a file cannot be examined or written; the rest is not restored.
        """
        restored: dict[str, str] = {}
        refused: list[PackageError] = []
        for package in packages:
            differing: dict[str, str] = {}
            for asset in package.manifest.assets:
                path = self._path / asset.path
                try:
                    check_folders(self._path, asset.path)
                    if not has_digest(path, asset.sha256):
                        differing[asset.path] = _description(path)
                except PackageError as error:
                    refused.append(error)
            if differing:
                try:
                    files = archives(package).files
                except PackageError as error:
                    refused += [error] * len(differing)
                    continue
                self._write({path: files[path] for path in differing})
                restored |= differing
        if refused:
            first = refused[0]
            raise PackageError(
                first.code,
                f"{len(refused)} files were not restored, {len(restored)} were"
                + (f" ({', '.join(restored)})" if restored else "")
                + f". {first.message}",
                next_step=first.next_step,
            )
        return restored

    def write_documents(self, registry: Registry, packages: Iterable[str]) -> None:
        """Write the registries, and receipts of installed packages, that differ from the ledger.

        Args:
            registry: the registry of the ledger.
            packages: ids of the packages whose receipts are written; others are ignored.

        Raises:
            PackageError: ``linked_folder``: a path leads through a link or file.
            OSError: a file cannot be written.
        """
        documents = _documents(registry, packages).items()
        self._write(
            {
                path: data
                for path, data in documents
                if not has_digest(self._path / path, digest_of(data))
            }
        )

    def _write(self, files: Mapping[str, bytes]) -> None:
        """Stage all files, then move each to its place."""
        if files:
            operation = Operation.scratch(self._path)
            try:
                operation.stage(files, self._step)
                digests = {path: digest_of(data) for path, data in files.items()}
                operation.place(digests, self._step)
            finally:
                with contextlib.suppress(OSError):  # The next command deletes the folder.
                    operation.close()


def _documents(registry: Registry, packages: Iterable[str]) -> dict[str, bytes]:
    """Return all registries and the packages' receipts, by path, in the order of writing."""
    found = {f"{REGISTRY_FOLDER}/{name}": data for name, data in registry.documents().items()}
    for name in packages:
        if name in registry.packages:
            found[receipt_path(name)] = receipt_bytes(registry.packages[name])
    return found


def _description(path: os.PathLike[str]) -> str:
    """Return a few words about the content at the path of an installed file.

    Raises:
        PackageError: ``file_in_the_way``: a folder, which is not replaced.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return "nothing"
    if stat.S_ISDIR(mode):
        raise PackageError(
            "file_in_the_way",
            f"{path} is a folder, where a file was installed.",
            next_step="Move it elsewhere, and run the command again.",
        )
    if stat.S_ISREG(mode):
        return "other content"
    return "a link" if stat.S_ISLNK(mode) else "a device, pipe or socket"
