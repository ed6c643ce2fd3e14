"""Calls as they are on the wire: the endpoints, request bodies and answers of each dialect.

What is here reads along; it changes nothing. Translation between dialects is in
:mod:`remit.providers.dialects`.
"""
