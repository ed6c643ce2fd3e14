"""The operation that writes the files for operators."""

from __future__ import annotations

from pathlib import Path

from remit.operations.operation import Caller, Operation, RootPort, field


class WriteDeploy(Operation):
    """Write the files for operators into a new directory.

    The files are units of systemd, a container, manifests of Kubernetes, configurations of proxies
    and monitoring, a backup script, and the scripts that verify proofs and decisions without Remit.
    """

    command = "deploy write"
    prints = "written to {directory}; README.md describes the files"

    directory: Path = field("Directory to create.", flag="", metavar="DIR", read=Path)

    def run(self, root: RootPort, caller: Caller) -> dict[str, str]:
        """Write the files.

        Raises:
            InvalidInputError: the directory exists.
            PackageError: a file cannot be written.
        """
        from remit.packages.shipped import copy_files

        copy_files("deploy", self.directory)
        return {"directory": str(self.directory)}
