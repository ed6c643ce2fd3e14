"""What the console takes on a great ledger: its pages, a browser's first paint, live events, and
what open pages cost the calls beside them."""
