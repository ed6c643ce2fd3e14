"""Sphinx' settings; ``tools/site/__main__.py`` runs it over the pages as they lie on GitHub."""

import os

project = "Remit"
author = "The Remit authors"
project_copyright = author
version = release = os.environ.get("REMIT_DOCS_VERSION", "latest")

extensions = ["myst_parser"]
exclude_patterns = ["**/node_modules", ".github"]
myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
suppress_warnings = [
    "misc.highlighting_failure",  # outputs with an ellipsis are no valid TOML or JSON
    "myst.xref_ambiguous",
]
nitpicky = True

html_theme = "furo"
html_title = f"Remit {version}"
html_show_sphinx = False
html_copy_source = False
html_extra_path = ["openapi.json"]
