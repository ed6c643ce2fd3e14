"""A strict provider: OpenAI's and Anthropic's HTTP interfaces as their own SDKs describe them.

A process of its own (``python -m tests.support.strict``). It refuses what the providers refuse,
answers by a script (:mod:`tests.support.strict.script`) and keeps every request and answer byte
for byte. What a client meets there is what it meets at the provider; so a client that passes here
must pass through Remit too.
"""
