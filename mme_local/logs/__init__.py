"""Logs Insights of the local cloud: its query language, evaluated over the emulator's log events."""
