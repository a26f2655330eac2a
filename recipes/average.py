"""The mean of the weights of several C-RNNs of one training: `python recipes/average.py OUT MODEL MODEL...`."""

import sys
from pathlib import Path

from fada.models.crnn import CRNNRecognizer
from fada.training.adapt import Mean


def main(out: Path, models: list[str]) -> None:
    """Write the model folder."""
    first = CRNNRecognizer.load(models[0])
    mean = Mean()
    for model in models:
        mean.add(CRNNRecognizer.load(model).model.state_dict())
    mean.load_into(first.model)
    first.save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
