"""Caches: what was seen, and what followed it."""
