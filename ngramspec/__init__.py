"""Training-free n-gram speculation for LLM inference."""

__version__ = "0.1.0"
