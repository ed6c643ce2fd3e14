"""Compiled modules, made before the workers of a run start: else each worker makes them all."""

from __future__ import annotations

import importlib.util
import py_compile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _pytest.assertion import rewrite

__all__ = ["compile_modules"]


def compile_modules(root: Path) -> None:
    """Compile modules below ``root`` that were never compiled, in one process for each core.

    Test modules get the compiled file in which pytest caches their rewritten asserts. A module that
    has changed since is left to pytest and Python.
    """
    found = [path for part in ("src", "tests", "extras") for path in (root / part).rglob("*.py")]
    if new := [path for path in found if not _compiled(path).exists()]:
        with ProcessPoolExecutor() as pool:
            for _ in pool.map(_compile, new, chunksize=8):
                pass


def _is_rewritten(path: Path) -> bool:
    return path.name.startswith("test_") or path.name == "conftest.py"


def _compiled(path: Path) -> Path:
    if _is_rewritten(path):
        return rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
    return Path(importlib.util.cache_from_source(str(path)))


def _compile(path: Path) -> None:
    if not _is_rewritten(path):
        py_compile.compile(str(path), quiet=2)  # Some files of tests are no Python on purpose.
        return
    state: Any = SimpleNamespace(trace=print)
    source_hash, code = rewrite._rewrite_test(path, None)  # type: ignore[arg-type]
    rewrite.try_makedirs(_compiled(path).parent)
    rewrite._write_pyc(state, code, source_hash, _compiled(path))
