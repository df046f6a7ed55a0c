"""The measurements: each module runs as a process, takes a JSON object as its argument and prints one as its last line.

They are run as `python -m benchmarks.processes.<module>`; those of other engines in an environment where romancy is not
installed.
"""
