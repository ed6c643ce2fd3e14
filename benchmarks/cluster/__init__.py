"""Many gateways on one PostgreSQL: what a call costs whom, and where one log ends.

    python -m benchmarks.cluster [gateways] [log] [takeover] [budget] [kills]
        [--times 3] [--seconds 3] [--rounds 1] [--dir DIR] [--json FILE]

Linux only. Each part takes two to three minutes on two quiet cores with these defaults. PostgreSQL
comes from a wheel, with the settings it ships with; each gateway runs from a copy of the root, as
on a machine of its own. Everything shares the cores here, so rates say how busy they are: the
capacity of more machines is worked out from the processor time of each role, and from the time for
which a batch keeps the log's lock (:mod:`~benchmarks.cluster.capacity`).

- ``gateways`` (:mod:`~benchmarks.cluster.fleet`): ``remit serve`` once, twice, four times, on one
  log, and on as many tenants with a log each.
- ``log`` (:mod:`~benchmarks.cluster.log`): writers of one log that take turns by its lock, as Remit
  does, and beside it a **prototype**: writers commit what they have without the lock, and one
  sequencer gives it sequence numbers, hashes and its place in the tree (256 entries or 50 ms).
- ``takeover`` (:mod:`~benchmarks.cluster.takeover`): who holds the lock or a lease is killed or
  stands still; how long until another goes on.
- ``budget`` (:mod:`~benchmarks.cluster.budget`): four gateways use up one budget of 5 US dollars.
- ``kills`` (:mod:`~benchmarks.cluster.kills`): three gateways, two workers and PostgreSQL are
  killed in turn, ``--times`` each, or stand still, while clients call, try again under idempotency
  keys, and submit orders; then provider, clients, accounts, orders and ledger are held against one
  another.

Exit status 1: a promise was not held (``budget``, ``kills``).

What is measured inside of a batch (:mod:`~benchmarks.cluster.inside`) costs it two statements that
read the server's clock.
"""
