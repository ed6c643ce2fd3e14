"""Remit's interfaces as files: a change of one is a diff that is reviewed like code."""
