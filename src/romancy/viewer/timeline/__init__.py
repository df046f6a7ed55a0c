"""The timeline of an instance: a pure function from a `Timeline` to rows of SVG.

    scale.py   maps times to positions: linear, but long periods in which nothing runs become gaps
    rows.py    one row for each operation; many rows with one name are folded; compensations have a lane of their own
    svg.py     the shape shows the kind, the colour the outcome; each span is focusable and has a label

Positions are percentages, so that the drawing fits any width and its texts keep their size.
"""
