"""Remit under attack, for as long as one likes: what was promised is held, or lost.

    python -m benchmarks.torture --store sqlite --events 400 [--only kills,clocks] [--seed 7]

Three ``remit serve`` (one with two workers) on one ledger, before a provider that counts what
reached it; honest clients that share keys with hard caps; and one event after the other that
chance chooses. At the end the provider, the clients, the accounts and the ledger are held against
one another. Exit status 0: all was held.
"""
