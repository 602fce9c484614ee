"""Handlers that run inside model servers, in their own processes; nothing of this package is imported there."""
