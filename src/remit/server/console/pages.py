"""Requests and pages of the console's views, and the templates of the pages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup, escape

from remit.agents import ApprovalQueue
from remit.gateway.auth import Identity
from remit.kernel.message_text import dollars
from remit.ledger import LedgerClient
from remit.operations import RootPort
from remit.runtime import Runtime
from remit.server.asgi import Answer
from remit.server.console.assets import address_of, style
from remit.server.console.caches import (
    KeptReport,
    KeptUsage,
    KnownEntries,
    UntilNextEntry,
    WaitingApprovals,
)
from remit.views import POSITIONS, wording
from remit.views.page import environment

NAVIGATION = (
    ("/", "Now"),
    ("/console/calls", "Calls"),
    ("/console/sessions", "Sessions"),
    ("/console/journey", "Journey"),
    ("/console/why", "Why this model"),
    ("/console/spend", "Spend"),
    ("/console/keys", "Keys"),
    ("/console/approvals", "Approvals"),
    ("/console/verify", "Verify"),
    ("/console/proposals", "Proposals"),
)
"""The views of the navigation bar: path and title."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The data sources of the views.

    Attributes:
        runtime: the open root; decisions of a person are written through it.
        ledger: a reader with its own connections, which model calls do not use.
        approvals: the runtime's approval requests, read over these connections.
        reads: keys, owners and budgets, read over these connections.
        writes: the same over the runtime's connections, for changes by operations.
        usage: cached usage and costs.
        learned: the cached learning report.
        waiting: the approval requests that wait for a person.
        unchanged: results of queries of a page, as long as the ledger has no new entry.
        known: entries that pages have read, so that lists do not parse them again.
        past_days: figures of yesterday that the start page computed, keyed by the day's beginning.
    """

    runtime: Runtime
    ledger: LedgerClient
    approvals: ApprovalQueue
    reads: RootPort
    writes: RootPort
    usage: KeptUsage
    learned: KeptReport
    waiting: WaitingApprovals
    unchanged: UntilNextEntry
    known: KnownEntries = field(default_factory=KnownEntries)
    past_days: dict[datetime, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page.

    Attributes:
        path: the path of the URL.
        rest: the part of the path after the view's own path, without the slash.
        query: query parameters; the last value if a name is repeated.
        form: form fields of a ``POST``; empty for a ``GET``.
        identity: the signed-in person or key.
    """

    path: str
    rest: str
    identity: Identity
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)


class Page(NamedTuple):
    """A page, rendered later.

    Attributes:
        template: file name of the template.
        data: values of the template. A function, such as ``read``, is called in the content of the
            page, after the head was sent to the browser.
        status: HTTP status.
        headers: additional headers.
    """

    template: str
    data: Mapping[str, Any]
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = ()


class View(NamedTuple):
    """A path of the console, and the functions that answer its requests.

    Attributes:
        path: the path of the view; a longer path has its rest in :attr:`Asked.rest`.
        show: answers a ``GET`` with a page or a redirect; requires the permission ``read``.
        change: answers a ``POST``; ``None`` if the view accepts no changes.
        needs: the permission that ``change`` requires.
    """

    path: str
    show: Callable[[Sources, Asked], Page | Answer]
    change: Callable[[Sources, Asked], Page | Answer] | None = None
    needs: str = ""


@functools.cache
def templates() -> Environment:
    """Return the Jinja environment for the templates of the console and of the views; cached."""
    shared = environment()
    loaders = [PackageLoader("remit.server.console"), shared.loader]
    made = shared.overlay(loader=ChoiceLoader([one for one in loaders if one is not None]))
    made.globals = {
        **shared.globals, "asset": address_of, "navigation": NAVIGATION, "style_sheet": style,
        "positions": POSITIONS,
    }  # fmt: skip
    made.filters = {**shared.filters, "coded": _coded, "moment": _moment, "usd": _usd,
                    "amount": _amount,
                    "segment": lambda text: quote(str(text), safe="")}  # fmt: skip
    return made


def _coded(text: Any) -> Markup:
    """Return a text in which parts between backticks are code."""
    parts = [escape(wording.visible(one, lines=True)) for one in str(text).split("`")]
    if len(parts) % 2 == 0:  # The last backtick has no other.
        parts[-2:] = [Markup("`").join(parts[-2:])]
    parts[1::2] = [Markup("<code>{}</code>").format(one) for one in parts[1::2]]
    return Markup("").join(parts)


def _moment(timestamp: Any) -> Markup | str:
    """Return a time in UTC; ``local.js`` replaces its text by the reader's local time."""
    text = wording.moment(timestamp)
    if not text.endswith(" UTC"):
        return text
    # Markup.format() takes a tenth of the time of a page.
    when, shown = escape(f"{text[:10]}T{text[11:19]}Z"), escape(text)
    return Markup(f'<time datetime="{when}">{shown}</time>')  # noqa: S704 - both are escaped


def _usd(nano: int) -> Markup:
    """Return nano-dollars with two decimals, and the exact amount as a title."""
    return _amount(nano / 1e9, wording.nano_dollars(nano))


def _amount(usd: float, exact: str = "") -> Markup:
    """Return US dollars with two decimals, and the exact amount as a title."""
    title, shown = escape(exact or dollars(usd)), escape(wording.cents(usd))
    return Markup(f'<data value="{usd}" title="{title}">{shown}</data>')  # noqa: S704


def page_of_list(items: Sequence[Any], limit: int) -> tuple[list[Any], bool]:
    """Return the first ``limit`` items, and True if there are more.

    Args:
        items: items of the list; one more than ``limit`` is enough.
        limit: largest number of items on a page.
    """
    return list(items[:limit]), len(items) > limit
