"""The Responses API with the ledger as its memory: what a chain goes on from."""
