"""Words that are known to be used: lists and hot words, as a language model that joins any other.

A list becomes a character model of text whose words are drawn from it: after a space, or at the beginning of a line, a
word is spelt letter by letter, the more frequent continuation the more probable; whatever leaves the list goes on with
every character equally probable until the next space. Mixed with a language model (or with none, which is every
character equally probable) it raises the words of the list and leaves the others almost as they are: :func:`with_words`
does so for a decoder. The search needs to know nothing of it.
"""

import hashlib
import json
import math
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fada.data.formats.text import text_lines
from fada.decoding.knowledge import Decoder, Knowledge
from fada.decoding.lm import CharNgram
from fada.decoding.lm_train import END, Component
from fada.decoding.weights import Weights
from fada.errors import FadaError

SHARE = 0.05
"""Of the list in the mixture with the language model; chosen by `recipes/words.py`, as is `WEIGHT`."""
WEIGHT = 0.5
"""Of the mixture in the score, where no language model has one already."""
_ESCAPE = 0.1
"""Probability, at every letter, of leaving the list."""
_LINE_ENDS = 0.1
"""Of the words, so many are the last of their line."""
_MOST_WORDS = 1_000_000


def read_words(path: str | os.PathLike[str], encoding: str | None = None) -> dict[str, float]:
    """Words, or phrases, from a text file: one a line, where wanted with a tab and how often it is used."""
    words: dict[str, float] = {}
    for number, line in enumerate(text_lines(Path(path), encoding, lambda size: None), 1):
        word, tab, count = line.partition("\t")
        word = " ".join(word.split())
        if not word:
            continue
        try:
            weight = float(count) if tab and count.strip() else 1.0
        except ValueError:
            weight = math.nan
        if not (math.isfinite(weight) and weight > 0):
            raise FadaError(f"{path}, line {number}: {count.strip()!r}, expected how often {word!r} is used, above 0.")
        words[word] = words.get(word, 0.0) + weight
        if len(words) > _MOST_WORDS:
            raise FadaError(f"{path}: more than {_MOST_WORDS:,} words; give those that matter.")
    if not words:
        raise FadaError(f"{path}: no words, expected one a line.")
    return words


def word_model(words: Mapping[str, float]) -> CharNgram:
    """The character model of text whose words are drawn from a list.

    Args:
        words: with how often they are used; phrases have single spaces in them.
    """
    if not words:
        raise FadaError("no words to make a model of: give at least one.")
    return CharNgram([_component(words)])


def _component(words: Mapping[str, float]) -> Component:
    vocabulary = tuple(sorted({" ", *"".join(words)}))
    identity = {character: number + 2 for number, character in enumerate(vocabulary)}
    space = identity[" "]
    children, ending = _trie({tuple(identity[c] for c in word): weight for word, weight in words.items()})
    # State 0 knows nothing; state 1 is the beginning of a word; a longer beginning comes after its shorter ones.
    suffix = [-1, 0]
    for state in range(1, len(children)):
        for character, child in children[state].items():
            shorter = suffix[state]
            while shorter > 0 and character not in children[shorter]:
                shorter = suffix[shorter]
            found = children[shorter].get(character) if shorter > 0 else 1 if character == space else 0
            suffix.append(found or 0)
            assert len(suffix) == child + 1
    mass = list(ending)
    for state in range(len(children) - 1, 0, -1):
        mass[state] += sum(mass[child] for child in children[state].values())
    identities = len(vocabulary) + 2
    arcs: list[dict[int, tuple[float, int]]] = [
        {c: (1 / identities, 1 if c == space else 0) for c in range(identities)}
    ]
    backoff = [1.0]
    for state in range(1, len(children)):
        kept = (1 - _ESCAPE) / mass[state]
        found_here = {c: (kept * mass[child], child) for c, child in children[state].items()}
        if ending[state]:
            ended, after = kept * ending[state], found_here.get(space, (0.0, 1))
            found_here[space] = (after[0] + (1 - _LINE_ENDS) * ended, after[1])
            found_here[END] = (_LINE_ENDS * ended, 0)
        arcs.append(found_here)
        taken = sum(_probability(arcs, backoff, suffix, suffix[state], c) for c in found_here)
        left = 1 - sum(p for p, _ in found_here.values())
        backoff.append(left / (1 - taken) if taken < 1 else 1.0)
    rows = [sorted(row.items()) for row in arcs]
    return Component(
        vocabulary,
        first=np.cumsum([0] + [len(row) for row in rows]),
        character=np.array([c for row in rows for c, _ in row], np.int32),
        log_prob=np.log([p for row in rows for _, (p, _) in row]),
        target=np.array([target for row in rows for _, (_, target) in row], np.int32),
        backoff=np.log(backoff),
        suffix=np.array(suffix, np.int32),
        start=1,
    )


def _trie(words: Mapping[tuple[int, ...], float]) -> tuple[list[dict[int, int]], list[float]]:
    """The children of every state, level by level, and the weight of the words that end in it; state 1 is the root."""
    by_state: dict[int, list[tuple[tuple[int, ...], float]]] = {1: sorted(words.items())}
    children: list[dict[int, int]] = [{}, {}]
    ending = [0.0, 0.0]
    depth = 0
    while by_state:
        further: dict[int, list[tuple[tuple[int, ...], float]]] = {}
        for state, found in by_state.items():
            for word, weight in found:
                if len(word) == depth:
                    ending[state] += weight
                    continue
                if word[depth] not in children[state]:
                    children[state][word[depth]] = len(children)
                    children.append({})
                    ending.append(0.0)
                further.setdefault(children[state][word[depth]], []).append((word, weight))
        by_state, depth = further, depth + 1
    return children, ending


def _probability(
    arcs: list[dict[int, tuple[float, int]]], backoff: list[float], suffix: list[int], state: int, character: int
) -> float:
    """What a state says of a character, by itself or through its shorter ones."""
    factor = 1.0
    while character not in arcs[state]:
        factor *= backoff[state]
        state = suffix[state]
    return factor * arcs[state][character][0]


def as_written(words: Mapping[str, float], characters: Iterable[str]) -> tuple[dict[str, float], list[str]]:
    """Words in the form (composed or not) in which a recogniser writes them, and those that it cannot write."""
    known = {*"".join(characters), " "}
    possible: dict[str, float] = {}
    impossible = []
    for word, weight in words.items():
        forms = (word, *(unicodedata.normalize(form, word) for form in ("NFC", "NFD")))
        form = next((one for one in forms if known.issuperset(one)), None)
        if form is None:
            impossible.append(word)
        else:
            possible[form] = possible.get(form, 0.0) + weight
    return possible, impossible


def with_words(decoder: Decoder, words: Mapping[str, float], characters: str, share: float = SHARE) -> Decoder:
    """A decoder that also knows words.

    Its language models become mixtures; one without gets a model in which every character is equally probable, at a
    length bonus that makes up for it: then a text of other words keeps its score, and words of the list gain.

    Args:
        words: as the recogniser writes them, see :func:`as_written`.
        characters: all that the recogniser can write.
        share: of the words in the mixtures, above 0 and below 1.
    """
    if not 0 < share < 1:
        raise FadaError(f"the share of the words is {share!r}, expected a number above 0 and below 1.")
    model, weights, knowledge = word_model(words), decoder.weights, decoder.knowledge
    if weights.lm == "none":
        even = CharNgram.uniform({*characters, *model.vocabulary})
        bonus = WEIGHT * math.log(len(even.vocabulary) + 2)
        weights = weights.change(lm="global", lm_weight=WEIGHT, length_bonus=weights.length_bonus + bonus)
        return Decoder(weights, replace(knowledge, global_lm=even.interpolate(model, share), domain_lms={}))
    mixed = {domain: own.interpolate(model, share) for domain, own in knowledge.domain_lms.items()}
    everything = None if knowledge.global_lm is None else knowledge.global_lm.interpolate(model, share)
    return Decoder(weights, replace(knowledge, global_lm=everything, domain_lms=mixed))


@dataclass(frozen=True)
class Words:
    """Lists of words that join any decoder of a recogniser, see :func:`with_words`.

    Attributes:
        lists: as the recogniser writes them; each is mixed in by itself, so that a long list does not drown a few words
            that were named.
        characters: all that the recogniser can write.
        share: of each list.
        impossible: words with characters that the recogniser lacks, which are left out.
    """

    lists: tuple[dict[str, float], ...]
    characters: str
    share: float = SHARE
    impossible: tuple[str, ...] = ()
    _joined: dict[int, tuple[Knowledge, Decoder]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        files: Sequence[str | os.PathLike[str]],
        hot: Sequence[str],
        characters: str,
        share: float = SHARE,
        encoding: str | None = None,
    ) -> "Words":
        """The words of files (:func:`read_words`), all of them one list, and hot words, the other.

        Args:
            encoding: of the files, if it is not UTF-8.
        """
        listed: dict[str, float] = {}
        for file in files:
            for word, weight in read_words(file, encoding).items():
                listed[word] = listed.get(word, 0.0) + weight
        named = {" ".join(word.split()): 1.0 for word in hot if word.strip()}
        found = [as_written(words, characters) for words in (listed, named)]
        impossible = tuple(word for _, words in found for word in words)
        if not any(words for words, _ in found):
            raise FadaError(
                f"none of the {len(impossible)} words ({', '.join(impossible[:3])}) can be written by this model: its "
                "characters are others. Choose a model of their script, or spell them as it writes."
            )
        return cls(tuple(words for words, _ in found if words), characters, share, impossible)

    def joined(self, weights: Weights, knowledge: Knowledge) -> Decoder:
        """A decoder that also knows the words; language models are mixed once for each knowledge."""
        kept = self._joined.get(id(knowledge))
        bare = weights.lm == "none"
        if kept is None or kept[0] is not knowledge or bare != (kept[1].weights.length_bonus > 0):
            decoder = Decoder(Weights() if bare else Weights(lm=weights.lm, lm_weight=1.0), knowledge)
            for words in self.lists:
                decoder = with_words(decoder, words, self.characters, self.share)
            kept = self._joined[id(knowledge)] = (knowledge, decoder)
        mixed = kept[1]
        if bare:
            bonus = weights.length_bonus + mixed.weights.length_bonus
            weights = weights.change(lm="global", lm_weight=mixed.weights.lm_weight, length_bonus=bonus)
        return Decoder(weights, mixed.knowledge)

    def fingerprint(self) -> str:
        """Changes when the words or their share do."""
        return hashlib.sha256(json.dumps([self.lists, self.share], sort_keys=True).encode()).hexdigest()[:16]
