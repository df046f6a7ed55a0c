"""A workflow as a picture, with the path that one instance took.

    stored source ──► reading ──► tree ─┬─► marks (history, by call site) ─► path (which way was taken)
                                        └─► layout ─► svg, words

Python's control flow nests, so nothing has to be laid out by searching: statements stand below each other, branches side by
side, loops and `try` are frames, what runs at once forks. The nodes are operations; each is found in the history by its
place in the code, never by its name. Pure: no I/O, no clock.
"""

from romancy.viewer.diagram.composition import Diagram, DrawnNode, draw
from romancy.viewer.diagram.text_alternative import Outline

__all__ = ["Diagram", "DrawnNode", "Outline", "draw"]
