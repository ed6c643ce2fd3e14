"""How reading and packing a package fails."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class PackageError(RemitError):
    """A package cannot be used as it is; nothing of it was used.

    Attributes:
        code: which of the ways it fails, one lower-case word for programs; the tables of
            ``docs/package-format.md`` list all.
    """

    def __init__(self, code: str, message: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.code = code


class ManifestError(PackageError):
    """``manifest.json`` is not a manifest; the message names the field."""


class PackError(PackageError):
    """A directory is not what its manifest says, so it is not packed."""


class ArchiveError(PackageError):
    """An archive is not a package, or is not safe to unpack."""


class PackageKeyError(PackageError):
    """A key that signs packages cannot be made, read or understood."""


class SignatureError(PackageError):
    """A package's signature does not show that someone who is trusted vouches for it."""


class TrustError(PackageError):
    """Which keys are trusted cannot be read, or not be changed in that way; nothing was."""
