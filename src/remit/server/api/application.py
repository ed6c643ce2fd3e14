"""Puts the API together."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request

from remit import __version__
from remit.auth import KeyStore
from remit.runtime import Runtime
from remit.server.door import Door

__all__ = ["api_application"]


def api_application(runtime: Runtime, keys: KeyStore, door: Door) -> Any:
    """The ASGI application that answers what is under ``/api``."""
    app = FastAPI(
        title="Remit", version=__version__, openapi_url="/api/openapi.json",
        docs_url=None, redoc_url=None,
    )  # fmt: skip

    @app.get("/api/health")
    def health(request: Request) -> dict[str, Any]:
        door.enter(request.scope["headers"])
        return {"version": __version__}

    return app
