"""Text and its characters: normalised, counted, spelt by the symbols of a model."""
