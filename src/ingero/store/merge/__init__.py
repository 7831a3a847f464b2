"""Several databases made into one, with nothing dropped and no source written to.

rules.py    which column of which table points where: what copying needs to know
source.py   an input made readable: ours, of an older version, or of the Go implementation
plan.py     which parts to take, when the same recording is in several inputs
copying.py  the rows of one part, with every number that is local to a file replaced
numbers.py  what a number of a file becomes: names, nodes, recordings, processes
stacks.py   stacks with their frames and texts
samples.py  samples in order of time
sums.py     rounds of collectives, operations by second and minute
findings.py findings
clocks.py   which clocks disagree, as far as the recordings tell
result.py   the order of things; the result appears whole or not at all

A part is everything one file holds of one node: it is what is taken or left.
"""
