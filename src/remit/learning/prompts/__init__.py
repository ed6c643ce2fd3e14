"""Prompts that learn: small additions, found by replay within a budget."""

from remit.learning.prompts.loop import Measured as Measured, PromptLoop as PromptLoop
from remit.learning.prompts.search import Found as Found, Purse as Purse
