"""What an agent's turn costs with Remit, and beside other agent runtimes.

    python -m benchmarks.agents [--only turns|peers|resume] [--rounds 5] [--json FILE]
        [--peers remit,remit-kept,pydantic-ai,…] [--callers 1,16] [--seconds 6]
        [--steps 2,50,200]

Linux only. Prints the machine, the time of a sync and the tables; ``--json FILE`` writes every
figure of every round. Medians of the rounds are printed, with the least and the greatest; ratios
are taken round by round.

**peers** (:mod:`~benchmarks.agents.peers`): the same loop everywhere: a question, the model asks
for tool A, reads its result, asks for tool B, reads its result, answers; three model calls, two
tools. The upstream (:mod:`~benchmarks.agents.upstream`) is one thread on ``epoll`` on a core of its
own, answers at once by the state of the conversation, and counts: a run in which a call or a tool
is missing or too many is thrown out. Each peer runs in a process of its own on the other core,
asyncio on uvloop, tools that are coroutines, first one loop at a time and then many at once; each
round starts all of them anew, in turned order. Pydantic AI and OpenAI's Agents SDK (tracing off)
keep nothing and get environments below ``~/.cache/remit-bench`` (``$REMIT_BENCH_CACHE``) on first
use; both with the SDK's default HTTP client and with its aiohttp one. Remit begins a session for
each loop, reserves from its budgets, writes every model call twice, every tool call twice, plan,
verdict and turn, and waits for the disk each time; classification is off, all else is default.
Aim: a loop takes no longer than any peer's, alone and sixteen at once. Against one of them alone:
``python -m benchmarks.agents --only peers --peers remit,openai-agents,openai-agents-aiohttp``.
"Foreign" is the part of the time in which others had the peer's core: where it is not near 0,
trust no times. What Remit takes depends on the disk: look at the time of a sync.

**turns** (:mod:`~benchmarks.agents.turns`): what Remit takes for a turn when the model takes no
time, at turn 1, 100 and 1,000 of a session, plain and with a step.

**resume** (:mod:`~benchmarks.agents.resume`): an order killed after many steps and gone on with by
another process.
"""
