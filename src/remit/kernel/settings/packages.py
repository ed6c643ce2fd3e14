"""The settings of packages and gates (SPEC 10)."""

from __future__ import annotations

from pydantic import Field

from remit.kernel.settings.section import Section


class PackageIndexSettings(Section):
    """``[packages.index]``: what indexes may cost, and how long what they sign holds."""

    metadata_bytes: int = Field(ge=1, description="largest metadata file of an index")
    root_rotations: int = Field(ge=1, description="new root versions followed in one refresh")
    redirects: int = Field(ge=0, description="redirects followed for one file")
    timeout_s: float = Field(gt=0, description="how long an index's server may be silent")
    download_s: float = Field(gt=0, description="longest download of one file")
    root_days: int = Field(ge=1, description="for publishers: days that a signed root holds")
    targets_days: int = Field(ge=1, description="for publishers: days that a signed list holds")
    snapshot_days: int = Field(ge=1, description="for publishers: days that a snapshot holds")
    timestamp_days: int = Field(ge=1, description="for publishers: days that a timestamp holds")


class PackageSettings(Section):
    """``[packages]``: what reading, keeping and changing packages may cost."""

    compressed_bytes: int = Field(ge=1, description="largest archive, as it comes")
    unpacked_bytes: int = Field(ge=1, description="largest archive, unpacked, headers and all")
    ratio: int = Field(ge=1, description="most unpacked bytes for each byte of the archive")
    files: int = Field(ge=1, description="most files of a package, with its manifest")
    file_bytes: int = Field(ge=1, description="largest file in a package")
    envelope_bytes: int = Field(ge=1, description="largest signature file of a package")
    lock_timeout_s: float = Field(
        gt=0, description="how long an operation waits for another one on the same root"
    )
    keep_versions: int = Field(
        ge=1, description="archives kept of one package, for rollback, the installed one included"
    )
    index: PackageIndexSettings


class GateSettings(Section):
    """``[gates]``: how much the gates read."""

    full_entries: int = Field(
        ge=0, description="a ledger of at most so many entries is always read completely"
    )
