"""The application under ``/api``, and the form of its errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from remit.contracts import ContractError
from remit.gateway.auth import AuthUnavailableError, KeyStore
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError, RemitError
from remit.ledger import LedgerClosedError, LedgerWriteError, NoSignerError
from remit.operations import ForbiddenError
from remit.packages import PackageError
from remit.providers import is_shortage
from remit.runtime import OpenRoot, Runtime
from remit.server.api.call_paths import paths_beside_the_api
from remit.server.api.routes import answer, operation_routes
from remit.server.api_guard import Guard
from remit.server.asgi import Scope, limits_of
from remit.server.authentication import Authenticator
from remit.server.refusals import HttpError, refusal_of

_OPENAPI = "/api/openapi.json"
_MAX_BODY_BYTES = 64 * 1024
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A virtual key."},
    "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

# The first that matches.
_STATUSES: tuple[tuple[type[RemitError], int, str], ...] = (
    (ForbiddenError, 403, "forbidden"),
    (NotFoundError, 404, "not_found"),
    (ConflictError, 409, "conflict"),
    (PackageError, 409, "conflict"),
    (AuthUnavailableError, 503, "unavailable"),
    (LedgerWriteError, 503, "unavailable"),
    (LedgerClosedError, 503, "unavailable"),
    (NoSignerError, 503, "unavailable"),
    (InvalidInputError, 400, "invalid_input"),
    (ContractError, 400, "invalid_input"),
)


def api_application(runtime: Runtime, keys: KeyStore, authenticator: Authenticator) -> Guard:
    """Return the ASGI application that answers requests under ``/api``.

    The routes cover the ledger, sessions, budgets, keys, owners, usage, tenants, reports, prices,
    approvals, orders, pins, feedback, learning, packages and gates. Errors become JSON answers.
    Bodies above 64 KiB, or above a lower ``server.max_body_bytes``, are refused. Every path except
    the OpenAPI document needs a key.

    Args:
        runtime: the open root.
        keys: its virtual keys.
        authenticator: finds the caller of each request.
    """
    app = _Application(
        title="Remit",
        summary="Model calls, and the record, its proofs, budgets and keys of one installation.",
        version="1",
        openapi_url=_OPENAPI,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        routes=[*operation_routes()],
    )
    ledger = runtime.ledger
    root = OpenRoot(
        lambda: (runtime.root, runtime.loaded), lambda: ledger, keys=keys,
        budgeter=runtime.budgeter, orders=runtime.orders, approvals=runtime.approvals,
        prices=runtime.root_prices, gateway=runtime.gateway,
    )  # fmt: skip
    app.state.root = root
    app.add_exception_handler(HttpError, _refused)
    app.add_exception_handler(RemitError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)
    settings = runtime.loaded.settings.server
    return Guard(
        app,
        authenticator,
        _answer_of,
        max_body_bytes=min(_MAX_BODY_BYTES, settings.max_body_bytes),
        body_timeout_s=settings.body_timeout_s,
        open_path=_OPENAPI,
    )


class _Application(FastAPI):
    """FastAPI whose OpenAPI document also contains the authentication and all other paths."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            document = super().openapi()
            document.setdefault("components", {})["securitySchemes"] = _SCHEMES
            document["security"] = [{name: []} for name in _SCHEMES]
            document["paths"].update(paths_beside_the_api())
        return super().openapi()


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, (HttpError, RemitError))
    return _answer_of(request.scope, error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place, *names = (str(part) for part in first["loc"])
    param = ".".join(names) if names and first["type"] != "json_invalid" else place
    message = str(first["msg"]).removeprefix("Value error, ")
    return _error(400, "invalid_input", f"{param}: {message}.", param=param)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    code = HTTPStatus(status).name.lower()
    if status == 404:
        next_step = f"{_OPENAPI} lists all paths."
        return _error(404, code, "This path does not exist.", next_step)
    if status == 405:
        response = _error(405, code, f"This path does not support {request.method[:16]}.")
        response.headers["allow"] = ", ".join(_methods(request))
        return response
    if status == 400:
        return _error(400, "invalid_input", "The body cannot be read as JSON.")
    return _error(status, code, f"{error.detail}.")


def _methods(request: Request) -> list[str]:
    """Return the methods of all routes of the path; the framework names those of one route only."""
    matching = [
        route for route in operation_routes() if route.matches(request.scope)[0] is not Match.NONE
    ]
    path = matching[0].path
    return sorted(
        {name for route in matching if route.path == path for name in route.methods or ()}
    )


async def _failed(request: Request, error: Exception) -> Response:
    if is_shortage(error):
        return _answer_of(request.scope, refusal_of(error))
    return _error(
        500, "internal_error", "Remit failed unexpectedly; the server's log has the reason."
    )


def _answer_of(scope: Scope, error: HttpError | RemitError) -> Response:
    """Return the answer for an error."""
    cause = error.__cause__
    if isinstance(cause, AuthUnavailableError):  # the key may be valid
        error = cause
    if is_shortage(error):
        error = refusal_of(error)
    if isinstance(error, RemitError):
        status, code = next(
            ((status, code) for kind, status, code in _STATUSES if isinstance(error, kind)),
            (500, "internal_error"),
        )
        param = error.param if isinstance(error, ForbiddenError) else None
        return _error(status, code, error.message, error.next_step, param)
    next_step = cause.next_step if isinstance(cause, RemitError) else ""
    response = _error(error.status, error.code, error.message, next_step, error.param)
    if error.status == 401:
        response.headers["www-authenticate"] = "Bearer"
    for name, value in limits_of(error):
        response.headers[name.decode()] = value.decode()
    return response


def _error(
    status: int, code: str, message: str, next_step: str = "", param: str | None = None
) -> Response:
    """Return an answer of the form ``{"error": {"code", "message", "next_step"?, "param"?}}``."""
    body = {"code": code, "message": message, "next_step": next_step, "param": param}
    return answer({"error": {name: value for name, value in body.items() if value}}, status)
