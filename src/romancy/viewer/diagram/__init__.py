"""The diagram of a workflow, with the path that one instance took.

    stored source ──► parser ──► tree ─┬─► marks (history, by call site) ──► path_inference (which way was taken)
                                       └─► layout ──► svg, text_alternative

Python's control flow nests, so the layout needs no search: statements are below each other, branches are side by side, loops
and `try` are frames, concurrent operations are a fork. The nodes are operations. Each is matched with the history by its
call site, never by its name. The package is pure: no I/O, no clock.
"""

from romancy.viewer.diagram.composition import Diagram, DrawnNode, draw
from romancy.viewer.diagram.text_alternative import Outline

__all__ = ["Diagram", "DrawnNode", "Outline", "draw"]
