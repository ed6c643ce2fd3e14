"""The errors of packages."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class PackageError(RemitError):
    """A package cannot be used; no part of the package was used.

    Attributes:
        code: which of the ways it fails, one lower-case word for programs; the tables of
            ``docs/package-format.md`` list all.
    """

    def __init__(self, code: str, message: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


class PackageKeyError(PackageError):
    """A key that signs packages cannot be made, read or understood."""


class SignatureError(PackageError):
    """No trusted key signed a package, or a signature is wrong."""


# Earlier names, until 1.0: the code says what is wrong.
ManifestError = PackError = ArchiveError = TrustError = PackageError
