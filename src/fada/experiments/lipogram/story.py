"""A story about a topic, what it must avoid, and the figures that judge it."""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fada.decoding.guidance import Constraint
from fada.errors import FadaError
from fada.experiments.lipogram.readability import distinct, flesch_reading_ease, unknown_words, words_of
from fada.text.normalizer import TextNormalizer

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


def read_topics(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Topics from a text file, one on each line; empty lines and lines that start with # are skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise FadaError(f"{path}: no such file, expected one topic on each line.") from None
    except UnicodeDecodeError as error:
        raise FadaError(f"{path}: not UTF-8 text ({error}). Save it as UTF-8, one topic on each line.") from None
    topics = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not topics:
        raise FadaError(f"{path}: no topic in it, expected one on each line, such as 'a dog at the park'.")
    return topics


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


def violating_words(text: str, forbidden: Iterable[str]) -> list[str]:
    """The words of a text that contain a forbidden character."""
    constraint = Constraint(TextNormalizer(), frozenset(forbidden))
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
