"""Keeps what tracing costs within its budget.

    rates.py        hits by thread and function, calls a second of each, and what they cost each process
    policy.py       how much of them is watched: rates in, decisions out, no clock, no kernel; and its words
    governor.py     acts on the decisions: tells the kernel side, takes probes off and on
    counts.py       calls that were not seen, estimated and marked
    thread_time.py  threads' time while their calls were not seen
    seen.py         what of a window was seen, and the last on-periods

A function is *thinned* when one call in so many is timed and the others are only counted. It is *cycled*
when its probes are on for a while and off for a while, at random: on-periods and off-periods.
"""
