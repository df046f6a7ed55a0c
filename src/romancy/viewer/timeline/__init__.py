"""The time line of an instance: a pure function from a `Timeline` to rows of SVG.

    scale.py     from times to places: linear, but long stretches in which nothing runs become breaks
    rows.py      one row for each operation; many of one name fold; what was undone stands in a lane of its own
    drawing.py   shape = kind, colour = outcome; each span can be reached and says what it is

Places are percentages, so that the drawing fits any width and its texts keep their size.
"""
