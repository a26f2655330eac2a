"""Whole stories: studies, the demo, the tables of the paper, lipograms."""
