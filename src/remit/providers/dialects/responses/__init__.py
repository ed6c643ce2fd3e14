"""OpenAI's Responses API, to and from the neutral form."""
