"""Keeps what tracing costs within its budget.

    counters.py     what the kernel side counts of itself: hits by thread and function
    rates.py        calls a second of each function, and what they cost each process
    policy.py       how much of them is watched: rates in, decisions out, no clock and no kernel
    governor.py     acts on the decisions: tells the kernel side, takes probes off and on
    counts.py       calls that were not seen, estimated and marked
    thread_time.py  threads' time while their calls were not seen
    words.py        the decisions as users read them

A function is *thinned* when one call in so many is timed and the others are only counted. It is *cycled*
when its probes are on for a while and off for a while, at random: on-periods and off-periods.
"""
