"""What everything stands on: errors, canonical JSON, settings, roots, schema checks, threads."""
