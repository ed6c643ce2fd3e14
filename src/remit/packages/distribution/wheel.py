"""The installed distribution as a wheel: same files, same bytes, on any machine."""

from __future__ import annotations

import csv
import io
import re
import tomllib
import zipfile
from collections.abc import Iterable
from email.parser import BytesHeaderParser
from pathlib import Path

from remit.packages.distribution.record import (
    PACKAGE,
    Distribution,
    project_of,
    record_row,
)
from remit.packages.errors import PackageError

_TIME = (1980, 1, 1, 0, 0, 0)  # ZIP can state no earlier time.
_UNIX = 3
_FILE = 0o100644 << 16
_METADATA_FILES = ("METADATA", "WHEEL", "entry_points.txt")
_TAG = "py3-none-any"


def repack_wheel(distribution: Distribution | None = None) -> tuple[str, bytes]:
    """Return a wheel of an installed distribution; write nothing.

    Files are sorted, dated 1980, readable by all and not compressed, because compressors differ
    between versions. Files of the installer are left out, and RECORD is written again. An editable
    installation and a regular one of the same version give the same bytes.

    Args:
        distribution: the distribution; ``None`` for the running one.

    Returns:
        The wheel's file name and its bytes.

    Raises:
        PackageError: ``distribution_changed``: the files differ from RECORD, there is no metadata,
            it is not for a pure Python wheel, or it names other dependencies or extras than the
            ``pyproject.toml`` of an editable installation.
        OSError, ValueError, KeyError: the ``pyproject.toml`` of an editable installation cannot be
            read.
    """
    source = distribution or Distribution.current()
    files, problems = source.files()
    if problems or source.info is None:
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise PackageError(
            "distribution_changed",
            f"This installation of {PACKAGE} was changed after it was installed: "
            f"{problems[0]}{more}",
            next_step=f"Install {PACKAGE} again (`pip install --force-reinstall --no-deps …`).",
        )
    info = source.info.name
    if source.editable:
        _check_fresh(source.info, files[f"{info}/METADATA"])
    headers = BytesHeaderParser().parsebytes(files[f"{info}/WHEEL"])
    if headers.get_all("Tag") != [_TAG] or headers.get("Root-Is-Purelib", "").lower() != "true":
        raise PackageError(
            "distribution_changed",
            f"The metadata of {PACKAGE} does not say that its wheel is for {_TAG}.",
            next_step=f"Use a {PACKAGE} built from its own source.",
        )
    kept = (f"{PACKAGE}/", f"{info}/licenses/", *(f"{info}/{name}" for name in _METADATA_FILES))
    names = sorted(path for path in files if path.startswith(kept))
    names.sort(key=lambda path: path.startswith(info))  # Installers expect metadata last.
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerows(record_row(path, files[path]) for path in names)
    writer.writerow([f"{info}/RECORD", "", ""])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in [*names, f"{info}/RECORD"]:
            member = zipfile.ZipInfo(name, _TIME)
            member.create_system = _UNIX
            member.external_attr = _FILE
            archive.writestr(member, files.get(name, table.getvalue().encode()))
    return f"{PACKAGE}-{source.version}-{_TAG}.whl", stream.getvalue()


def _check_fresh(info: Path, metadata: bytes) -> None:
    """Raise PackageError if the metadata's dependencies differ from ``pyproject.toml``."""
    project = project_of(info)
    if project is None or not (project / "pyproject.toml").is_file():
        return
    stated = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    headers = BytesHeaderParser().parsebytes(metadata)
    required = [str(line) for line in headers.get_all("Requires-Dist", [])]
    required = [line for line in required if "extra ==" not in line]
    extras = {str(extra) for extra in headers.get_all("Provides-Extra", [])}
    stale = "extras" if extras != set(stated.get("optional-dependencies", ())) else ""
    if _requirements(required) != _requirements(stated.get("dependencies", ())):
        stale = "dependencies"
    if stale:
        raise PackageError(
            "distribution_changed",
            f"The metadata of this editable installation names other {stale} than pyproject.toml: "
            "it is older.",
            next_step="Install it again: `pip install --no-deps -e DIR`, where DIR contains its "
            "pyproject.toml.",
        )


def _requirements(lines: Iterable[str]) -> set[tuple[str, ...]]:
    """Return requirements in a form that does not depend on spaces, quotes and order."""
    found = set()
    for line in lines:
        what, _, marker = re.sub(r"\s", "", line).replace('"', "'").partition(";")
        name = re.split(r"(?=[<>=!~\[@])", what, maxsplit=1)[0]
        rest = sorted(what[len(name) :].split(","))
        found.add((re.sub(r"[-_.]+", "-", name).lower(), *rest, marker))
    return found
