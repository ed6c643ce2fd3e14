"""Tools beside the product: run from a checkout, not installed."""
