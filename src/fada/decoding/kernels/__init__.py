"""The compiled parts of decoding."""
