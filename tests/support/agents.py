"""A wired runtime whose model is a real HTTP server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.runtime import Runtime
from tests.support.roots import new_root
from tests.support.wire import Step, WireServer, serve

CLASSIFIED = {"speech_act": "question", "ambiguity": "low"}


@contextmanager
def anthropic_runtime(
    root: Path, monkeypatch: pytest.MonkeyPatch, *script: Step, **options: Any
) -> Iterator[tuple[Runtime, WireServer]]:
    """A runtime that speaks the Anthropic wire format to a scripted server."""
    with serve(*script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        flags: Mapping[str, Any] = {"gateway.retry_base_ms": 1, **options.pop("flags", {})}
        if not root.exists():
            new_root(root)
        with Runtime.open(root, flags=flags, **options) as runtime:
            yield runtime, server
