"""The mean of the weights of several C-RNNs of one training: `python recipes/average.py OUT MODEL MODEL...`."""

import sys
from pathlib import Path

import torch

from fada.models.crnn import CRNNRecognizer


def main(out: Path, models: list[str]) -> None:
    """Write the model folder."""
    first = CRNNRecognizer.load(models[0])
    states = [CRNNRecognizer.load(model).model.state_dict() for model in models]
    first.model.load_state_dict({name: torch.stack([s[name].float() for s in states]).mean(0) for name in states[0]})
    first.save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
