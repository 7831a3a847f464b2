"""Jobs the diagnosis has never met, written without looking at it, and what is true of each."""
