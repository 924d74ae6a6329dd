"""Compiled functions over views of one buffer: fill outputs, return ints, never raise, never allocate."""
