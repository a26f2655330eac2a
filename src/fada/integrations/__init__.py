"""Seams into other recognition programs."""
