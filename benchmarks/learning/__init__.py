"""What the statistics of learning promise, counted."""
