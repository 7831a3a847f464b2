"""Several databases made into one, with nothing dropped and no source written to.

rules.py    which column of which table points where, and what a number of a file becomes
source.py   an input made readable: ours, of an older version, or of the Go implementation; which to take
copying.py  the rows of one part, with every number that is local to a file replaced
clocks.py   which clocks disagree, as far as the recordings tell
result.py   the order of things; the result appears whole or not at all

A part is everything one file holds of one node: it is what is taken or left.
"""
