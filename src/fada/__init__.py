"""Frequency-Aware Distribution Alignment: text recognition that respects how often characters are used."""

__version__ = "0.1.0"
