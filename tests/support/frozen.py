"""What is imported before this stays: neither this process nor any forked from it looks there
for garbage, and they go on sharing its memory. The routes of the API stay too."""

import gc

from remit.server.api.routes import operation_routes

operation_routes()
gc.collect()
gc.freeze()
