"""``mme warm-up``: what a warm-up would do, starting one, and what the last one did."""
