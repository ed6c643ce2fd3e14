"""Journeys: how a prompt became an answer, put together from the ledger (SPEC 9.3)."""

from remit.views.journey import JourneyNotFoundError, gates_of, open_journey, prompt_journey
from remit.views.page import journey_page, page_parts
from remit.views.text import journey_text

__all__ = [
    "JourneyNotFoundError",
    "gates_of",
    "journey_page",
    "journey_text",
    "open_journey",
    "page_parts",
    "prompt_journey",
]
