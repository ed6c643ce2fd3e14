"""Gemini's ``generateContent``: requests and answers."""
