"""A C-RNN with one more recurrent layer, to train on from: `python recipes/deeper.py french runs/medieval-start`.

All weights are the given model's; the new layer, below the output, starts at random. Half an epoch of training makes up
for it.
"""

import sys
from pathlib import Path

import torch

from fada.models.crnn import CRNNConfig, CRNNForCTC, CRNNRecognizer
from fada.models.registry import load_network


def main(model: str, out: Path) -> None:
    """Write the model folder."""
    torch.manual_seed(0)
    recognizer = load_network(model)
    assert isinstance(recognizer, CRNNRecognizer)
    config = recognizer.model.config.to_dict()
    deeper = CRNNForCTC(CRNNConfig(**{**config, "lstm_layers": config["lstm_layers"] + 1}))
    deeper.load_state_dict(recognizer.model.state_dict(), strict=False)
    recognizer.model = deeper
    recognizer.save_pretrained(out)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
