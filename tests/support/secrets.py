"""Texts in the forms of well-known keys. None of them is a key."""

from __future__ import annotations

__all__ = ["KEYS"]

_BODY = "Ab3dEf6hIj9lMn2pQr5tUv8xYz1bCd4fGh7j"

KEYS = (
    f"sk-live-{_BODY}", f"sk_live_{_BODY}", f"rk_test_{_BODY}", f"ghp_{_BODY}", f"ghs_{_BODY}",
    f"github_pat_{_BODY}", f"glpat-{_BODY}", f"xoxb-12345678901-{_BODY}", f"hf_{_BODY}",
    f"npm_{_BODY}", "AKIA" + "Z2QY5TWVU7PN4KDM", "ASIA" + "Z2QY5TWVU7PN4KDM", f"AIza{_BODY[:35]}",
    f"eyJ{_BODY}.eyJ{_BODY}.{_BODY}",
)  # fmt: skip
