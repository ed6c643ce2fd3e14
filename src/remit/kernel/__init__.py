"""What everything uses: errors, canonical JSON, settings, roots, schema checks, threads."""
