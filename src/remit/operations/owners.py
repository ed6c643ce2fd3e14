"""Operations on users, teams and organisations, with their keys, budgets and spending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from remit.kernel.errors import InvalidInputError
from remit.kernel.words import count
from remit.operations import limits as limits_
from remit.operations.operation import Column, Feed, Note, Operation, feed_of, field, limit
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    pass

_Kind = Literal["user", "team", "organisation"]
_A: dict[_Kind, str] = {
    "user": "a user", "team": "a team", "organisation": "an organisation",
}  # fmt: skip
_ID = "Id by which keys and budgets refer to the owner."


def _id() -> Any:
    return field(_ID, flag="", metavar="ID")


def _name(text: str) -> Any:
    return field(text, is_name=True)


class _CreateOwner(limits_.Limited):
    """Declare an owner, and set its budget if limits are given."""

    tag, needs, changes, form, result = "owners", "manage_keys", True, "OwnerRequest", "OwnerShape"
    status, fails = 201, (409,)
    kind: ClassVar[_Kind]

    id: str | None = field(
        f"{_ID[:-1]} (default: derived from the name).",
        None,
        is_name=True,
    )
    name: str = _name("Display name; stored as content, which can be erased.")
    usd: float | None = limits_.usd(flag="--budget-usd")
    tokens: int | None = limits_.count(
        "Limit of tokens, input and output together.", flag="--budget-tokens"
    )
    turns: int | None = limits_.count("Limit of model calls.", flag="--budget-turns")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Declare the owner and its budget in one transaction.

        Raises:
            InvalidInputError: a value cannot be used, or no id can be derived from the name.
            ConflictError: the owner is already declared.
        """
        from remit.gateway.auth import id_of

        limits = limits_.limits_of(self)
        if not (wanted := self.id if self.id is not None else id_of(self.name)):
            raise InvalidInputError(
                "An id cannot be derived from this name.", next_step="Give an id."
            )
        made = root.directory.declare(
            self.kind, wanted, self.name, by=caller.name,
            in_transaction=lambda tx, scope: limits.any
            and root.budgeter.allocate(scope, limits=limits, by=caller.name, tx=tx),
        )  # fmt: skip
        return root.directory.described([made], root.budgeter.list(made.scope))[0]

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the owner, and notes on its budget and the next command."""
        yield f"{found['id']}  {found['name']}  recorded as {found['entry']}"
        limits = limits_.limits_of(self)
        if limits.any:
            yield Note(f"Budget: {limits_.limits_line(limits.to_dict())}")
        yield Note(
            f"`remit key create --name … --{self.kind} {found['id']}` creates a key for this "
            f"{self.kind}."
        )


class _ListOwners(Operation):
    tag, result, member, endpoint = "owners", "OwnerPage", "owners", "listed"
    kind: ClassVar[_Kind]
    columns: ClassVar[tuple[Column, ...]] = (
        "id", "name", ("keys", lambda one: len(one["keys"])),
        ("spent USD", lambda one: f"{one['spent_usd']:.6f}"),
        ("limit USD", lambda one: "-" if one["limit_usd"] is None else f"{one['limit_usd']:.2f}"),
    )  # fmt: skip

    limit: int | None = limit()

    def run(self, root: RootPort, caller: Caller) -> Feed:
        """Return the owners of the kind, sorted by id."""
        return feed_of(
            root.directory.list(self.kind),
            lambda owner: owner.id,
            lambda part: root.directory.described(part, root.budgeter.list()),
        )


class _ShowOwner(Operation):
    tag, result = "owners", "OwnerShape"
    kind: ClassVar[_Kind]

    id: str = _id()

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the owner.

        Raises:
            NotFoundError: neither a declaration nor a key or budget names the owner.
        """
        found = root.directory.find(self.kind, self.id)
        return root.directory.described([found], root.budgeter.list())[0]

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the owner, its members, its keys and its budget."""
        yield f"{self.kind} {found['id']}: {found['name'] or 'no declared name'}"
        if found["entry"]:
            yield f"declared {found['declared']} by {found['by']}, {found['entry']}"
        for name in ("users", "teams"):
            if found[name] and name != f"{self.kind}s":
                yield f"{name}: {', '.join(found[name])}"
        for key in found["keys"]:
            yield f"key {key['name']} ({key['id']}), {key['role']}, {key['state']}"
        if found["budget"]:
            yield limits_.state_line(found["budget"])
        else:
            yield (f"no budget of its own; its keys spent {found['spent_usd']:.6f} USD, "
                   f"{count(found['spent_tokens'], 'token')}")  # fmt: skip


class _RenameOwner(Operation):
    """Rename an owner; id, keys and budgets stay."""

    tag, needs, changes, form, result = "owners", "manage_keys", True, "Rename", "OwnerRenamed"
    kind: ClassVar[_Kind]

    id: str = _id()
    name: str = _name("New display name.")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Rename the owner.

        Raises:
            InvalidInputError: the name cannot be used.
            NotFoundError: the owner is not declared.
        """
        before, after = root.directory.rename(self.kind, self.id, self.name, by=caller.name)
        (shown,) = root.directory.described([after], root.budgeter.list())
        return {**shown, "before": before.name or None, "after": after.name}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the id, both names and the entry."""
        before = found["before"] or "(erased)"
        yield f"{found['id']}  {before} -> {found['after']}  recorded as {found['entry']}"


def _declare(kind: _Kind) -> None:
    path, title = f"/{kind}s", kind.capitalize()
    verbs: list[tuple[type[Operation], str, str, str, str]] = [
        (_CreateOwner, "create", f"POST {path}", f"Declare {_A[kind]}",
         f"Declare {_A[kind]}, and set its budget if limits are given."),
        (_ListOwners, "list", f"GET {path}", f"List {kind}s",
         f"List {kind}s that were declared, or that a key or a budget names."),
        (_ShowOwner, "show", f"GET {path}/{{id:path}}", f"One {kind}",
         f"Show {_A[kind]} with members, keys, budget and spending."),
        (_RenameOwner, "rename", f"PUT {path}/{{id:path}}", f"Rename {_A[kind]}",
         f"Rename {_A[kind]}; id, keys and budgets stay."),
    ]  # fmt: skip
    for base, verb, route, summary, doc in verbs:
        type(f"{verb.capitalize()}{title}", (base,), {
            "kind": kind, "command": f"{kind} {verb}", "route": route, "summary": summary,
            "command_member": f"{kind}s", "__doc__": doc, "__module__": __name__,
        })  # fmt: skip


for _kind in _A:
    _declare(_kind)
