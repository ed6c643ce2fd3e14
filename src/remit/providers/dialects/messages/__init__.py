"""Anthropic's Messages API, to and from the neutral form."""
