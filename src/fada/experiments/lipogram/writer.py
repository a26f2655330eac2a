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

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fada.distances import LAM
from fada.errors import FadaError
from fada.experiments.lipogram.story import DEVELOPMENT_TOPICS, Story, parse_story
from fada.targets.distribution import CharDistribution
from fada.text.characters import OTHER
from fada.text.tokens import whole_characters

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Mode = Literal["plain", "soft", "hard", "soft+hard"]
MODES: tuple[Mode, ...] = get_args(Mode)

Style = Literal["json", "short", "continue"]
STYLES: tuple[Style, ...] = get_args(Style)
"""The paper's instruction with its fields and a JSON answer; a short instruction; or no instruction at all."""

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
class Timing:
    """Seconds of a run, and how many of them the guidance, the mask and the ending rules took."""

    seconds: float
    guidance_seconds: float


def focused_target(rates: Mapping[str, float]) -> CharDistribution:
    """A target that tells only some characters apart: their frequencies, and everything else in one cell.

    ``focused_target({"e": 0.0})`` is for lipograms, ``focused_target({"e": 0.06})`` asks for half as many e as usual.
    """
    if not rates or sum(rates.values()) >= 1:
        raise FadaError(f"rates {dict(rates)}: expected frequencies for some characters that sum to less than 1.")
    symbols = sorted(rates)
    frequencies = [rates[symbol] for symbol in symbols]
    return CharDistribution((*symbols, OTHER), np.array([*frequencies, 1 - sum(frequencies)]))


def lipogram_target(own: CharDistribution, forbidden: Iterable[str]) -> CharDistribution:
    """A whole distribution with the forbidden characters at zero and the rest rescaled."""
    present = [c for c in forbidden if own.frequency(c) > 0]
    if not present:
        raise FadaError(
            f"forbidden {' '.join(sorted(forbidden))}: not one of them occurs in the target distribution "
            f"(its letters: {''.join(s for s in own.symbols if s.isalpha())}), so there is nothing to avoid."
        )
    return own.with_frequency(dict.fromkeys(present, 0.0))


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a writer writes.

    Attributes:
        lam, scale, warmup: weights of Eq. 2 in the modes with guidance, see
            :class:`~fada.decoding.generate.GuidedLogitsProcessor`; a scale of None is one that suits the mode.
        num_beams: beam size; with `sample` it is 1.
        sample: draw tokens instead of searching for the best text; seeds matter only then.
        temperature, top_k: of sampling.
        max_new_tokens, min_new_tokens: length of a story in tokens.
        style: ``json`` gives an instruction like the paper's (what a lipogram is, the task, the format) and opens the
            JSON that the model answers with; ``short`` is one sentence, better for small models; ``continue`` is for
            models without chat template, which go on from "Here is a story about …".
        language: of the words that the masked modes write, see :func:`~.readability.word_frequencies`.
        distance: ``aligned_w2`` knows which letter is meant; ``sorted_w2`` is Eq. 1 to the letter.
    """

    lam: float = LAM
    scale: float | None = None
    warmup: float = WARMUP
    num_beams: int = 4
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    max_new_tokens: int = 120
    min_new_tokens: int = 40
    style: Style = "json"
    language: str = "en"
    distance: str = "aligned_w2"

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise FadaError(f"prompt style {self.style!r}, expected one of {', '.join(STYLES)}.")
        if not 0 < self.min_new_tokens <= self.max_new_tokens:
            raise FadaError(
                f"story length from {self.min_new_tokens} to {self.max_new_tokens} tokens: "
                "expected 0 < minimum <= maximum."
            )

    @property
    def search(self) -> dict[str, Any]:
        """What generation is told of the search."""
        if self.sample:
            return {"num_beams": 1, "do_sample": True, "temperature": self.temperature, "top_k": self.top_k}
        return {"num_beams": self.num_beams}


class LipogramWriter:
    """Writes stories in the four modes with one model.

    Args:
        model, tokenizer: a causal language model of transformers; see :func:`fada.models.language.load_language_model`.
        manner: fields of :class:`Manner`.
    """

    def __init__(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", **manner: Any):
        from fada.decoding.vocabulary import token_table

        self.manner = Manner(**manner)
        if self.manner.style != "continue" and not getattr(tokenizer, "chat_template", None):
            raise FadaError(
                f"the tokenizer of {model.config.name_or_path or type(model).__name__} has no chat template, so it "
                "does not know instructions. Take an instruction-tuned model, or let it continue a sentence: style "
                "'continue'."
            )
        self.model, self.tokenizer = model, tokenizer
        self.table = token_table(tokenizer)
        self.end_tokens = self._find_end_tokens()

    def _find_end_tokens(self) -> list[int]:
        """The model's own end tokens, and in JSON those that close the string."""
        ends = self.model.generation_config.eos_token_id
        ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        if self.manner.style == "json":
            texts = ((i, piece.decode("utf-8", "replace")) for i, piece in enumerate(self.table.pieces))
            ends += [i for i, text in texts if _CLOSING_TOKEN.fullmatch(text)]
        return ends

    def prompt(self, topic: str, letters: str) -> str:
        """What the model reads: instruction and the opening of its answer."""
        if self.manner.style == "continue":
            return f"Here is a story about {topic.strip()}."
        named = " or ".join(f'"{letter}"' for letter in letters)
        template = _PROMPT if self.manner.style == "json" else _SHORT_PROMPT
        message = [{"role": "user", "content": template.format(topic=topic.strip(), letters=named)}]
        chat = str(self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))
        return chat + _OPENING if self.manner.style == "json" else chat

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
        manner, soft, hard = self.manner, "soft" in mode, "hard" in mode
        forbidden = frozenset(forbidden)
        self._check_known(forbidden)
        if hard:
            self._check_possible(forbidden)
        if target is None:
            whole = soft and hard  # behind a mask only the use of the other characters is left to guide
            zero = dict.fromkeys(forbidden, 0.0)
            target = lipogram_target(self.own_distribution(), forbidden) if whole else focused_target(zero)
        named = "".join(sorted(forbidden)) if letters is None else letters
        bare = manner.style == "continue"  # a chat template brings its own special tokens
        prompts = [self.tokenizer(self.prompt(t, named), add_special_tokens=bare)["input_ids"] for t in topics]
        width = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.end_tokens[0]
        inputs = {
            "input_ids": torch.tensor([[pad] * (width - len(p)) + p for p in prompts]),
            "attention_mask": torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]),
        }
        lam = manner.lam if soft else 1.0
        watch = Stopwatch()
        torch.manual_seed(seed)
        rules = self._rules(forbidden if hard else frozenset(), width, plausible=soft and manner.sample)
        started = time.perf_counter()
        found = guided_generate(
            self.model,
            inputs,
            target,
            lam,
            tokenizer=self.tokenizer,
            distance=manner.distance,
            scale=_SCALES.get(mode, 0.0) if manner.scale is None else manner.scale,
            warmup=manner.warmup,
            forbidden=forbidden if hard else (),
            logits_processor=rules,
            max_new_tokens=manner.max_new_tokens,
            min_new_tokens=manner.min_new_tokens,
            eos_token_id=self.end_tokens,
            pad_token_id=pad,
            stopwatch=watch,
            **manner.search,
        )
        seconds = time.perf_counter() - started
        stories = []
        for topic, (best, *_) in zip(topics, found, strict=True):
            text = parse_story(_OPENING + best.text) if manner.style == "json" else best.text.strip()
            distance, score = (best.distance, best.score) if soft else (None, None)
            stories.append(Story(topic, text, best.log_prob, len(best.labels), distance, score))
        return stories, Timing(seconds, watch.seconds)

    def _rules(self, forbidden: frozenset[str], prompt_length: int, plausible: bool) -> list[Any]:
        """What comes before the guidance: the look-ahead of the masked modes, and a choice of tokens to guide."""
        from fada.experiments.lipogram.words import KnownWords, Plausible

        rules: list[Any] = []
        if forbidden:
            known = (self.tokenizer, self.table, forbidden, self.end_tokens, prompt_length)
            rules.append(KnownWords(*known, self.manner.max_new_tokens, self.manner.language))
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

    def own_distribution(self) -> CharDistribution:
        """The characters of the model's plain stories about topics of our own; their prompt names a rare letter."""
        stories, _ = self.write(DEVELOPMENT_TOPICS, frozenset("z"), "plain", seed=0)
        return CharDistribution.from_texts(story.text for story in stories)
