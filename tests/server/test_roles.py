"""Every operation at every door, for every role: what a role may not do, no door does for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remit.gateway.auth import ROLES, Identity
from remit.operations import Operation
from remit.runtime import Runtime
from remit.runtime.installation import root_tools
from remit.runtime.operations import all_operations
from remit.server.mcp.callers import Caller
from remit.server.mcp.server import ToolRunner, all_tools
from tests.server.console.client import Visitor, signed_in
from tests.server.running import Served
from tests.support.roots import new_root

_FORMS = {"key": ("create", "rotate", "revoke"), **dict.fromkeys(
    ("user", "team", "organisation"), ("create", "rename"))}  # fmt: skip


def _may(role: str, needs: str) -> bool:
    return not ROLES[role].isdisjoint(needs.split(" or "))


def _named(command: str) -> type[Operation]:
    return next(kind for kind in all_operations() if kind.command == command)


@pytest.mark.parametrize("role", ROLES)
def test_a_form_refuses_a_role_without_the_permission(served: Served, role: str) -> None:
    if not _may(role, "read"):
        assert Visitor(served).try_key(served.key(role=role).key).status == 403
        return
    visitor = signed_in(served, role)
    for group, verbs in _FORMS.items():
        for verb in (*verbs, "budget set"):
            command = verb if " " in verb else f"{group} {verb}"
            place = f"/console/keys/{group}" + ("" if verb == "create" else "/nobody")
            form = {"operation": command, "token": visitor.form_token()}
            answered = visitor.post(place, form, sec_fetch_site="same-origin")
            is_refused = answered.status == 403 and "lacks the permission" in answered.text
            assert is_refused is not _may(role, _named(command).needs), command


@pytest.mark.parametrize("role", ROLES)
def test_a_tool_refuses_a_role_without_the_permission(tmp_path: Path, role: str) -> None:
    with Runtime.open(new_root(tmp_path / "root")) as runtime:
        runner = ToolRunner(all_tools(runtime), runtime.loaded.settings)
        caller, before = Caller(Identity("somebody", role, key_id="KEY-1")), runtime.ledger.count()
        for tool in all_tools(runtime):
            answered = asyncio.run(runner.call(caller, tool.tool.tool_id, {"wrong": 1}))
            is_refused = f"role {role} may not use" in str(answered.content)
            assert is_refused is not _may(role, tool.needs), tool.tool.tool_id
        assert runtime.ledger.count() == before


def test_the_tools_that_operations_name_exist(tmp_path: Path) -> None:
    named = {name for kind in all_operations() for name in kind.tools}
    with Runtime.open(new_root(tmp_path / "root")) as runtime:
        of_admin = {
            tool.tool_id for tool in root_tools(runtime.root, runtime.ledger, runtime.loaded)
        }
        of_clients = {tool.tool.tool_id for tool in all_tools(runtime)}
    assert named <= of_admin | of_clients
    assert of_clients - named == {"router_route"}
