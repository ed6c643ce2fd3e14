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
    from remit.views.fallbacks import FallbackReason, Fallbacks, read_fallbacks
    from remit.views.journey import gates_of, open_journey, prompt_journey
    from remit.views.learn_report import learning_page, learning_shown, pictures_of
    from remit.views.page import POSITIONS, journey_page, page_parts
    from remit.views.periods import PERIODS, instant_of
    from remit.views.receipt_formats import public_receipts
    from remit.views.receipts import Receipt, read_receipts
    from remit.views.report import audit_report
    from remit.views.report_page import report_parts, report_script_hash
    from remit.views.terminal_tree import journey_text
    from remit.views.turn_ranges import SESSION_EVENTS
    from remit.views.usage import BY, Usage, UsageRow, read_usage
else:
    __getattr__ = lazy_names(__name__)

__all__ = [
    "BY",
    "PERIODS",
    "POSITIONS",
    "SESSION_EVENTS",
    "FallbackReason",
    "Fallbacks",
    "Receipt",
    "Usage",
    "UsageRow",
    "audit_report",
    "gates_of",
    "instant_of",
    "journey_page",
    "journey_text",
    "learning_page",
    "learning_shown",
    "open_journey",
    "page_parts",
    "pictures_of",
    "prompt_journey",
    "public_receipts",
    "read_fallbacks",
    "read_receipts",
    "read_usage",
    "report_parts",
    "report_script_hash",
]

# Earlier names, for programs that catch them; they end with version 1.0.
JourneyNotFoundError = NotFoundError
