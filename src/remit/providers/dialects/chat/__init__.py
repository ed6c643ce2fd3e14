"""OpenAI's Chat Completions, to and from the neutral form."""
