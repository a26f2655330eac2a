"""Weights of the score, chosen on validation lines."""
