"""Back-off models in little room: stored as a trie of n-grams, and pruned to those that tell most.

Of the arrays of a :class:`~fada.decoding.lm_train.Component` only the arcs of every state are stored, which of them
lead to a longer context, and the numbers; the other targets and the shorter contexts follow from these.
"""

from typing import Any, NamedTuple

import numpy as np

from fada.decoding.lm_train import END, Component
from fada.errors import FadaError

_SPAN = 32.0
"""Values that are stored in eight bits lie in a range of at most this, but for the lowest of all."""
_LITTLE = 1e-12
_LONGEST = 100
"""No context is longer."""


class Trie(NamedTuple):
    """The n-grams of a back-off model. States are in order of length, those of one length in the order of their arcs.

    The state 0 is the empty context; that of the beginning of a line is the only other without an arc that leads to it.
    """

    arcs: np.ndarray
    """(states,) how many arcs each state has; the first has one for every character."""
    character: np.ndarray
    """(arcs,) ascending within a state."""
    longer: np.ndarray
    """(arcs,) bool whether the context with this character is a state itself."""
    start: int

    @property
    def source(self) -> np.ndarray:
        """(arcs,) the state each arc leaves."""
        return np.repeat(np.arange(len(self.arcs)), self.arcs)

    @property
    def told(self) -> np.ndarray:
        """(states with an arc that leads to them,) their numbers, in the order of these arcs."""
        every = np.arange(1, len(self.arcs))
        return every[every != self.start]

    def check(self, identities: int) -> None:
        """Refuse what is no trie of n-grams over so many characters (ValueError)."""
        source, states = self.source, len(self.arcs)
        ascending = np.diff(self.character.astype(np.int64)) > 0
        sound = (
            states > 0
            and len(self.character) == len(self.longer) == len(source)
            and np.array_equal(self.character[: int(self.arcs[0])], np.arange(identities))
            and bool((self.character < identities).all())
            and bool((ascending | (np.diff(source) > 0)).all())
            and 0 <= self.start < states
            and len(self.told) == np.count_nonzero(self.longer)
            and bool((source[self.longer] < self.told).all())
        )
        if not sound:
            raise ValueError("its n-grams do not fit together")


def trie_of(component: Component) -> tuple[Trie, np.ndarray]:
    """The n-grams of a component, and the numbers of the states that are kept.

    A state without arcs at whose end nothing is lost by backing off says nothing: it is left out.
    """
    states = len(component.suffix)
    kept = (np.diff(component.first) > 0) | (component.backoff != 0.0)
    kept[[0, component.start]] = True
    source = np.repeat(np.arange(states), np.diff(component.first))
    # The first arc that reaches a state is that of the state one character shorter at its end.
    reached, arc = np.unique(component.target, return_index=True)
    leads = kept[reached] & (reached != 0) & (reached != component.start) & (source[arc] < reached)
    if np.count_nonzero(leads) != np.count_nonzero(kept) - 1 - (component.start > 0) or (np.diff(arc[leads]) < 0).any():
        raise FadaError("this language model has contexts that none of its n-grams begins with; it cannot be stored.")
    longer = np.zeros(len(source), bool)
    longer[arc[leads]] = True
    start = int(np.count_nonzero(kept[: component.start]))
    return Trie(np.diff(component.first)[kept], component.character, longer, start), np.flatnonzero(kept)


def component_of(
    vocabulary: tuple[str, ...], trie: Trie, log_prob: np.ndarray, backoff: np.ndarray, unknown_types: int = 1
) -> Component:
    """The automaton of n-grams: finds the state every arc leads to and the longest shorter context of every state."""
    identities = len(vocabulary) + 2
    trie.check(identities)
    states, source, told = len(trie.arcs), trie.source, trie.told
    character = trie.character.astype(np.int64)
    keys = (source * identities + character)[trie.longer]
    parent, letter = np.zeros(states, np.int64), np.zeros(states, np.int64)
    parent[told], letter[told] = source[trie.longer], character[trie.longer]
    suffix = np.zeros(states, np.int64)

    def reached(state: np.ndarray, by: np.ndarray) -> np.ndarray:
        """The longest state that the contexts `state`, each with a character more, end in."""
        state, found = state.copy(), np.zeros(len(state), np.int64)
        open_ = np.arange(len(state))
        while len(open_):
            wanted = state[open_] * identities + by[open_]
            at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
            hit = keys[at] == wanted if len(keys) else np.zeros(len(open_), bool)
            found[open_[hit]] = told[at[hit]]
            open_ = open_[~hit & (state[open_] > 0)]
            state[open_] = suffix[state[open_]]
        return found

    length = _lengths(trie, parent)
    for depth in range(2, int(length.max()) + 1):
        level = np.flatnonzero(length == depth)
        suffix[level] = reached(suffix[parent[level]], letter[level])
    target = np.zeros(len(source), np.int64)
    target[trie.longer] = told
    others = np.flatnonzero(~trie.longer & (source > 0))
    target[others] = reached(suffix[source[others]], character[others])
    suffix[0] = -1
    return Component(
        vocabulary,
        first=np.concatenate([[0], np.cumsum(trie.arcs)]).astype(np.int64),
        character=character.astype(np.int32),
        log_prob=log_prob.astype(np.float64),
        target=target.astype(np.int32),
        backoff=backoff.astype(np.float64),
        suffix=suffix.astype(np.int32),
        start=trie.start,
        unknown_types=unknown_types,
    )


def _lengths(trie: Trie, parent: np.ndarray) -> np.ndarray:
    """(states,) the length of each context; that of the beginning of a line has one."""
    length = np.where(parent == 0, 1, -1)
    length[0] = 0
    known = 1
    while (length < 0).any():
        length[(length < 0) & (length[parent] == known)] = known + 1
        known += 1
        if known > _LONGEST:
            raise ValueError(f"it has contexts of more than {_LONGEST} characters")
    return length


def packed(component: Component, bits: int | None) -> dict[str, np.ndarray]:
    """The arrays to be stored; with 8 bits, numbers are rounded to 256 values each, else kept to the last digit."""
    trie, kept = trie_of(component)
    numbers = {"log_prob": component.log_prob, "backoff": component.backoff[kept]}
    if bits == 8:
        rounded = {name: _rounded(values) for name, values in numbers.items()}
        numbers = {name: codes for name, (codes, _) in rounded.items()}
        numbers |= {f"{name}_values": values for name, (_, values) in rounded.items()}
    return {
        "arcs": trie.arcs.astype(np.min_scalar_type(int(trie.arcs.max()))),
        "character": trie.character.astype(np.min_scalar_type(int(trie.character.max()))),
        "longer": np.packbits(trie.longer),
        "start": np.array([trie.start], np.uint32),
        **numbers,
    }


def unpacked(arrays: dict[str, Any], vocabulary: tuple[str, ...], unknown_types: int) -> Component:
    """The component of stored arrays; ValueError if they do not fit together."""
    whole = [arrays[name] for name in ("arcs", "character", "longer", "start")]
    if any(values.ndim != 1 or values.dtype.kind != "u" for values in whole) or len(arrays["start"]) != 1:
        raise ValueError("its arrays are of another kind")
    many = len(arrays["character"])
    if int(arrays["arcs"].sum(dtype=np.uint64)) != many or len(arrays["longer"]) != (many + 7) // 8:
        raise ValueError("its n-grams do not fit together")
    longer = np.unpackbits(arrays["longer"].astype(np.uint8), count=many).astype(bool)
    trie = Trie(arrays["arcs"].astype(np.int64), arrays["character"].astype(np.int64), longer, int(arrays["start"][0]))
    numbers = []
    for name, length in (("log_prob", many), ("backoff", len(trie.arcs))):
        values = arrays[name]
        if f"{name}_values" in arrays:
            table = arrays[f"{name}_values"]
            if values.dtype != np.uint8 or table.shape != (256,):
                raise ValueError("its numbers are of another kind")
            values = table[values]
        if values.shape != (length,) or values.dtype.kind != "f" or np.isnan(values).any() or (values == np.inf).any():
            raise ValueError("its numbers do not fit together")
        numbers.append(values)
    if unknown_types < 1:
        raise ValueError("its numbers do not fit together")
    return component_of(vocabulary, trie, numbers[0], numbers[1], unknown_types)


def _rounded(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of 8 bits and the 256 values they stand for: the lowest, and 255 in equal steps."""
    low, high = values.min(), values.max()
    steps = np.linspace(max(low, high - _SPAN), high, 255)
    codes = np.rint((values - steps[0]) / max(float(steps[1] - steps[0]), 1e-300)).clip(0, 254) + 1
    codes[values < steps[0] - _SPAN / 4] = 0
    return codes.astype(np.uint8), np.concatenate([[low], steps]).astype(np.float32)


def pruned(component: Component, most: int) -> Component:
    """The model with at most `most` n-grams (never fewer than characters): those whose loss would change it most.

    How much it changes is the relative entropy of Stolcke (1998), "Entropy-based pruning of backoff language models".
    """
    trie, kept = trie_of(component)
    identities = len(component.vocabulary) + 2
    whole = component_of(
        component.vocabulary, trie, component.log_prob, component.backoff[kept], component.unknown_types
    )
    source, told, states = trie.source, trie.told, len(trie.arcs)
    parent, arc_to = np.zeros(states, np.int64), np.zeros(states, np.int64)
    arc_to[told] = np.flatnonzero(trie.longer)
    parent[told] = source[trie.longer]
    length = _lengths(trie, parent)
    probability = np.exp(whole.log_prob)
    # How probable it is to be in a state: that of its characters one after the other; lines begin as often as they end.
    occupied = np.ones(states)
    for depth in range(1, int(length.max()) + 1):
        level = np.flatnonzero(length == depth)
        occupied[level] = occupied[parent[level]] * probability[arc_to[level]]
        if trie.start:
            occupied[trie.start] = probability[END]
    lower = _backed_off(whole, source, np.arange(len(source)))
    left, left_below = _left(source, probability, lower, states)
    raised = np.log((left[source] + probability) / np.maximum(left_below[source] + np.exp(lower), _LITTLE))
    change = np.maximum(left, 0.0)[source] * (raised - whole.backoff[source])
    loss = np.full(len(source), np.inf)
    longest = np.full(states, -np.inf)
    for depth in range(int(length.max()), 0, -1):
        arcs = np.flatnonzero(length[source] == depth)
        value = probability[arcs] * (lower[arcs] + raised[arcs] - whole.log_prob[arcs]) + change[arcs]
        loss[arcs] = -occupied[source[arcs]] * value
        # An n-gram stays as long as a longer one that begins with it.
        loss[arcs] = np.maximum(loss[arcs], np.where(trie.longer[arcs], longest[whole.target[arcs]], -np.inf))
        np.maximum.at(longest, source[arcs], loss[arcs])
    stays = np.zeros(len(source), bool)
    # Of n-grams that are worth the same, the first are the shorter ones.
    stays[np.argsort(-loss, kind="stable")[: max(most, identities)]] = True
    return without(whole, stays)


def _left(source: np.ndarray, probability: np.ndarray, lower: np.ndarray, states: int) -> tuple[np.ndarray, np.ndarray]:
    """What the arcs of each state leave for others: of its own probability, and of the shorter context's."""
    return 1 - np.bincount(source, probability, states), 1 - np.bincount(source, np.exp(lower), states)


def _backed_off(component: Component, source: np.ndarray, arcs: np.ndarray) -> np.ndarray:
    """(arcs,) log-probability of the character of each of these arcs in the next shorter context; -inf at the root."""
    identities = len(component.vocabulary) + 2
    keys = np.repeat(np.arange(len(component.suffix)), np.diff(component.first)) * identities + component.character
    state, value = component.suffix[source[arcs]].astype(np.int64), np.zeros(len(arcs))
    value[state < 0] = -np.inf
    open_ = np.flatnonzero(state >= 0)
    while len(open_):
        wanted = state[open_] * identities + component.character[arcs[open_]]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        hit = keys[at] == wanted
        value[open_[hit]] += component.log_prob[at[hit]]
        open_ = open_[~hit]
        value[open_] += component.backoff[state[open_]]
        state[open_] = component.suffix[state[open_]]
    return value


def without(component: Component, stays: np.ndarray) -> Component:
    """The model without the n-grams that do not stay, (arcs,) bool; what they leave goes to the shorter contexts.

    A state must not stay without the arc that leads to it.
    """
    trie, _ = trie_of(component)
    states = len(trie.arcs)
    arcs = np.bincount(trie.source[stays], minlength=states)
    here = arcs > 0
    here[trie.start] = True
    longer = trie.longer.copy()
    longer[trie.longer] = here[trie.told]
    start = int(np.count_nonzero(here[: trie.start]))
    less = Trie(arcs[here], trie.character[stays], longer[stays], start)
    nothing = np.zeros(len(less.arcs))
    model = component_of(component.vocabulary, less, component.log_prob[stays], nothing, component.unknown_types)
    source = less.source
    parent = np.zeros(len(less.arcs), np.int64)
    parent[less.told] = source[less.longer]
    length = _lengths(less, parent)
    for depth in range(1, int(length.max()) + 1):
        level, chosen = np.flatnonzero(length == depth), np.flatnonzero(length[source] == depth)
        lower = _backed_off(model, source, chosen)
        left, left_below = _left(source[chosen], np.exp(model.log_prob[chosen]), lower, len(less.arcs))
        model.backoff[level] = np.log(np.maximum(left[level], _LITTLE) / np.maximum(left_below[level], _LITTLE))
    return model
