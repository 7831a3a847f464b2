"""Whether the rank that all wait for is found across nodes: real agents, shifted clocks, known truth.

job.py      what runs on one node: some ranks of a job, one of them with a fault
shifted.py  ingero with a wall clock that is ahead or behind
stage.py    several nodes on this machine: an agent for each, and what really happened
run.py      many seeded runs, and how many were told right (`make bench-across`)
"""
