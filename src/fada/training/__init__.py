"""Training a recogniser, with or without alignment to its targets."""
