"""The Responses API with the ledger as its memory: stored turns and conversations."""
