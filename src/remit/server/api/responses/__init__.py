"""The forms of answers. Times are ISO 8601, UTC; money is in US dollars."""
