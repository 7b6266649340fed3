"""Helpers shared by tests (importable as `support.*`)."""
