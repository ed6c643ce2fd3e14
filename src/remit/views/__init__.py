"""Journeys: how a prompt became an answer (SPEC 9.3); the learning report as a page; the auditor's
report (SPEC 12)."""

from remit.views.journey import JourneyNotFoundError, gates_of, open_journey, prompt_journey
from remit.views.learned import learning_page
from remit.views.page import journey_page, page_parts
from remit.views.report import audit_report
from remit.views.report_page import report_parts, report_script_hash
from remit.views.text import journey_text

__all__ = [
    "JourneyNotFoundError",
    "audit_report",
    "gates_of",
    "journey_page",
    "journey_text",
    "learning_page",
    "open_journey",
    "page_parts",
    "prompt_journey",
    "report_parts",
    "report_script_hash",
]
