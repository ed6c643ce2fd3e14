"""What runs inside a peer's own process and environment, where there is no Remit.

Each runner is ``python -m benchmarks.agents.runners.PEER URL CALLERS SECONDS ROOT [OPTION…]``,
from the top of the repository; see :mod:`.loops`. What ``loops`` and ``script`` import imports
nothing of Remit.
"""
