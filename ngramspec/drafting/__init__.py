"""The calibrated drafter: evidence from both caches, mixed into probabilities, spent where it pays."""
