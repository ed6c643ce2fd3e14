"""The page on which a person approves the sign-in of a device."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any

from remit.gateway.auth import KeyStore, agent_secret
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError
from remit.ledger import Transaction
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.device_codes import DeviceCodes, key_name
from remit.server.device_sign_in import PAGE

_TEMPLATE = "device.html.j2"
_DENIED_S = 1.0  # lifetime of the key of a denied device, which is revoked at once


def show(sources: Sources, asked: Asked) -> Page:
    """Return the form for a user code; for a valid code, the question whether to approve.

    Args:
        sources: the data sources.
        asked: the request; its query may have ``user_code``. An invalid code gives the form again.

    Raises:
        NotFoundError: devices cannot sign in here.
        InvalidInputError: the visitor is signed in with a key, not with an account.
        RemitError: the secret that signs codes cannot be read.
    """
    _require_person(sources, asked)
    typed = asked.query.get("user_code", "")
    code = _codes(sources).user_code_of(typed)
    return Page(_TEMPLATE, {"code": code, "typed": typed, "outcome": ""})


def change(sources: Sources, asked: Asked) -> Page:
    """Approve or deny a device, and return the page with the outcome.

    An approval creates a virtual key with the role ``agent`` for the person and the person's team,
    and declares a person who is not declared yet as a user. The key ends after ``lasts_s``. A
    denial creates the key and revokes it, so that the device learns of it and the record shows it.

    Args:
        sources: the data sources.
        asked: the request; its form has ``user_code`` and ``decision``: ``approve``, or any other
            text to deny.

    Raises:
        ConflictError: the code was approved or denied before.
        NotFoundError: as :func:`show`.
        InvalidInputError: as :func:`show`, or the code is not valid or has expired.
        LedgerError: the key cannot be recorded.
    """
    _require_person(sources, asked)
    person = asked.identity
    code = _codes(sources).user_code_of(asked.form.get("user_code", ""))
    if not code:
        raise InvalidInputError(
            "This code is not valid, or has expired.", next_step="Start the sign-in again."
        )
    keys, name = KeyStore(sources.runtime.ledger), key_name(code)
    approved = asked.form.get("decision") == "approve"

    def require_unused(tx: Transaction, key_id: str) -> dict[str, Any]:
        if tx.execute("SELECT 1 FROM virtual_keys WHERE name = ?", (name,)):  # even a revoked one
            raise ConflictError(f"A key named {name!r} existed before.")
        return {}

    # If the server dies between the two steps of a denial, the key must not live.
    lasts_s = sources.runtime.loaded.settings.server.oidc.lasts_s if approved else _DENIED_S
    try:
        made = keys.create(
            name, user_id=person.user_id, team_id=person.team_id,
            expires=sources.runtime.ledger.wall_time + timedelta(seconds=lasts_s),
            requested_by=person.name, in_transaction=require_unused,
        )  # fmt: skip
    except ConflictError as error:
        raise ConflictError(
            "This code was used before.", next_step="Start the sign-in again."
        ) from error
    if approved:
        with contextlib.suppress(ConflictError):  # The person may be declared already.
            sources.writes.directory.declare(
                "user", person.user_id, person.name, by="device sign-in"
            )
    else:
        keys.revoke(made.key_id, "Device sign-in denied", requested_by=person.name)
    return Page(
        _TEMPLATE, {"code": "", "typed": "", "outcome": "approved" if approved else "denied"}
    )


def _codes(sources: Sources) -> DeviceCodes:
    ledger = sources.runtime.ledger
    return DeviceCodes(agent_secret(sources.runtime.root), lambda: ledger.wall_ms / 1000)


def _require_person(sources: Sources, asked: Asked) -> None:
    oidc = sources.runtime.loaded.settings.server.oidc
    if not (oidc.issuer and oidc.devices):
        raise NotFoundError("Devices cannot sign in here.")
    if asked.identity.key_id:
        raise InvalidInputError(
            "A device signs in for a person, and you are signed in with a key.",
            next_step="Sign out, and sign in with your account.",
        )


VIEWS = (View(PAGE, show, change, "call"),)
