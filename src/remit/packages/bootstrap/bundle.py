"""``CP_BOOTSTRAP.tar.gz``: the wheel, the packages, and what installs them (SPEC 10)."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from importlib import resources

from remit.packages import ArchiveLimits
from remit.packages.bootstrap.errors import BootstrapError
from remit.packages.bootstrap.ordering import Bundled, in_install_order
from remit.packages.tarball import canonical_targz

__all__ = ["MANIFEST", "PACKAGES", "Bundle", "bundled"]

MANIFEST = "BOOTSTRAP_MANIFEST.json"
PACKAGES = "packages"
_SCHEMA_VERSION = "1.0"
_TEXTS = ("INSTALL.md", "README.md", "install.sh")
_PROGRAM = "install.sh"
_MODE, _PROGRAM_MODE = 0o644, 0o755
_AT_LEAST = re.compile(r">=\s*(3\.[0-9]+)")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bootstrap.

    Attributes:
        data: ``CP_BOOTSTRAP.tar.gz``, byte by byte.
        version: of Remit.
        wheel: its file name.
        packages: in the order in which they are installed.
    """

    data: bytes
    version: str
    wheel: str
    packages: tuple[Bundled, ...]

    @property
    def sha256(self) -> str:
        """``sha256:`` and 64 hex digits of the whole."""
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"


def bundled(
    wheel: tuple[str, bytes], archives: Mapping[str, bytes], limits: ArchiveLimits
) -> Bundle:
    """The bootstrap of one version of Remit: same input, same bytes, on any machine.

    Args:
        wheel: file name and content, see :func:`remit.packages.distribution.repack_wheel`.
        archives: the packages, by file name.
        limits: what reading one of them may cost.

    Raises:
        BootstrapError: the wheel has no metadata that can be used, or there are no packages.
        PackageError: a package is not one, or does not have what it needs.
    """
    name, wheel_data = wheel
    version, python = _metadata(name, wheel_data)
    packages = tuple(in_install_order(archives, limits))
    words = {"VERSION": version, "PYTHON": python, "WHEEL": name}
    files = {text: _filled(text, words) for text in _TEXTS}
    files[name] = wheel_data
    files |= {f"{PACKAGES}/{one.archive}": one.data for one in packages}
    files = dict(sorted(files.items()))
    manifest = {
        "schema_version": _SCHEMA_VERSION,
        "remit_version": version,
        "files": [
            {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
            for path, data in files.items()
        ],
        "packages": [
            {
                "package_id": one.manifest.package_id,
                "version": one.manifest.version,
                "archive": f"{PACKAGES}/{one.archive}",
            }
            for one in packages
        ],
    }
    files = {MANIFEST: f"{json.dumps(manifest, indent=2)}\n".encode(), **files}
    items = [
        (path, data, _PROGRAM_MODE if path == _PROGRAM else _MODE) for path, data in files.items()
    ]
    return Bundle(canonical_targz(items), version, name, packages)


def _filled(name: str, words: Mapping[str, str]) -> bytes:
    """A text of the distribution with its ``@WORDS@`` in place."""
    text = resources.files("remit").joinpath("assets", "bootstrap", name).read_text("utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text.encode()


def _metadata(name: str, wheel: bytes) -> tuple[str, str]:
    """Version of the wheel, and the oldest Python that it runs on."""
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            place = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            told = BytesHeaderParser().parsebytes(archive.read(place))
        python = _AT_LEAST.search(told["Requires-Python"])
        if python is not None and told["Version"]:
            return str(told["Version"]), python[1]
    except (zipfile.BadZipFile, StopIteration, TypeError):
        pass
    raise BootstrapError(
        f"{name} does not state its version and the Python that it needs.",
        next_step="Use a wheel made by `remit bootstrap build`.",
    )
