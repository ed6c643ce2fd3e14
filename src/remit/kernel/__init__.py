"""The bottom room: errors, canonical JSON, settings, roots, JSON Schema checks, background loops.

Every other room may import any module of the kernel; the kernel imports no other room. Nothing
here opens a ledger, calls a model or knows a provider. Start with ``errors`` (``RemitError`` and
its next step), ``settings`` (all of ``remit.toml``) and ``exchange`` (a call and its answer, as
agents and the gateway see them).
"""
