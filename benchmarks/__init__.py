"""What ingero costs and how fast it is, measured. `make bench` runs all of it.

Timings belong here and never into a test: a test says what is right, a benchmark
what it takes on the machine at hand.
"""
