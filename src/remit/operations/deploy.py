"""The operation that writes the files for operators."""

from __future__ import annotations

from pathlib import Path

from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort


@verb("deploy write", prints="written to {directory}; README.md describes the files")
def write_deploy(
    root: RootPort, caller: Caller, *,
    directory: Path = field("Directory to create.", flag="", metavar="DIR", read=Path),
) -> dict[str, str]:  # fmt: skip
    """Write the files for operators into a new directory.

    The files are units of systemd, a container, manifests of Kubernetes, configurations of proxies
    and monitoring, a backup script, and the scripts that verify proofs and decisions without Remit.

    Returns:
        ``directory``, its path as given.

    Raises:
        InvalidInputError: the directory exists.
        PackageError: a file cannot be written.
    """
    from remit.packages.shipped import copy_files

    copy_files("deploy", directory)
    return {"directory": str(directory)}
