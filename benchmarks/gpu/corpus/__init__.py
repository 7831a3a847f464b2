"""Jobs to be recorded on a real card, each with its truth."""
