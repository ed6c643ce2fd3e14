"""Other people's clients: the same tasks directly and through Remit (``make test-clients``)."""
