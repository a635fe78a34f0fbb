"""personalink: training-free personalization of a frozen language model."""

__version__ = "0.1.0.dev0"
