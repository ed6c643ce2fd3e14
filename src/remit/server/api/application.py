"""The application of everything under ``/api``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from remit import __version__
from remit.gateway.auth import KeyStore
from remit.kernel.errors import RemitError
from remit.runtime import Runtime
from remit.server.api.access import allow, failures
from remit.server.api.approvals import approval_routes
from remit.server.api.budgets import budget_routes
from remit.server.api.errors import error_answer, error_body, refuse
from remit.server.api.governance import governance_routes
from remit.server.api.keys import key_routes
from remit.server.api.ledger import ledger_routes
from remit.server.api.pages import answer
from remit.server.api.responses import Health
from remit.server.api.sessions import session_routes
from remit.server.authentication import Authenticator
from remit.server.guard import Guard
from remit.server.refusals import HttpError

__all__ = ["api_application"]

_OPENAPI = "/api/openapi.json"
_MAX_BODY_BYTES = 64 * 1024
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A virtual key."},
    "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def api_application(runtime: Runtime, keys: KeyStore, authenticator: Authenticator) -> Guard:
    """The ASGI application that answers what is under ``/api``.

    Args:
        runtime: the open root.
        keys: the virtual keys of that root.
        authenticator: authenticates requests.
    """
    app = _Application(
        title="Remit",
        summary="The record, its proofs, budgets and keys of one Remit installation.",
        version="1",
        openapi_url=_OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    ledger, budgeter = runtime.ledger, runtime.budgeter
    routers = [
        ledger_routes(ledger),
        session_routes(ledger),
        budget_routes(ledger, budgeter, keys),
        key_routes(keys, budgeter),
        approval_routes(ledger, runtime.approvals),
        governance_routes(ledger, runtime.gate_context),
        _health_routes(runtime, keys),
    ]
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes]
    app.add_exception_handler(HttpError, _refused)
    app.add_exception_handler(RemitError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)
    settings = runtime.loaded.settings.server
    return Guard(
        app,
        authenticator,
        refuse,
        max_body_bytes=min(_MAX_BODY_BYTES, settings.max_body_bytes),
        body_timeout_s=settings.body_timeout_s,
        open_path=_OPENAPI,
    )


def _health_routes(runtime: Runtime, keys: KeyStore) -> APIRouter:
    routes = APIRouter(prefix="/api/health", tags=["health"])
    gateway = runtime.gateway

    @routes.get(
        "", response_model=Health, responses=failures(), dependencies=[allow("read")],
        summary="Breakers, calls that are out, version",
    )  # fmt: skip
    def health() -> Response:
        """How this process is, and the models that it shares with others."""
        return answer(
            {
                "version": __version__,
                "in_flight": gateway.in_flight.count(),
                "refused": keys.refused,
                "breakers": [
                    {"provider_id": provider, "model_id": model, "state": breaker.state}
                    for (provider, model), breaker in sorted(gateway.breakers.items())
                ],
            }
        )

    return routes


class _Application(FastAPI):
    """FastAPI with the ways to authenticate in its OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            document.setdefault("components", {})["securitySchemes"] = _SCHEMES
            document["security"] = [{name: []} for name in _SCHEMES]
        return super().openapi()


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, (HttpError, RemitError))
    status, body, headers = error_answer(error)
    response = answer(body, status)
    for name, value in headers:
        response.headers[name.decode()] = value.decode()
    return response


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place, *names = (str(part) for part in first["loc"])
    param = ".".join(names) if names and first["type"] != "json_invalid" else place
    message = str(first["msg"]).removeprefix("Value error, ")
    return answer(error_body("invalid_input", f"{param}: {message}.", param=param), 400)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    code = HTTPStatus(status).name.lower()
    if status == 404:
        next_step = f"{_OPENAPI} lists what there is."
        return answer(error_body(code, "There is nothing here.", next_step), 404)
    if status == 405:
        message = f"This path does not take {request.method[:16]}."
        response = answer(error_body(code, message), 405)
        response.headers["allow"] = ", ".join(_methods(request))
        return response
    if status == 400:
        return answer(error_body("invalid_input", "The body cannot be read as JSON."), 400)
    return answer(error_body(code, f"{error.detail}."), status)


def _methods(request: Request) -> list[str]:
    """The methods of all routes of the path; the framework names only one route's."""
    matching = [
        route
        for route in request.app.state.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    path = matching[0].path
    return sorted(
        {name for route in matching if route.path == path for name in route.methods or ()}
    )


async def _failed(request: Request, error: Exception) -> Response:
    return answer(error_body("internal_error", "Remit failed; see its log."), 500)
