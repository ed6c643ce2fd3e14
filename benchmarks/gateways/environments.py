"""What the peers need, each in a directory of its own, made when it is first asked for.

Versions are pinned, so that a later run measures the same programs; raise them by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.gateways.progress import tell
from remit.kernel.errors import RemitError

PYTHON_PACKAGES: dict[str, tuple[str, ...]] = {
    "litellm": ("litellm[proxy]==1.106.2",),
    "mlflow": ("mlflow[gateway]==3.17.2",),
}
NODE_PACKAGES = {"portkey": ("@portkey-ai/gateway@1.15.2",)}
CACHE_VARIABLE = "REMIT_BENCH_CACHE"
STAMP = ".packages"


class UnavailableError(RemitError):
    """A peer that cannot run here."""


class Skipped(dict[str, str]):
    """Who was left out, and why."""

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Leave ``name`` out from here on where the block says that it cannot run."""
        try:
            yield
        except UnavailableError as error:
            self[name] = str(error)
            tell(f"{name} is left out from here on: {error}")

    def lines(self) -> list[str]:
        """For the end of a report."""
        return [
            f"{name} was left out when this happened: {reason}" for name, reason in self.items()
        ]


def cache() -> Path:
    """Where the environments lie: ``$REMIT_BENCH_CACHE``, else ``~/.cache/remit-bench``."""
    return Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "remit-bench"))


def python_environment(name: str) -> Path:
    """The ``bin`` directory of a virtual environment with the packages of ``name``."""
    directory, packages = cache() / name, PYTHON_PACKAGES[name]
    binaries = directory / "bin"
    if _made(directory, packages):
        return binaries
    _announce(name, packages)
    venv.create(directory, with_pip=True)
    pip: list[str | Path] = [
        binaries / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
    ]
    _run(name, [*pip, *packages])
    (directory / STAMP).write_text("\n".join(packages))
    return binaries


def node_environment(name: str) -> Path:
    """The directory whose ``node_modules`` holds the packages of ``name``."""
    directory, packages = cache() / name, NODE_PACKAGES[name]
    if _made(directory, packages):
        return directory
    if not (shutil.which("npm") and shutil.which("node")):
        raise UnavailableError("node and npm are not here.", next_step="Install Node.js.")
    _announce(name, packages)
    directory.mkdir(parents=True, exist_ok=True)
    _run(name, ["npm", "install", "--no-fund", "--no-audit", "--prefix", directory, *packages])
    (directory / STAMP).write_text("\n".join(packages))
    return directory


def prepare(name: str) -> None:
    """Make the environment of ``name``, where it needs one that is not there."""
    if name in PYTHON_PACKAGES:
        python_environment(name)
    elif name in NODE_PACKAGES:
        node_environment(name)


def versions(name: str) -> str:
    """The packages of a peer, for a report."""
    return ", ".join({**PYTHON_PACKAGES, **NODE_PACKAGES}.get(name, ()))


def _made(directory: Path, packages: tuple[str, ...]) -> bool:
    stamp = directory / STAMP
    return stamp.exists() and stamp.read_text() == "\n".join(packages)


def _announce(name: str, packages: tuple[str, ...]) -> None:
    tell(f"Making {cache() / name}: {', '.join(packages)} …")


def _run(name: str, command: list[str | Path]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise UnavailableError(
            f"{name} cannot be installed here: {' '.join(last)}",
            next_step="Leave it out of --peers, or install it by hand.",
        )
