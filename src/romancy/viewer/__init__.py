"""The web page for operators: what happens, why, and what to do about it.

    Manager ──► pages ──► templates ──► HTML that works as it is
                                         └── assets: scripts that keep it fresh and save clicks

It reads and acts through a `Manager` and knows no store. All links are relative and ids stand in the query, so it works at any
root path and with any id. Whatever comes from users is text: `text.py` and `values.py` are the only places that make
markup from it, besides the templates, which escape everything.
"""
