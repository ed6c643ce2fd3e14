"""``python -I -S forked.py SOCKET``: hands its stdio to ``reference.py --fork SOCKET``, and ends
with the copy that serves it.
"""

import socket
import sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    socket.send_fds(server, [b"0"], [0, 1, 2])
    server.recv(1)
