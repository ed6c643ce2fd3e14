"""The documentation as a static site, built from ``docs/`` (``make docs``)."""
