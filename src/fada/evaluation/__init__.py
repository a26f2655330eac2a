"""How good a transcription is: edits, error rates per domain, significance, tables."""
