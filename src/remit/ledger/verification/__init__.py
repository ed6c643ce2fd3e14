"""Verification of a ledger: records, links, content, tree, checkpoints and tables.

The package reads everything as untrusted bytes, reports each fault, and never stops at one. The
package changes nothing in the database; after a sound run it writes a mark for the next run.

Start reading in ``verifier``; ``entries`` and ``contents`` check one range each.
"""
