"""Remit beside two floors, a bare proxy and other gateways, before the same fake upstream.

    python -m benchmarks.gateways [--parts calls,streams,memory,workers] [--peers NAMES]
        [--concurrency 1,16,64,256] [--seconds 5] [--rounds 3] [--calls 50000] [--json FILE]
    python -m benchmarks.gateways --quick        each part once, in a minute on a quiet machine
    python -m benchmarks.gateways.flame FILE     a flame graph of calls, as SVG

Linux only (``epoll``, ``/proc``). Prints the machine, the time of a sync and Markdown tables, how
far it is on standard error; ``--json FILE`` writes every figure of every round.

**The rig.** The gateway, with all its processes, is pinned to one core; the upstream and the load
share another. Both are single threads on ``epoll`` that need 20 to 40 µs for a request together,
so that none of the gateways that do much is held up by them: the line ``direct`` shows how fast
they are alone. The upstream answers about 1 KB at once (:mod:`~benchmarks.gateways.upstream`).
The load (:mod:`~benchmarks.gateways.load`) is a closed loop: each caller has one connection and
asks again when it is answered. Every prompt differs, so that nothing is answered or stored from
memory; every answer is checked (status 200, the upstream's mark); and the upstream counts, so
that a gateway that answers by itself is found out. CPU is user and system time of the gateway's
process tree over the window, memory its resident pages after the last run. "Foreign" is the part
of the window in which somebody else had the gateway's core: where it is not near 0, trust CPU µs
over rates.

**Turns.** In each round each peer is started anew, measured at each concurrency after a warm-up
that does not count, and stopped. Nobody else's processes are alive in its turn. Medians of the
rounds are printed, with the least and the greatest; ratios are taken round by round.

**Remit** (:mod:`~benchmarks.gateways.ours`) checks a key, reserves from a budget, and writes two
durable records of a call with its prompt and answer. ``remit-order`` names a work order that
sixteen calls share, ``remit-budgets`` is bound by seven budgets, ``remit-auto`` is routed.

**Floors.** ``recording`` is written by hand, protocols on both sides, with two durable, chained
records of each call and nothing else (:mod:`~benchmarks.gateways.handwritten`); ``forwarding`` is
the same and records nothing; ``proxy`` is what is commonly written, uvicorn with aiohttp's
client, and records nothing. All run on the interpreter and the packages that Remit runs on.

**Others** (:mod:`~benchmarks.gateways.peers`; versions in
:mod:`~benchmarks.gateways.environments`). One worker each. They do not do the same work: LiteLLM
checks a key and counts costs in memory; Portkey and MLflow forward. LiteLLM and MLflow get virtual
environments and Portkey a ``node_modules`` below ``~/.cache/remit-bench`` (``$REMIT_BENCH_CACHE``)
on first use, which takes minutes and about 2 GB. A peer that cannot run here, or fails, is left
out from then on, with the reason; its earlier rounds stay.
"""
