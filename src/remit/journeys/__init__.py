"""Journeys: how a prompt became an answer, put together from the ledger (SPEC 9.3)."""

from remit.journeys.errors import JourneyNotFoundError
from remit.journeys.journey import open_journey, prompt_journey
from remit.journeys.page import journey_page, page_parts
from remit.journeys.text import journey_text

__all__ = [
    "JourneyNotFoundError",
    "journey_page",
    "journey_text",
    "open_journey",
    "page_parts",
    "prompt_journey",
]
