"""The decision trail."""
