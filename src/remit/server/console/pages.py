"""What a view is given and what it gives, and the templates that make pages of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader

from remit.agents import ApprovalQueue
from remit.gateway.auth import Directory, Identity
from remit.ledger import LedgerClient
from remit.runtime import Runtime
from remit.server.console.assets import address_of, style
from remit.server.console.kept_report import KeptReport
from remit.server.console.kept_usage import KeptUsage
from remit.views.page import environment

NAVIGATION = (
    ("/", "Now"),
    ("/console/sessions", "Sessions"),
    ("/console/journey", "Journey"),
    ("/console/why", "Why this model"),
    ("/console/spend", "Spend"),
    ("/console/approvals", "Approvals"),
    ("/console/verify", "Verify"),
    ("/console/proposals", "Proposals"),
)
"""The eight views."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What views read.

    Attributes:
        runtime: the open root; what a person decides is written through it.
        ledger: for reading, over connections that calls do not use.
        approvals: the same requests as the runtime's, read over these connections.
        owners: the names of users, teams and organisations.
        usage: what was used and spent, added up.
        learned: what came of what was learned.
    """

    runtime: Runtime
    ledger: LedgerClient
    approvals: ApprovalQueue
    owners: Directory
    usage: KeptUsage
    learned: KeptReport


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page.

    Attributes:
        path: of the URL.
        rest: of the path, behind the view's own.
        query: by name, the last where one is given twice.
        form: of a ``POST``.
        identity: who is signed in.
    """

    path: str
    rest: str
    identity: Identity
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)


class Page(NamedTuple):
    """A page: its template and what stands in it."""

    template: str
    data: Mapping[str, Any]
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = ()


class Redirect(NamedTuple):
    """Another page that shows what became of it."""

    to: str


class View(NamedTuple):
    """What answers under a path.

    Attributes:
        path: of the view; what follows it behind a slash is :attr:`Asked.rest`.
        show: makes the page of a ``GET``.
        change: does what a ``POST`` wants; ``None`` where nothing can be changed.
        needs: the permission that a change takes; to read takes ``read``.
    """

    path: str
    show: Callable[[Sources, Asked], Page | Redirect]
    change: Callable[[Sources, Asked], Page | Redirect] | None = None
    needs: str = ""


@functools.cache
def templates() -> Environment:
    """The console's templates, with those of the pages that it shows a part of."""
    shared = environment()
    loaders = [PackageLoader("remit.server.console"), shared.loader]
    made = shared.overlay(loader=ChoiceLoader([one for one in loaders if one is not None]))
    made.globals = {
        **shared.globals, "asset": address_of, "navigation": NAVIGATION, "style_sheet": style,
    }  # fmt: skip
    made.filters = {**shared.filters, "segment": lambda text: quote(str(text), safe="")}
    return made


def page_of_list(items: Sequence[Any], limit: int) -> tuple[list[Any], bool]:
    """The first ``limit`` items, and whether there are more."""
    return list(items[:limit]), len(items) > limit
