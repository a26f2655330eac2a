"""Checkpoints of an interrupted training: which of them is the newest that can be continued from."""

import json
import logging
import shutil
import zlib
from pathlib import Path
from typing import Any

import torch

from fada.common.files import write_json

log = logging.getLogger(__name__)

CHECKPOINT_STATE = "fada_state.pt"
CHECKSUMS = "checksums.json"
_OF_A_WEIGHT = {"step", "exp_avg", "exp_avg_sq"}
"""What AdamW knows of a weight: a number of steps and two moments of the weight's own shape."""
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


def write_checksums(folder: Path) -> None:
    """Write those of the files of a checkpoint, as its last file."""
    write_json(folder / CHECKSUMS, {file.name: _checksum(file) for file in sorted(folder.iterdir()) if _is_ours(file)})


def check_optimizer(optimizer: Any) -> None:
    """Raise ValueError if an AdamW has loaded what is not the state of its own weights."""
    for weight, known in optimizer.state.items():
        if set(known) != _OF_A_WEIGHT:
            raise ValueError(f"the optimizer knows {sorted(map(str, known))} of a weight")
        wrong = [name for name in ("exp_avg", "exp_avg_sq") if known[name].shape != weight.shape]
        if wrong or known["step"].numel() != 1:
            raise ValueError("the optimizer has the state of weights of another shape")


def numbers(optimizer: Any, scheduler: Any) -> list[dict[str, int]]:
    """How many numbers stand under each name in the settings of an optimizer and of its scheduler."""

    def count(settings: dict[str, Any]) -> dict[str, int]:
        listed = {name: value if isinstance(value, list | tuple) else [value] for name, value in settings.items()}
        return {name: len(values) for name, values in listed.items() if values and {*map(type, values)} <= {int, float}}

    groups = [{name: one for name, one in group.items() if name != "params"} for group in optimizer.param_groups]
    return [*map(count, groups), count(scheduler.state_dict())]


def _is_ours(file: Path) -> bool:
    """Whether this process has written a file: other ones that train with it write the states of theirs."""
    return file.is_file() and file.name != CHECKSUMS and not file.name.startswith("rng_state_")


def _checksum(file: Path) -> str:
    found = 0
    with file.open("rb") as stream:
        while block := stream.read(2**20):
            found = zlib.crc32(block, found)
    return f"{found:08x}"


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
        if (path / CHECKSUMS).is_file():  # not in those of earlier versions
            for name, expected in json.loads((path / CHECKSUMS).read_text(encoding="utf-8")).items():
                if _checksum(path / name) != expected:
                    return f"{name} is not what was written"
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
