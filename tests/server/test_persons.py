"""Persons are not keys: two approvals by one person never count as two, whatever keys they use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalQueue
from remit.agents.tools import Tool
from remit.gateway.auth import KeyStore, NewKey
from remit.ledger import LedgerClient, LedgerEntry
from tests.server.console.client import Visitor
from tests.server.running import Served, new_session, serving
from tests.support.commands import run_remit
from tests.support.soak import sample
from tests.support.tenants import new_host, opened
from tests.support.upstream import Upstream
from tests.support.waiting import until

PAYOUT = Tool("payout", "Pay out.", {"type": "object"}, print)
PAIR = "[approvals.tools.payout]\npeople = 2\n"
JSON = {"content-type": "application/json"}
GRANTED = (0, 200, 303)
Vote = Callable[[str], int]
"""Grant a request; return the status, or 0 or the exit code of a command."""


@dataclass
class Desk:
    """A server whose tool ``payout`` takes two people; the root of the host or of a tenant."""

    served: Served
    root: Path
    ledger: LedgerClient

    def waiting(self, requested_by: str = "") -> str:
        """Return a request that nobody has decided."""
        queue = ApprovalQueue(self.ledger)
        return queue.request(
            PAYOUT, {"to": new_session()}, session_id=new_session(), agent_id="clerk",
            requested_by=requested_by,
        ).request_id  # fmt: skip

    def api(self, key: NewKey, method: str, path: str, body: Any = None) -> Any:
        status, raw, _ = self.served.ask(method, f"/api{path}", body, token=key.key, headers=JSON)
        assert status in (200, 201), raw
        return json.loads(raw)

    def machine_key(self, user: str = "", **more: Any) -> NewKey:
        """Return an operator's key that the machine made."""
        with KeyStore(self.ledger) as keys:
            return self.known(keys.create(new_session(), role="operator", user_id=user, **more))

    def network_key(self, maker: NewKey, user: str, name: str = "") -> NewKey:
        """Return an operator's key that another key asked for, as earlier versions let it."""
        with KeyStore(self.ledger) as keys:
            return self.known(keys.create(
                name or new_session(), role="operator", user_id=user, requested_by=maker.key_id
            ))  # fmt: skip

    def renewed(self, by: NewKey, key: NewKey) -> NewKey:
        """Return a key with a new secret, which another key asked for."""
        with KeyStore(self.ledger) as keys:
            return self.known(keys.rotate(key.key_id, requested_by=by.key_id))

    def known(self, key: NewKey) -> NewKey:
        until(lambda: self.served.ask("GET", "/v1/models", token=key.key)[0] == 200)
        return key

    def by_key(self, key: NewKey) -> Vote:
        """Vote over the API."""
        return lambda request: self.served.ask(
            "POST", f"/api/approvals/{request}", {"grant": True}, token=key.key, headers=JSON
        )[0]

    def by_console(self, key: NewKey) -> Vote:
        """Vote in a console session."""
        visitor = Visitor(self.served)
        cookies = visitor.try_key(key.key).headers["set-cookie"].replace(", remit_", "\nremit_")
        visitor.cookie = "; ".join(one.partition(";")[0] for one in cookies.splitlines())
        return lambda request: (
            visitor.decide(f"/console/approvals/{request}", {"verdict": "grant"}).status
        )

    def by_command(self, name: str) -> Vote:
        """Vote on the command line."""
        return lambda request: (
            run_remit("approve", request, "--by", name, "--yes", "--root", self.root).returncode
        )

    def state(self, request: str) -> str:
        return ApprovalQueue(self.ledger).get(request).state


@pytest.fixture(scope="module")
def host(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = new_host(tmp_path_factory.mktemp("persons") / "root", PAIR)
    with serving(root, upstream.url) as served:
        yield served


@pytest.fixture(scope="module", params=["", "acme"], ids=["host", "tenant"])
def desk(host: Served, request: pytest.FixtureRequest) -> Iterator[Desk]:
    root = host.root / "tenants" / request.param if request.param else host.root
    with opened(root) as ledger:
        yield Desk(host, root, ledger)


def _with(make: Callable[[Desk, NewKey], tuple[Vote, Vote]]) -> Callable[[Desk], tuple[Vote, Vote]]:
    """A way that begins with a key of Ann's."""
    return lambda desk: make(desk, desk.machine_key("ann"))


def _changed_on_the_machine(desk: Desk, ann: NewKey) -> tuple[Vote, Vote]:
    other = desk.network_key(ann, "bob")
    with KeyStore(desk.ledger) as keys:
        keys.change(other.key_id, pass_through=["*"], requested_by="root")
    return desk.by_key(ann), desk.by_key(other)


def _chain(desk: Desk, ann: NewKey) -> tuple[Vote, Vote]:
    key = ann
    for user in ("bob", "cid", "dan"):
        key = desk.network_key(key, user)
    return desk.by_key(ann), desk.by_key(key)


def _remade(desk: Desk, ann: NewKey) -> tuple[Vote, Vote]:
    name, maker = new_session(), desk.network_key(ann, "bob")
    desk.network_key(maker, "bob", name)
    desk.api(ann, "DELETE", f"/keys/{name}")
    return desk.by_key(ann), desk.by_key(desk.network_key(maker, "cid", name))


def _renamed_user(desk: Desk, ann: NewKey) -> tuple[Vote, Vote]:
    user = new_session()
    desk.api(ann, "POST", "/users", {"id": user, "name": "Ann"})
    mine = desk.machine_key(user)
    desk.api(ann, "PUT", f"/users/{user}", {"name": "Bob"})
    return desk.by_key(mine), desk.by_key(desk.machine_key(user))


def _revoked_and_made_again(desk: Desk) -> tuple[Vote, Vote]:
    name = new_session()
    with KeyStore(desk.ledger) as keys:
        first = desk.known(keys.create(name, role="operator", user_id="ann"))
    vote = desk.by_key(first)

    def then_again(request: str) -> int:
        with KeyStore(desk.ledger) as keys:
            keys.revoke(first.key_id)
            again = desk.known(keys.create(name, role="operator", user_id="ann"))
        return desk.by_key(again)(request)

    return vote, then_again


def _chain_of_revoked(desk: Desk, ann: NewKey) -> tuple[Vote, Vote]:
    first = desk.network_key(ann, "bob")
    second = desk.network_key(first, "cid")
    third = desk.network_key(second, "dan")
    for key in (first, second):
        desk.api(ann, "DELETE", f"/keys/{key.key_id}")
    return desk.by_key(ann), desk.by_key(third)


WAYS: dict[str, Callable[[Desk], tuple[Vote, Vote]]] = {
    "twice": _with(lambda desk, ann: (desk.by_key(ann), desk.by_key(ann))),
    "two keys": _with(lambda desk, ann: (desk.by_key(ann), desk.by_key(desk.machine_key("ann")))),
    "other spelling": lambda desk: (
        desk.by_key(desk.machine_key("ann lee")), desk.by_key(desk.machine_key("\uff21NN Lee"))),
    "named bob": _with(lambda desk, ann: (
        desk.by_key(ann), desk.by_key(desk.network_key(ann, "bob", "bob")))),
    "named bob first": _with(lambda desk, ann: (
        desk.by_key(desk.network_key(ann, "bob")), desk.by_key(ann))),
    "chain": _with(_chain),
    "remade": _with(_remade),
    "renewed another's": _with(lambda desk, ann: (
        desk.by_key(ann), desk.by_key(desk.renewed(ann, desk.machine_key("bob"))))),
    "renewed by itself": _with(lambda desk, ann: (
        desk.by_key(ann),
        desk.by_key(desk.renewed(desk.renewed(ann, bob := desk.machine_key("bob")), bob)))),
    "console": _with(lambda desk, ann: (
        desk.by_key(ann), desk.by_console(desk.network_key(ann, "bob")))),
    "command and key": _with(lambda desk, ann: (desk.by_command("Ann"), desk.by_key(ann))),
    "key and command": _with(lambda desk, ann: (
        desk.by_key(desk.network_key(ann, "bob")), desk.by_command("\u200bann"))),
    "changed on the machine": _with(_changed_on_the_machine),
    "nameless": lambda desk: (desk.by_key(desk.machine_key()), desk.by_key(desk.machine_key())),
    "made by nameless": lambda desk: (
        desk.by_key(desk.network_key(key := desk.machine_key(), "ann")),
        desk.by_key(desk.network_key(key, "bob"))),
    "renamed user": _with(_renamed_user),
    "revoked and made again": _revoked_and_made_again,
    "chain of revoked": _with(_chain_of_revoked),
    "of a team": lambda desk: (
        desk.by_key(desk.machine_key("ann", team_id="one")),
        desk.by_key(desk.machine_key("ann", team_id="two", organisation_id="other"))),
}  # fmt: skip
OF_A_TENANT = ("two keys", "chain", "console", "command and key", "nameless")
"""A way by each door: who a person is does not depend on whose ledger it is."""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("desk", "way"),
    [*(("", way) for way in sample(WAYS, 8)), *(("acme", way) for way in sample(OF_A_TENANT, 2))],
    indirect=["desk"],
)
def test_one_person_never_approves_twice(desk: Desk, way: str) -> None:
    request = desk.waiting()
    first, second = WAYS[way](desk)
    assert (first(request) in GRANTED) is not ("nameless" in way)
    assert second(request) in (1, 409)
    assert desk.state(request) == "pending"


def test_two_persons_approve_whatever_their_keys_are_called(desk: Desk) -> None:
    ann, bob = desk.machine_key("ann"), desk.machine_key("bob")
    request = desk.waiting()
    assert [desk.by_key(key)(request) for key in (ann, bob)] == [200, 200]
    assert desk.state(request) == "granted"
    request = desk.waiting()
    misleading = desk.network_key(bob, "ann", "ann")
    assert desk.by_key(ann)(request) == 200
    assert desk.by_console(misleading)(request) == 303
    (granted,) = desk.ledger.query(event_type="APPROVAL_GRANTED", submission_id=request)
    assert granted.metadata["person"] == "bob"


def test_nobody_approves_their_own_request_or_without_the_permission(desk: Desk) -> None:
    ann, request = desk.machine_key("ann"), desk.waiting("ann")
    assert desk.by_key(desk.network_key(ann, "bob"))(request) == 409  # by another name
    assert desk.state(request) == "pending"
    request = desk.waiting()
    for role in ("agent", "admin"):
        with KeyStore(desk.ledger) as keys:
            key = desk.known(keys.create(new_session(), role=role, user_id="ann"))
        assert desk.by_key(key)(request) == 403
    assert desk.state(request) == "pending"


def test_a_session_of_a_key_asks_for_the_person_behind_the_key(desk: Desk) -> None:
    ann = desk.machine_key("ann")
    made = desk.api(ann, "POST", "/keys", {"name": new_session(), "role": "agent", "user": "zed"})
    session = new_session()
    desk.ledger.write(
        LedgerEntry("SESSION_START", session, "STARTED", "x", metadata={
            "provenance": {"agent_id": "clerk", "session_id": session}, "agent_id": "clerk",
            "user_id": "zed", "key_id": made["id"]})
    )  # fmt: skip
    queue = ApprovalQueue(desk.ledger)
    asked = queue.request(PAYOUT, {}, session_id=session, agent_id="clerk")
    assert asked.requested_by == "ann"
    assert desk.by_key(ann)(asked.request_id) == 409
