"""Recordings that are kept with their truth, and every later diagnosis judged against them."""
