"""The same program in Remit and in its peers: see :mod:`benchmarks.agents.side_by_side`.

A support agent answers with data, looks orders up, and refunds them when a person approves. It may
be killed while it waits for the person, and goes on where it stopped when it is started again.
"""
