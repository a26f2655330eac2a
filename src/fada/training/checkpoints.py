"""Checkpoints of an interrupted training: which of them is the newest that can be continued from."""

import json
import logging
import shutil
from pathlib import Path

import torch

log = logging.getLogger(__name__)

CHECKPOINT_STATE = "fada_state.pt"
_TORCH_FILES = (CHECKPOINT_STATE, "optimizer.pt", "scheduler.pt")


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; incomplete and damaged ones (killed while writing, a full disk) are removed."""
    found = sorted(folder.glob("checkpoint-*"), key=_step)
    faults = {path: fault for path in found if (fault := _fault(path))}
    for path, fault in faults.items():
        log.warning("%s is damaged (%s) and removed", path, fault)
        shutil.rmtree(path, ignore_errors=True)
    whole = [path for path in found if path not in faults]
    # The weights of the best epoch so far are needed in the end: a checkpoint that has lost them is of no use.
    usable = [path for path in whole if _best(path) in (None, *map(_step, whole))]
    if faults:
        log.warning("continuing from %s", usable[-1] if usable else "the start: no whole checkpoint is left")
    return usable[-1] if usable else None


def _step(path: Path) -> int:
    number = path.name.partition("-")[2]
    return int(number) if number.isdecimal() else -1


def _best(path: Path) -> int | None:
    """The step of the best epoch that a checkpoint knows of."""
    return json.loads((path / "trainer_state.json").read_text(encoding="utf-8")).get("best_global_step")


def _fault(path: Path) -> str | None:
    """What is wrong with a checkpoint, None if everything in it can be read."""
    from safetensors import SafetensorError, safe_open

    try:
        _best(path)
        for name in _TORCH_FILES:
            torch.load(path / name, map_location="cpu", weights_only=True, mmap=False)
        for file in path.glob("rng_state*.pth"):
            if not file.stat().st_size:
                return f"{file.name} is empty"
        weights = [*path.glob("*.safetensors")]
        for file in weights:
            with safe_open(file, "pt") as stream:
                stream.keys()
        return None if weights else "no weights"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError, RuntimeError, EOFError, AttributeError, SafetensorError) as error:
        return str(error).partition("\n")[0][:120] or type(error).__name__
    except Exception as error:  # unpickling damaged bytes may raise anything
        return f"{type(error).__name__}: {error}"[:120]
