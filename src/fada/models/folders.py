"""Where models lie: those that come with the package, folders of models and of runs. Nothing here loads one."""

import os
from pathlib import Path

PRETRAINED = Path(__file__).parent.parent / "pretrained"
"""Models that come with the package, each a folder under its name."""
DEFAULT_MODEL = "medieval"
"""The Latin script of the Middle Ages, seven languages, 7th to 17th century."""


def resolve(name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The folder of a model that comes with the package; any other name as it is."""
    folder = PRETRAINED / name
    return folder if folder.parent == PRETRAINED and folder.is_dir() and not Path(name).exists() else name


def is_model_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a model or a run is stored there."""
    return any((Path(path) / name).is_file() for name in ("config.json", "model/config.json"))
