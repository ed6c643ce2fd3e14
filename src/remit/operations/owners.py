"""Operations on users, teams and organisations, with their keys, budgets and spending."""

from __future__ import annotations

from typing import Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.kernel.message_text import dollars
from remit.operations import limits as limits_
from remit.operations.operation import Column, Feed, feed_of, field, limit, verb
from remit.operations.ports import Caller, RootPort

_Kind = Literal["user", "team", "organisation"]
_A: dict[_Kind, str] = {
    "user": "a user", "team": "a team", "organisation": "an organisation",
}  # fmt: skip
_ID = "Id by which keys and budgets refer to the owner."
_COLUMNS: tuple[Column, ...] = (
    "id", "name", ("keys", lambda one: len(one["keys"])),
    ("spent", lambda one: dollars(one["spent_usd"])),
    ("limit", lambda one: "-" if one["limit_usd"] is None else dollars(one["limit_usd"])),
)  # fmt: skip


_OWNER_ID: Any = field(_ID, flag="", metavar="ID")


def _name(text: str) -> Any:
    return field(text, is_name=True)


def _declare_create(kind: _Kind) -> None:
    @verb(
        f"{kind} create", f"POST /{kind}s", summary=f"Declare {_A[kind]}", tag="owners",
        needs="manage_keys", form="OwnerRequest", result="OwnerShape", status=201, fails=(409,),
        doc=f"Declare {_A[kind]}, and set its budget if limits are given.", more=limits_.RATES,
        lines=limits_.owner_lines,
        then=f"`remit key create --name … --{kind} {{id}}` creates a key for this {kind}.",
    )  # fmt: skip
    def create_owner(
        root: RootPort, caller: Caller, *,
        id: str | None = field(f"{_ID[:-1]} (default: derived from the name).", None, is_name=True),
        name: str = _name("Display name; stored as content, which can be erased."),
        usd: float | None = limits_.usd(flag="--budget-usd"),
        tokens: int | None = limits_.count(
            "Limit of tokens, input and output together.", flag="--budget-tokens"
        ),
        turns: int | None = limits_.count("Limit of model calls.", flag="--budget-turns"),
        **rates: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Declare an owner, and set its budget if limits are given.

        Raises:
            InvalidInputError: a value cannot be used, or no id can be derived from the name.
            ConflictError: the owner is already declared.
        """
        from remit.gateway.auth import id_of
        from remit.gateway.budget import BudgetLimits

        limits = BudgetLimits.of(usd=usd, tokens=tokens, turns=turns, **rates)
        if not (wanted := id if id is not None else id_of(name)):
            raise InvalidInputError(
                "An id cannot be derived from this name.", next_step="Give an id."
            )
        made = root.directory.declare(
            kind, wanted, name, by=caller.name,
            in_transaction=lambda tx, scope: limits.any
            and root.budgeter.allocate(scope, limits=limits, by=caller.name, tx=tx),
        )  # fmt: skip
        return root.directory.described([made], root.budgeter.list(made.scope))[0]


def _declare_list(kind: _Kind) -> None:
    @verb(
        f"{kind} list", f"GET /{kind}s", summary=f"List {kind}s", tag="owners",
        result="OwnerPage", member="owners", command_member=f"{kind}s", endpoint="listed",
        nothing=f"No {kind}s. `remit {kind} create --name NAME` declares one.",
        doc=f"List {kind}s that were declared, or that a key or a budget names.", columns=_COLUMNS,
    )  # fmt: skip
    def list_owners(root: RootPort, caller: Caller, *, limit: int | None = limit()) -> Feed:
        """Return the owners of the kind, sorted by id."""
        return feed_of(
            root.directory.list(kind),
            lambda owner: owner.id,
            lambda part: root.directory.described(part, root.budgeter.list()),
        )


def _declare_show(kind: _Kind) -> None:
    @verb(
        f"{kind} show", f"GET /{kind}s/{{id:path}}", summary=f"One {kind}", tag="owners",
        result="OwnerShape", lines=limits_.owner_lines,
        doc=f"Show {_A[kind]} with members, keys, budget and spending.",
    )  # fmt: skip
    def show_owner(root: RootPort, caller: Caller, *, id: str = _OWNER_ID) -> dict[str, Any]:
        """Return the owner.

        Raises:
            NotFoundError: neither a declaration nor a key or budget names the owner.
        """
        found = root.directory.find(kind, id)
        return root.directory.described([found], root.budgeter.list())[0]


def _declare_rename(kind: _Kind) -> None:
    @verb(
        f"{kind} rename", f"PUT /{kind}s/{{id:path}}", summary=f"Rename {_A[kind]}", tag="owners",
        needs="manage_keys", form="Rename", result="OwnerRenamed",
        lines=limits_.owner_lines,
        doc=f"Rename {_A[kind]}; id, keys and budgets stay.",
    )  # fmt: skip
    def rename_owner(
        root: RootPort, caller: Caller, *, id: str = _OWNER_ID,
        name: str = _name("New display name."),
    ) -> dict[str, Any]:  # fmt: skip
        """Rename an owner; id, keys and budgets stay.

        Raises:
            InvalidInputError: the name cannot be used.
            NotFoundError: the owner is not declared.
        """
        before, after = root.directory.rename(kind, id, name, by=caller.name)
        (shown,) = root.directory.described([after], root.budgeter.list())
        return {**shown, "before": before.name or None, "after": after.name}


for _kind in _A:
    for _declare in (_declare_create, _declare_list, _declare_show, _declare_rename):
        _declare(_kind)
