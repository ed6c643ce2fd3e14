"""The wire dialects that Remit's server speaks, to and from the neutral form (SPEC 12).

Pure functions: :mod:`remit.providers.dialects.openai` for OpenAI's Chat Completions,
:mod:`remit.providers.dialects.anthropic` for Anthropic's Messages API.
"""

from remit.providers.dialects.call import ClientCall, Dialect, DialectError
from remit.providers.dialects.parameters import translate_parameters

__all__ = ["ClientCall", "Dialect", "DialectError", "translate_parameters"]
