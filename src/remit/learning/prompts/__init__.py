"""Prompts that learn: small additions, found by replay within a budget."""

from remit.learning.prompts.loop import Measured, PromptLoop
from remit.learning.prompts.search import Found, Purse

__all__ = ["Found", "Measured", "PromptLoop", "Purse"]
