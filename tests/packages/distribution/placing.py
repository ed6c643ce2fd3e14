"""Installations of Remit for the tests: an editable one, and a regular one that pip made."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from remit import __version__
from remit.packages.distribution import Distribution

PROJECT = Path(__file__).parents[3]
INFO = f"remit-{__version__}.dist-info"
WHEEL = """\
Wheel-Version: 1.0
Generator: hatchling 1.33.0
Root-Is-Purelib: true
Tag: py3-none-any
"""


def row(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


def copy_project(top: Path) -> Path:
    """The project as it is in the tree, without what others do to it meanwhile."""
    shutil.copytree(
        PROJECT / "src", top / "src", ignore=shutil.ignore_patterns("__pycache__"), symlinks=True
    )
    for name in ("deploy", "examples"):
        shutil.copytree(PROJECT / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, top / name)
    return top


def editable(site: Path, project: Path) -> Distribution:
    """Installs ``project`` as ``pip install -e`` does."""
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    lines = [
        "Metadata-Version: 2.4",
        "Name: remit",
        f"Version: {__version__}",
        "Requires-Python: >=3.11",
        *(f"Requires-Dist: {one}" for one in stated["dependencies"]),
        *(f"Provides-Extra: {one}" for one in stated["optional-dependencies"]),
    ]
    files = {
        "_editable_impl_remit.pth": f"{project / 'src'}\n",
        f"{INFO}/INSTALLER": "pip\n",
        f"{INFO}/METADATA": "\n".join(lines) + "\n\nAbout.\n",
        f"{INFO}/REQUESTED": "",
        f"{INFO}/WHEEL": WHEEL,
        f"{INFO}/direct_url.json": json.dumps(
            {"dir_info": {"editable": True}, "url": project.as_uri()}
        ),
        f"{INFO}/entry_points.txt": "[console_scripts]\nremit = remit.cli:main\n",
        f"{INFO}/licenses/LICENSE": (project / "LICENSE").read_text(),
    }
    record = ""
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(text.encode())
        record += row(path, text.encode())
    (site / INFO / "RECORD").write_text(record + f"{INFO}/RECORD,,\n")
    found = Distribution.at(site)
    return Distribution(found.version, found.editable, project / "src" / "remit", found.info)


def regular(site: Path, wheel: tuple[str, bytes], scratch: Path, *options: str) -> Distribution:
    """Installs a wheel with pip."""
    file = scratch / wheel[0]
    file.write_bytes(wheel[1])
    pip = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run(
        [*pip, "--no-index", "--no-deps", *options, "--target", str(site), str(file)], check=True
    )
    return Distribution.at(site)
