"""Views of recorded events for people: journeys, usage and reports.

The room owns selection, order and wording. The room writes nothing and calls no model.

Invariants: the same entries always give the same view; a view shows every entry of its subject,
or names what it leaves out; text from the record cannot act as markup or terminal control.

Start reading in :mod:`remit.views.journey`. Doors: ``entries`` reads one entry, ``page`` makes
HTML, ``periods`` names spans of time, ``usage`` sums tokens and cost, ``wording`` turns values
into words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.kernel.errors import NotFoundError

if TYPE_CHECKING:
    from remit.views.fallbacks import (
        FallbackReason as FallbackReason,
        Fallbacks as Fallbacks,
        read_fallbacks as read_fallbacks,
    )
    from remit.views.journey import (
        gates_of as gates_of,
        open_journey as open_journey,
        prompt_journey as prompt_journey,
    )
    from remit.views.learn_report import (
        learning_page as learning_page,
        learning_shown as learning_shown,
        pictures_of as pictures_of,
    )
    from remit.views.page import (
        POSITIONS as POSITIONS,
        journey_page as journey_page,
        page_parts as page_parts,
    )
    from remit.views.periods import PERIODS as PERIODS, instant_of as instant_of
    from remit.views.receipt_formats import public_receipts as public_receipts
    from remit.views.receipts import Receipt as Receipt, read_receipts as read_receipts
    from remit.views.report import audit_report as audit_report
    from remit.views.report_page import (
        report_parts as report_parts,
        report_script_hash as report_script_hash,
    )
    from remit.views.terminal_tree import journey_text as journey_text
    from remit.views.turn_ranges import SESSION_EVENTS as SESSION_EVENTS
    from remit.views.usage import (
        BY as BY,
        Usage as Usage,
        UsageRow as UsageRow,
        read_usage as read_usage,
    )
else:
    __getattr__ = lazy_names(__name__)

# Earlier names, for programs that catch them; they end with version 1.0.
JourneyNotFoundError = NotFoundError
