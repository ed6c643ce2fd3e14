"""Proposals: made, adopted, taken back."""
