"""The web page for operators: what happens, why, and what to do about it.

    Manager ──► pages ──► templates ──► HTML that works without scripts
                                         └── assets: scripts for live updates and shortcuts

The pages read and act through a `Manager` and know no store. All links are relative and ids are in the query, so the viewer
works at any root path and with any id. Values from users are untrusted text: only `html_text.py` and `values.py` make markup
from them, besides the templates, which escape everything.
"""
