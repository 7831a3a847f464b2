"""Hostile inputs for everything that reads what others wrote. See run.py; targets.py is the table."""
