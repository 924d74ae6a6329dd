"""Serving, simulated: requests arrive, prompts are prefilled in chunks, and a clock advances by modelled step times.

Nothing here reads a real clock to decide anything, so that equal inputs give equal numbers.
"""
