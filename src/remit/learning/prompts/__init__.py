"""Prompts that learn: small additions, found by replay within a budget."""

from remit.learning.prompts.loop import Measured, PromptLoop
from remit.learning.prompts.purse import Purse
from remit.learning.prompts.quotes import Quotes
from remit.learning.prompts.rules import rules_of
from remit.learning.prompts.search import Found

__all__ = ["Found", "Measured", "PromptLoop", "Purse", "Quotes", "rules_of"]
