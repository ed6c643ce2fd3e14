"""Prompts that learn: small additions, found by replay within a budget."""

from remit.learning.prompts.loop import Measured, PromptLoop
from remit.learning.prompts.search import Found, Purse, Quotes, rules_of

__all__ = ["Found", "Measured", "PromptLoop", "Purse", "Quotes", "rules_of"]
