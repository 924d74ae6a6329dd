"""Adapters, one folder an engine; each is the only importer of its engine."""
