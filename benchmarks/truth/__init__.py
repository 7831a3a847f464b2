"""How often the diagnosis is right: real faults put into real jobs, each with its known cause.

`make bench-truth` runs all of it; docs/truth.md has the last figures.
"""
