"""Run folders: what a training left behind, and everything needed to repeat it."""
