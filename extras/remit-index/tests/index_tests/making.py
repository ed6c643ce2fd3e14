"""Indexes for the tests: real keys, real files, real servers."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.packages.making import FILES, LIMITS, directory_of, encoded, manifest_of

from remit.kernel.settings import PackageSettings
from remit.packages import PackageError, pack
from remit_index import IndexPublisher, PackageIndex

_DAYS = {"root_days": 365, "targets_days": 365, "snapshot_days": 30, "timestamp_days": 7}
SETTINGS = LIMITS.model_copy(
    update={
        "envelope_bytes": 10_000,
        "lock_timeout_s": 20.0,
        "index": LIMITS.index.model_copy(
            update={
                **_DAYS,
                "metadata_bytes": 200_000,
                "root_rotations": 16,
                "redirects": 2,
                "timeout_s": 5.0,
                "download_s": 20.0,
            }
        ),
    }
)


def settings(**changed: Any) -> PackageSettings:
    """The settings of the tests, with others of ``[packages]`` or ``[packages.index]``."""
    index = {name: changed.pop(name) for name in list(changed) if hasattr(SETTINGS.index, name)}
    return SETTINGS.model_copy(update={**changed, "index": SETTINGS.index.model_copy(update=index)})


def archive(
    top: Path, package_id: str = "PKG-EXAMPLE-001", version: str = "1.0.0", **more: Any
) -> Path:
    manifest = manifest_of(FILES, package_id=package_id, version=version, **more)
    source = directory_of(top / f"{package_id}-{version}", manifest=encoded(manifest))
    file = top / f"{package_id}-{version}.tar.gz"
    file.write_bytes(pack(source))
    return file


def publisher(top: Path, *, age_days: float = 0) -> IndexPublisher:
    """Of the index in ``top/served``, with a clock that is slow by that much."""
    return IndexPublisher(
        top / "served",
        top / "keys",
        SETTINGS,
        clock=lambda: datetime.now(UTC) - timedelta(days=age_days),
    )


def client(
    top: Path, location: str | None = None, name: str = "team", **changed: Any
) -> PackageIndex:
    where = location or str(top / "served")
    return PackageIndex(top / "root", name, where, settings(**changed))


def root_json(top: Path, version: int = 1) -> bytes:
    return (top / "served" / "metadata" / f"{version}.root.json").read_bytes()


@contextmanager
def fails(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[PackageError]]:
    """What is done in it is refused with that code, and with what to do about it."""
    with pytest.raises(PackageError, match=match) as caught:
        yield caught
    assert caught.value.code == code, caught.value.message
    assert caught.value.next_step


def refused(
    index: PackageIndex, code: str, match: str | None = None
) -> pytest.ExceptionInfo[PackageError]:
    """The refresh fails with that code, and what is known stays."""
    before = listed(index)
    with fails(code, match) as caught:
        index.refresh()
    assert listed(index) == before
    return caught


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = tree(folder)
    yield
    assert tree(folder) == before


def listed(index: PackageIndex) -> list[tuple[str, str]]:
    return [(one.package_id, one.version) for one in index.search()]


def saved(top: Path, name: str) -> Path:
    """A copy of the index as it is now."""
    return Path(shutil.copytree(top / "served", top / name))


def metadata(top: Path, name: str) -> Path:
    return top / "served" / "metadata" / name


def tree(top: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(top)): file.read_bytes()
        for file in sorted(top.rglob("*"))
        if file.is_file()
    }


def version_of(top: Path, name: str) -> int:
    number: int = json.loads(metadata(top, name).read_bytes())["signed"]["version"]
    return number


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(handler: Any, directory: Path) -> Iterator[str]:
    made = functools.partial(handler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
