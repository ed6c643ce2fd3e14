"""Calls as they are on the wire: the endpoints, request bodies and answers of each dialect.

What is here reads along; it changes nothing (SPEC 4.0). Translation between dialects is in
:mod:`remit.providers.dialects`.
"""
