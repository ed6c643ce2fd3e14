"""Evidence: exchanges with their outcomes, read from the record, and feedback on them."""
