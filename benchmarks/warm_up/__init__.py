"""Warm-up after a fleet's change, in virtual time: how many cold requests it avoids, and what it costs."""
