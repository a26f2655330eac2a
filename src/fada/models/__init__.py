"""Recognition models as `transformers` models, with the processors saved beside them."""
