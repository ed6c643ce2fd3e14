"""LLM gateways before the same fake upstream: what each adds to a call.

    python -m benchmarks.gateways [--peers remit,floor,litellm,portkey,mlflow]
        [--concurrency 1,16,64] [--seconds 8] [--rounds 3] [--payload 1024] [--json FILE]
    python -m benchmarks.gateways.streaming     time to the first text, cost of a chunk
    python -m benchmarks.gateways.memory --requests 200000      memory of Remit under load
    python -m benchmarks.gateways.workers       Remit's workers on SQLite and on PostgreSQL

Linux only (``epoll``, ``/proc``). Each prints the machine, the time of a sync and its table;
``--json FILE`` writes every figure of every round.

**The rig.** The gateway, with all its processes, is pinned to one core; the upstream and the load
share another. Both are single threads on ``epoll`` that need 20 to 40 µs for a request together,
so that none of the gateways is held up by them: the line ``direct`` shows how fast they are
alone. The upstream answers about 1 KB at once (:mod:`~benchmarks.gateways.upstream`;
``--upstream nginx`` takes nginx, where it is installed). The load
(:mod:`~benchmarks.gateways.load`) is a closed loop: each caller has one connection and asks again
when it is answered. Every prompt differs, so that nothing is answered or stored from memory; every
answer is checked (status 200, the upstream's mark); and the upstream counts, so that a gateway that
answers by itself is found out. CPU is user and system time of the gateway's process tree over the
window, memory its resident pages after the last run. "Foreign" is the part of the window in which
somebody else had the gateway's core: where it is not near 0, trust CPU µs over rates.

**Turns.** In each round each peer is started anew, measured at each concurrency after a warm-up
that does not count, and stopped. Nobody else's processes are alive in its turn. Medians of the
rounds are printed, with the least and the greatest; ratios are taken round by round.

**The peers** (:mod:`~benchmarks.gateways.peers`; versions in
:mod:`~benchmarks.gateways.environments`). One worker each. They do not do the same work: Remit
checks a key, reserves from a budget, and writes two durable records of a call with its prompt and
answer; LiteLLM checks a key and counts costs in memory; Portkey and MLflow forward. LiteLLM and
MLflow get virtual environments and Portkey a ``node_modules`` below ``~/.cache/remit-bench``
(``$REMIT_BENCH_CACHE``) on first use, which takes minutes and about 2 GB. A peer that cannot run
here, or fails, is left out from then on, with the reason; its earlier rounds stay.

**Floors.** ``floor`` is a bare Python proxy (uvicorn, httptools, uvloop, aiohttp) that keeps
nothing. ``two barriers`` is a bare loop without a server: for each call 1 KB made durable, the
call, 2 KB made durable, with one ``fdatasync`` for all that wait.
"""
