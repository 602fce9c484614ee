"""Bringing models to a deployed platform: one, or as many as a manifest lists."""
