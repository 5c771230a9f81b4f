"""The answer: what is saved and printed."""
