"""The error of packages."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class PackageError(RemitError):
    """A package, or a file of a root's packages, cannot be used or changed.

    Args:
        code: the kind of failure.
        message: the fault, as a sentence.
        next_step: advice; empty for none.

    Attributes:
        code: the kind of failure, one lower-case word for programs. The tables of
            ``docs/package-format.md``, ``docs/package-install.md`` and ``docs/package-trust.md``
            list all codes.
    """

    def __init__(self, code: str, message: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


# Earlier names, which stay until 1.0.
ArchiveError = PackageError
ManifestError = PackageError
PackError = PackageError
PackageKeyError = PackageError
SignatureError = PackageError
TrustError = PackageError
