"""Whether a trace can run for months: jobs come and go for hours, and nothing may grow."""
