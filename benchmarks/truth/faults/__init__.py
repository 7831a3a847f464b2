"""The faults, by what is at fault. Each module lists its cases in CASES."""
