"""The Responses API: stored responses, their items, and conversations, from the ledger.

A stored response is an ``EXCHANGE`` entry, and a row of ``response_ids`` leads from its id to the
entry. A conversation is a chain of entries. The package owns no call: :mod:`remit.server.calls`
makes calls, and asks this package for the earlier turns.

Invariants: an id is usable only by its owner; a deletion erases the content that nothing else
shows.

Start reading in :mod:`remit.server.responses.endpoint`.
"""
