"""The Responses API with the ledger as its memory (SPEC 4.0): what a chain goes on from."""
