import json
from typing import Any

import jiwer
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fada.errors import FadaError
from fada.evaluation import confusions as fc
from fada.evaluation import scores as ev
from fada.evaluation.edits import NORMALIZATIONS, score_lines
from fada.text.characters import unicode_name

NASTY = [
    "",
    " ",
    "a",
    "naïve cafe\u0301",
    "ΣΑΣ σας",
    "\u200bzero\u200dwidth",
    "שלום עולם",
    "\ue000\ue8bf medieval",
    "👩‍👩‍👧 family",
    "\t tab\tinside ",
    "line\nbreak",
    "ſuch vv jj",
    "\ud800 lone",
    "x" * 300,
    "a  b   c",
]
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=25), st.text("ab c", max_size=12))
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=8)


def _words(text: str) -> Any:
    """Only single spaces between words, where jiwer and `str.split` agree on what a word is."""
    return " ".join(text.split())


@settings(deadline=None, max_examples=200)
@given(pairs)
def test_metrics_and_counts_equal_jiwers(lines: Any) -> None:
    references, hypotheses = map(list, zip(*lines, strict=True))
    result = ev.evaluate(references, hypotheses, bootstrap=0)
    characters = jiwer.process_characters(references, hypotheses)
    assert result.cer == pytest.approx(100 * characters.cer)
    assert (result.substitutions, result.insertions, result.deletions) == (
        characters.substitutions,
        characters.insertions,
        characters.deletions,
    )
    assert result.wer == pytest.approx(100 * jiwer.wer([*map(_words, references)], [*map(_words, hypotheses)]))


@settings(deadline=None, max_examples=50)
@given(pairs)
def test_macro_average_is_the_mean_of_single_line_evaluations(lines: Any) -> None:
    references, hypotheses = map(list, zip(*lines, strict=True))
    macro = ev.evaluate(references, hypotheses, average="macro", bootstrap=0)
    single = [ev.evaluate([r], [h], bootstrap=0) for r, h in lines]
    for metric in ev.METRICS:
        assert getattr(macro, metric) == pytest.approx(np.mean([getattr(e, metric) for e in single]))


@settings(deadline=None, max_examples=50)
@given(pairs)
def test_every_result_survives_json_and_ned_never_exceeds_100(lines: Any) -> None:
    references, hypotheses = map(list, zip(*lines, strict=True))
    domains = [str(i % 2) for i in range(len(lines))]
    result = ev.evaluate(references, hypotheses, domains, groups={"n": domains}, units="graphemes", bootstrap=20)
    assert TypeAdapter(ev.Evaluation).validate_json(json.dumps(result.to_dict())) == result
    assert 0 <= result.ned <= 100
    comparison = ev.compare(references, hypotheses, references, domains, resamples=20)
    assert TypeAdapter(ev.Comparison).validate_json(json.dumps(comparison.to_dict())) == comparison


def test_domains_add_up_to_the_whole() -> None:
    references, hypotheses = ["abcd", "efgh", "ijkl"], ["abcx", "efgh", "ijk"]
    result = ev.evaluate(references, hypotheses, ["10", "9", None])
    assert list(result.per_domain) == ["9", "10", "(none)"]
    assert [result.per_domain[d].cer for d in result.per_domain] == [0.0, 25.0, 25.0]
    assert sum(s.characters for s in result.per_domain.values()) == result.characters == 12
    assert result.rows()[-1]["domain"] == "all"


def test_empty_texts_have_the_documented_result() -> None:
    def cer(reference: str, hypothesis: str, **options: Any) -> Any:
        return ev.evaluate([reference], [hypothesis], **options).cer

    assert cer("", "") == cer("  ", "\n") == 0
    assert cer("", "abc") == 300
    assert cer("abc", "") == 100
    assert ev.evaluate([""], ["abc"]).ned == 100
    assert ev.evaluate(["", "abcde"], ["x", "abcde"]).cer == 20
    assert ev.evaluate(["", "abcde"], ["x", "abcde"], average="macro").cer == 50
    empty = ev.evaluate([], [])
    assert (empty.lines, empty.cer, empty.intervals, empty.distance) == (0, 0, {}, {})


@pytest.mark.parametrize(
    ("normalization", "reference", "hypothesis"),
    [
        ("nfc", "cafe\u0301", "café"),
        ("case", "IΟΥΔΑΣ", "iουδασ"),
        ("diacritics", "ᾄδω", "αδω"),
        ("punctuation", "arma, virumque · cano.", "arma virumque cano"),
        ("uv", "Vnus uir", "Unus vir"),
        ("ij", "iustitia Julii", "justitia Iulii"),
        ("ij", "j\u0308", "ï"),
        ("diacritics,ij", "ǰ", "i"),
        ("spaces", "a   b", "a b"),
        ("case,uv,ij", "VIVO iam", "uiuo JAM"),
    ],
)
def test_a_stated_normalisation_forgives_what_it_names_and_nothing_else(
    normalization: str, reference: str, hypothesis: str
) -> None:
    assert ev.evaluate([reference], [hypothesis]).cer > 0
    forgiven = ev.evaluate([reference], [hypothesis], normalization=normalization)
    assert forgiven.cer == 0
    assert forgiven.normalization == tuple(n for n in NORMALIZATIONS if n in normalization.split(","))
    assert ev.evaluate(["axb"], ["ayb"], normalization=normalization).cer > 0


def test_grapheme_clusters_count_a_letter_with_its_marks_once() -> None:
    reference, hypothesis = "a\u0304\u0301bc", "abc"
    assert ev.evaluate([reference], [hypothesis]).deletions == 2
    clusters = ev.evaluate([reference], [hypothesis], units="graphemes")
    assert (clusters.substitutions, clusters.deletions, clusters.characters) == (1, 0, 3)


@given(st.text("ab\u0301\u0304👩\u200d한ᄒ", max_size=12), st.text("ab\u0301👩\u200d한ᅡ", max_size=12))
def test_grapheme_distance_equals_a_textbook_alignment_of_clusters(reference: str, hypothesis: str) -> None:
    import regex

    r, h = regex.findall(r"\X", reference.strip()), regex.findall(r"\X", hypothesis.strip())
    row = list(range(len(h) + 1))
    for i, a in enumerate(r, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(h, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    assert score_lines([reference], [hypothesis], units="graphemes").edits[0] == row[-1]


def test_distribution_distance_per_domain_equals_targets_and_distances() -> None:
    from fada import distances
    from fada.targets.target_set import TargetSet

    references, hypotheses = ["abba", "Cede"], ["abab", "cedd"]
    result = ev.evaluate(references, hypotheses, ["1", "2"])
    both = TargetSet.from_texts({"reference": references, "predicted": hypotheses})
    for name, value in result.distance.items():
        expected = distances.get(name)(both["predicted"].frequencies, both["reference"].frequencies)
        assert value == pytest.approx(float(expected))
    assert result.per_domain["1"].distance["aligned_w2"] == 0
    assert result.per_domain["2"].distance["aligned_w2"] > 0


def test_groups_are_listed_worst_first() -> None:
    references = ["abcd"] * 3
    result = ev.evaluate(references, ["abcd", "xbcd", "xyzd"], groups={"page": ["p1", "p2", "p10"]})
    assert [row["page"] for row in result.group_rows("page")] == ["p10", "p2", "p1"]
    assert list(result.per_group["page"]) == ["p1", "p2", "p10"]


def test_length_buckets_cover_every_length() -> None:
    assert ev.length_buckets(["", "a" * 10, "a" * 11, "a" * 81]) == ["0-10", "0-10", "11-20", "over 80"]


def test_clusters_widen_the_interval_when_pages_differ() -> None:
    references = ["abcdefghij"] * 40
    hypotheses = ["abcdefghij"] * 20 + ["xxxxxfghij"] * 20
    by_line = ev.evaluate(references, hypotheses).intervals["cer"]
    by_page = ev.evaluate(references, hypotheses, clusters=[i // 10 for i in range(40)])
    assert by_page.clusters == 4
    assert by_page.intervals["cer"][1] - by_page.intervals["cer"][0] > by_line[1] - by_line[0]


def test_comparison_finds_the_better_system_and_corrects_over_domains() -> None:
    rng = np.random.default_rng(0)
    references = ["".join(rng.choice(list("abcdef "), 40)) for _ in range(120)]
    bad = ["x" + r[1:] for r in references]
    good = [r if i % 2 else b for i, (r, b) in enumerate(zip(references, bad, strict=True))]
    domains = ["1", "2", "3"] * 40
    result = ev.compare(references, bad, good, domains, resamples=2000, names=("plain", "guided"))
    change = result.overall["cer"]
    assert change.difference < 0
    assert change.significant
    assert change.relative == pytest.approx(100 * (change.b - change.a) / change.a)
    assert change.b == pytest.approx(ev.evaluate(references, good, bootstrap=0).cer)
    for metric in ev.METRICS:
        raw = [items[metric].p for items in result.per_domain.values()]
        assert [items[metric].p_holm for items in result.per_domain.values()] == pytest.approx(ev.statistics.holm(raw))
    before, after = change.distance["aligned_w2"]
    assert after < before
    assert [row["domain"] for row in result.rows()] == ["1", "2", "3", "all"]


def test_mean_over_seeds_needs_the_same_domains() -> None:
    runs = [ev.evaluate(["abcd", "abcd"], [h, "abcd"], ["1", "2"]) for h in ("abcd", "abcx", "abxx")]
    result = ev.over_seeds(runs)
    assert result["all"]["cer"].mean == pytest.approx(12.5)
    assert result["1"]["cer"].sem == pytest.approx(np.std([0, 25, 50], ddof=1) / np.sqrt(3))
    assert set(result) == {"all", "1", "2"}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["a"], ["a", "b"]), {}, "1 references and 2 hypotheses"),
        ((["a", None], ["a", "b"]), {}, "reference 2 of 2 is None"),
        ((["a"], ["a"], ["1", "2"]), {}, "domains: 2 labels for 1 lines"),
        ((["a"], ["a"]), {"normalization": "casing"}, "unknown normalisation 'casing'"),
        ((["a"], ["a"]), {"units": "bytes"}, "units is 'bytes'"),
        ((["a"], ["a"]), {"average": "mean"}, "average is 'mean'"),
    ],
)
def test_mistakes_are_named(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(FadaError, match=message):
        ev.evaluate(*arguments, **options)


def test_confusions_carry_unicode_names_most_frequent_first() -> None:
    found = fc.confusions(["cat", "car", "ab"], ["bat", "bar", "abc"])
    assert [(c.reference, c.predicted, c.count, c.kind) for c in found] == [
        ("c", "b", 2, "substitution"),
        ("", "c", 1, "insertion"),
    ]
    assert found[0].row()["reference name"] == "LATIN SMALL LETTER C"
    assert unicode_name("\ue8bf") == "U+E8BF (private use)"
    assert unicode_name("e\u0301") == "LATIN SMALL LETTER E + COMBINING ACUTE ACCENT"
    assert unicode_name("") == "(nothing)"


@settings(deadline=None, max_examples=50)
@given(pairs)
def test_confusions_add_up_to_the_edits(lines: Any) -> None:
    references, hypotheses = map(list, zip(*lines, strict=True))
    for units in ("codepoints", "graphemes"):
        total = sum(c.count for c in fc.confusions(references, hypotheses, units=units))
        assert total == score_lines(references, hypotheses, units=units).edits.sum()


def test_characters_are_ordered_from_most_helped_to_most_hurt() -> None:
    references = ["aab", "bcc"]
    before, after = ["xxb", "bcc"], ["aab", "bzz"]
    changes = fc.character_changes(references, before, after)
    assert (changes[0].character, changes[0].helped, changes[0].occurrences) == ("a", 2, 2)
    assert {c.character for c in changes[-2:]} == {"c", "z"}
    assert changes[-1].helped == -2


def test_worst_lines_come_first_and_right_ones_not_at_all() -> None:
    worst = fc.worst_lines(["abcd", "abcd", "ab"], ["abcd", "xxcd", "xy"], ["l1", "l2", "l3"], ["9", "9", "10"])
    assert [(line.id, line.cer, line.domain) for line in worst] == [("l3", 100.0, "10"), ("l2", 50.0, "9")]
