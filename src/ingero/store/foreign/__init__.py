"""Databases of the Go implementation (schemas 0.8, 0.9, 0.10), read into our own schema.

source.py      the file: what it has, and values made safe to take over
convert.py     the order of things, in one transaction; frames
recordings.py  nodes, recordings, samples of the machine
processes.py   processes and containers
events.py      its operation numbers, rows of its `events`, and what follows from them alone
totals.py      per-minute aggregates: the true counts
accounting.py  where a thread's time went: arithmetic on intervals, nothing else
threads.py     that arithmetic applied to the stored intervals

What such a file can prove is less than what our own probes record; recordings.py says
what is missing, and docs/imported-recordings.md says it to users.
"""
