"""Guided decoding: beam search whose score includes the distance to a target distribution (Eq. 2)."""
