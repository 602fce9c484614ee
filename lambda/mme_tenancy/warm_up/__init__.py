"""Warm-up after the fleet changes: what changed, what is warmed for it, and the run of it. Without AWS calls."""
