import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.data.formats.parquet import write_parquet
from fada.data.line import Line, LineSet
from fada.decoding.emissions import Emissions
from fada.decoding.guidance import Guidance
from fada.decoding.hypothesis import Hypothesis
from fada.decoding.knowledge import Knowledge, load_knowledge
from fada.decoding.lm import prior_weights
from fada.decoding.nbest import NBest, Rescorer
from fada.decoding.search import EVERY_TERM, BeamSearch, Search
from fada.decoding.weights import Weights
from fada.errors import FadaError
from fada.evaluation.scores import evaluate
from fada.targets.target_set import TargetSet
from fada.tuning import choose as tuning
from fada.tuning.choose import Rule, Tuning, tune
from fada.tuning.curve import draw_curve
from fada.tuning.decode import open_search
from fada.tuning.drafts import Counts
from fada.tuning.grid import Grid, guidance_grid
from fada.tuning.overlap import refuse_overlap
from fada.tuning.trials import Trials
from fada.tuning.tuned import Tuned
from tests.support.commands import run_fada
from tests.support.emission_sets import make_emissions, training_texts
from tests.support.types import some

SMALL = Grid(
    lam=(0.1, 0.3, 0.5), scale=(1.0, 100.0), prior_weight=(0.5, 1.0), lm_weight=(0.5,), length_bonus=(0.0, 1.0)
)


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.from_texts(training_texts(), order=4)


@pytest.fixture(scope="module")
def validation() -> Emissions:
    return make_emissions(1, 25, prefix="v")


@pytest.fixture(scope="module")
def tuned(validation: Emissions, knowledge: Knowledge) -> Tuned:
    return tune(BeamSearch(validation, knowledge), Tuning(SMALL, lms=(), prior=False))


def test_weights_without_effect_are_equal() -> None:
    assert Weights().change(lam=1.0, scale=7, distance="aligned_w2") == Weights()
    assert Weights().change(lm="global", lm_weight=0) == Weights()
    assert len({Weights(), Weights().change(beam=5)}) == 1


def test_default_weights_are_plain_beam_search(validation: Emissions, knowledge: Knowledge) -> None:
    from fada.decoding.ctc import CTCBeamDecoder

    decoder = CTCBeamDecoder(validation.symbols, beam_size=5)
    expected = [found[0].text for found in decoder.decode_batch(validation.log_probs)]
    assert BeamSearch(validation, knowledge).choose(Weights()) == expected
    assert BeamSearch(validation, Knowledge()).choose(Weights()) == expected


def test_every_line_is_decoded_with_the_target_and_language_model_of_its_domain(
    validation: Emissions, knowledge: Knowledge
) -> None:
    weights = Weights(lam=0.5, scale=50, distance="aligned_w2", lm="domain", lm_weight=0.4, prior_weight=0.3)
    found = BeamSearch(validation, knowledge).hypotheses(weights)
    tuned = Tuned(**weights.model_dump())
    for i in (0, len(found) - 1):
        domain = some(validation.domains)[i]
        decoder = tuned.decoder(
            validation.symbols,
            target=some(knowledge.targets)[domain],
            prior=knowledge.prior,
            lm=knowledge.domain_lms[domain],
        )
        best = decoder.decode(validation.log_probs[i])[0]
        assert (best.text, best.score) == (found[i].text, pytest.approx(found[i].score))


def test_the_domain_model_is_half_domain_half_global(knowledge: Knowledge) -> None:
    from fada.decoding.lm import CharNgram

    own = CharNgram.train(training_texts()["12"], 4)
    a, b, mixed = (m.distribution("ab")["b"] for m in (own, some(knowledge.global_lm), knowledge.domain_lms["12"]))
    first, second, first_mixed = (
        m.distribution("")["a"] for m in (own, some(knowledge.global_lm), knowledge.domain_lms["12"])
    )
    assert mixed == pytest.approx((a + b) / 2)
    assert first_mixed == pytest.approx((first + second) / 2)


def test_trials_count_the_edits_that_evaluation_counts(validation: Emissions, knowledge: Knowledge) -> None:
    search = BeamSearch(validation, knowledge)
    weights = Weights(lam=0.3, scale=100, distance="aligned_w2")
    for metric in ("cer", "wer", "ned"):
        trials = Trials(search, metric=metric)
        expected = evaluate(some(validation.references), search.choose(weights), bootstrap=0)
        assert trials.evaluate(weights) == pytest.approx(getattr(expected, metric))


def test_tuning_finds_guidance_that_helps_and_says_how_sure_it_is(tuned: Tuned) -> None:
    evidence = some(tuned.evidence)
    assert tuned.weights.guided
    assert tuned.weights.distance == "aligned_w2"
    assert evidence.warning is None
    assert evidence.chosen < evidence.held_out + 1e-9 < evidence.plain
    assert some(evidence.gain.high) < 0
    assert evidence.gain.p < 0.05
    assert evidence.guidance_gain.difference == pytest.approx(evidence.gain.difference)
    assert evidence.curve[0].weights.lam == 1.0
    assert {point.weights.lam for point in evidence.curve} == {0.1, 0.3, 0.5, 1.0}
    assert min(point.error for point in evidence.curve) == pytest.approx(evidence.chosen, abs=1e-3)


def test_tuning_recommends_plain_search_and_warns_when_nothing_is_better_beyond_noise(
    validation: Emissions, knowledge: Knowledge
) -> None:
    inert = Grid(lam=(0.5, 0.9), scale=(1.0,), distance=("sorted_w2",))
    tuned = tune(BeamSearch(validation, knowledge), Tuning(inert, lms=(), prior=False))
    assert tuned.weights == Weights()
    assert some(tuned.evidence).chosen == some(tuned.evidence).plain
    assert bool(some(tuned.evidence).warning) == some(tuned.evidence).best.weights.guided


class _Coins(Search):
    """A search whose settings are all equally good: each makes random mistakes of its own."""

    kind = "ctc"
    terms = EVERY_TERM
    knowledge = Knowledge()

    def __init__(self, lines: Any, seed: int, rate_of: Any = lambda weights: 0.3) -> None:
        self.ids = [str(i) for i in range(lines)]
        self.references = ["a" * 20] * lines
        self.domains = [None] * lines
        self.seed = seed
        self.rate_of = rate_of

    def hypotheses(self, weights: Weights, alignment: bool = False) -> list[Hypothesis]:
        raise NotImplementedError

    def recognized(self) -> Iterator[Any]:
        yield b""

    def choose(self, weights: Weights) -> Any:
        rng = np.random.default_rng([self.seed, int(1000 * weights.lam), int(weights.scale)])
        wrong = rng.random((len(self.ids), 20)) < self.rate_of(weights)
        return ["".join("b" if w else "a" for w in row) for row in wrong]


@pytest.mark.parametrize("rule", ["best", "one_se"])
def test_rescoring_chooses_what_decoding_every_setting_chooses(
    rule: Rule, validation: Emissions, knowledge: Knowledge
) -> None:
    settings_ = Tuning(Grid(lam=(0.1, 0.3, 0.5, 0.7, 0.9)), lms=(), prior=False, rule=rule)
    first, second = (
        tune(BeamSearch(validation, knowledge), replace(settings_, exact=exact)) for exact in (False, True)
    )
    assert first.weights == second.weights
    curves = [{point.weights: point for point in some(found.evidence).curve} for found in (first, second)]
    assert curves[0].keys() == curves[1].keys()
    decoded = {weights for weights, point in curves[0].items() if not point.rescored}
    assert first.weights in decoded
    assert len(decoded) < len(curves[0]) / 2
    assert all(curves[0][weights] == curves[1][weights] for weights in decoded)
    assert not any(point.rescored for point in curves[1].values())
    assert f"{len(decoded)} of {len(curves[0])} settings were decoded" in " ".join(first.sentences())
    assert "were decoded" not in " ".join(second.sentences())
    assert Tuned.model_validate_json(first.model_dump_json()) == first


def _decided(search: Any, grid: Any = Grid(distance=("sorted_w2",)), rule: Rule = "best") -> Any:
    trials = Trials(search)
    trials.best_of([Weights(), *guidance_grid(Weights(), grid)], "")
    return tuning.decide(trials, Weights(), tuning.Folds.make(len(search.ids), None, 10, 0), rule)


def test_the_luckiest_of_many_equal_settings_is_recommended_in_few_cases_only() -> None:
    results = [_decided(_Coins(40, seed)) for seed in range(40)]
    optimistic = np.mean([r.evidence.best.error - r.evidence.plain for r in results])
    honest = np.mean([r.evidence.gain.difference for r in results])
    assert optimistic < -1.5  # picking the best of 76 looks like a gain
    assert abs(honest) < 0.75  # held-out lines do not fall for it
    assert sum(r.weights.guided for r in results) <= 6


def test_a_setting_that_is_truly_better_is_recommended() -> None:
    better = _Coins(60, 0, lambda weights: 0.2 if weights.lam == 0.4 and weights.scale == 10 else 0.3)
    tuned = _decided(better)
    assert (tuned.weights.lam, tuned.weights.scale) == (0.4, 10.0)
    assert some(tuned.evidence).warning is None


def test_the_warning_says_what_was_tried_and_what_is_recommended() -> None:
    trials = Trials(_Coins(40, 3))
    trials.best_of([Weights(), *guidance_grid(Weights(), Grid(scale=(1.0,)))], "")
    folds = tuning.Folds.make(40, None, 10, 0)
    tuned = tuning.decide(trials, Weights(), folds)
    assert re.search(
        r"λ 0.* is not better than .*λ = 1.* Recommended is plain beam search", some(some(tuned.evidence).warning)
    )
    assert tuned.weights.lam == 1.0
    assert some(tuned.evidence).best.weights.lam < 1


def test_one_standard_error_rule_takes_the_weakest_setting_that_is_as_good() -> None:
    search = _Coins(60, 0, lambda weights: 0.1 if weights.lam <= 0.5 and weights.guided else 0.3)
    grid = Grid(scale=(1.0,), distance=("sorted_w2",))
    assert _decided(search, grid, "one_se").weights.lam >= _decided(search, grid, "best").weights.lam
    assert 0.3 <= _decided(search, grid, "one_se").weights.lam <= 0.5


def test_folds_keep_pages_together() -> None:
    pages = [i // 4 for i in range(40)]
    folds = tuning.Folds.make(40, pages, 5, 0)
    assert folds.count == 5
    for page in range(10):
        assert len({folds.number[i] for i in range(40) if pages[i] == page}) == 1


def test_held_out_edits_use_the_best_setting_of_the_other_folds() -> None:
    trials = Trials(_Coins(4, 0))
    a, b = Weights(lam=0.1), Weights(lam=0.2)
    edits = {a: np.array([0, 0, 5, 5]), b: np.array([4, 4, 0, 0])}
    trials.counts = {weights: Counts(wrong, wrong, np.full(4, 20)) for weights, wrong in edits.items()}
    folds = tuning.Folds(np.array([0, 0, 1, 1]), range(4), 2)
    # without fold 0, b is best (0 against 10) and is applied to it; without fold 1, a
    assert tuning.held_out_counts(trials, [a, b], folds).edits.tolist() == [4, 4, 5, 5]


def test_tuning_refuses_test_lines(validation: Emissions, knowledge: Knowledge) -> None:
    with pytest.raises(FadaError, match="50 of 50 test lines are also validation lines, the first is 'v-0'"):
        tune(BeamSearch(validation, knowledge), test=validation)
    renumbered = make_emissions(2, 25, prefix="v")  # the same ids, other lines: running numbers in both files
    refuse_overlap(validation, renumbered)


def test_tuning_needs_references(validation: Emissions, knowledge: Knowledge) -> None:
    with pytest.raises(FadaError, match="tuning needs references"):
        tune(BeamSearch(replace(validation, references=None), knowledge))


def test_joint_terms_are_tuned_and_keep_their_strength(validation: Emissions, knowledge: Knowledge) -> None:
    tuned = tune(BeamSearch(validation, knowledge), Tuning(SMALL))
    assert tuned.weights.lm in ("global", "domain")
    assert some(tuned.evidence).chosen < 5
    on_top = next(iter(guidance_grid(Weights(lm="domain", lm_weight=0.5, prior_weight=1.0), SMALL)))
    assert on_top.lm_weight == pytest.approx(0.5 * on_top.lam)
    assert on_top.prior_weight == pytest.approx(on_top.lam)


def test_weights_that_lack_their_knowledge_are_refused(validation: Emissions) -> None:
    with pytest.raises(FadaError, match="need a target file"):
        BeamSearch(validation, Knowledge()).choose(Weights(lam=0.5))
    with pytest.raises(FadaError, match="global language model, and there is none"):
        BeamSearch(validation, Knowledge()).choose(Weights(lm="global", lm_weight=0.5))


def test_tuning_resumes_from_its_store_without_decoding_again(
    tmp_path: Path, validation: Emissions, knowledge: Knowledge
) -> None:
    store = tmp_path / "trials.jsonl"
    options: dict[str, Any] = {"grid": Grid(lam=(0.3,), scale=(100.0,)), "lms": (), "prior": False, "store": store}
    first = tune(BeamSearch(validation, knowledge), Tuning(**options))
    lines = store.read_text(encoding="utf-8")
    store.write_text(lines[:-40], encoding="utf-8")  # interrupted while writing
    again = tune(BeamSearch(validation, knowledge), Tuning(**options))
    assert some(again.evidence).curve == some(first.evidence).curve
    trials = Trials(BeamSearch(validation, knowledge), store=store)
    assert len(trials) >= 2
    with pytest.raises(FadaError, match="results of other lines"):
        Trials(BeamSearch(make_emissions(7, 25, prefix="v"), knowledge), store=store)


def test_a_study_is_resumed_and_belongs_to_its_lines(
    tmp_path: Path, validation: Emissions, knowledge: Knowledge
) -> None:
    study = tmp_path / "study.db"
    options: dict[str, Any] = {"grid": Grid(lam=(0.5,), scale=(1.0,)), "lms": (), "study": study}
    search = BeamSearch(validation, knowledge)
    first = tune(search, Tuning(trials=3, **options))
    second = tune(search, Tuning(trials=6, **options))
    count = len(some(second.evidence).curve)
    third = tune(search, Tuning(trials=6, **options))
    assert len(some(first.evidence).curve) < count
    assert len(some(third.evidence).curve) == count
    with pytest.raises(FadaError, match="a study of other lines"):
        tune(BeamSearch(make_emissions(7, 25), knowledge), Tuning(trials=3, **options))


def test_tuned_file_round_trips_and_names_mistakes(tmp_path: Path, tuned: Tuned) -> None:
    path = tmp_path / "tuned.json"
    tuned.save(path)
    assert Tuned.load(path) == tuned
    assert list(json.loads(path.read_text(encoding="utf-8")))[:3] == ["version", "kind", "lam"]
    path.write_text('{"lam": 0.4, "scale": 20, "distance": "aligned_w2"}', encoding="utf-8")
    assert Tuned.load(path).weights == Weights(lam=0.4, scale=20, distance="aligned_w2")
    for text, message in [
        ('{"lambda": 0.4}', "lambda: Extra inputs are not permitted"),
        ('{"lam": 1.4}', "lam: Input should be less than or equal to 1"),
        ("{", "not readable as JSON"),
    ]:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(FadaError, match=message):
            Tuned.load(path)
    with pytest.raises(FadaError, match="fada tune"):
        Tuned.load(tmp_path / "absent.json")


def test_the_console_says_all_that_the_file_holds(validation: Emissions, knowledge: Knowledge) -> None:
    grid = Grid(lam=(0.9,), scale=(1.0,), distance=("sorted_w2",), prior_weight=(0.5, 1.0))
    tuned = tune(BeamSearch(validation, knowledge), Tuning(grid, lms=()))
    assert tuned.weights.prior_weight
    assert not tuned.weights.guided
    told = " ".join(tuned.sentences())
    assert f"Recommended: prior weight {tuned.weights.prior_weight:g}, beam 5." in told
    assert f"{some(tuned.evidence).held_out:.2f} %" in told
    assert f"p = {some(tuned.evidence).gain.p:.2g}" in told
    assert "Recommended is λ = 1" not in told


def test_the_curve_is_drawn(tmp_path: Path, tuned: Tuned) -> None:
    for name, start in [("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")]:
        draw_curve(tuned, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_pages_are_found_in_line_ids() -> None:
    assert tuning.clusters_from_ids(["ms1_p2_l3", "ms1_p2_l4"], r"(.*)_l\d+") == ["ms1_p2"] * 2
    with pytest.raises(FadaError, match="does not match the line id 'x'"):
        tuning.clusters_from_ids(["x"], r"p\d+")


# ---------------------------------------------------------------------------------------------------------- n-best


def _nbest(validation: Emissions, knowledge: Knowledge, size: int = 8) -> Any:
    from fada.decoding.ctc import CTCBeamDecoder

    decoder = CTCBeamDecoder(validation.symbols, beam_size=size)
    found = decoder.decode_batch(validation.log_probs, nbest=size)
    return NBest(
        validation.ids,
        [[h.text for h in line] for line in found],
        [[h.log_prob for h in line] for line in found],
        validation.references,
        list(some(validation.domains)),
    )


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(st.text("abegh ", max_size=10), st.floats(-30, 0)), min_size=1, max_size=6),
    st.floats(0.05, 1.0),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([0.0, 1.0]),
)
def test_rescoring_equals_the_definition_of_the_score(
    hypotheses: Any, lam: float, prior_weight: float, lm_weight: float, bonus: float
) -> None:
    knowledge = Knowledge.from_texts(training_texts(lines_per_domain=5), order=3)
    weights = Weights(lam=lam, scale=20, distance="aligned_w2", prior_weight=prior_weight, length_bonus=bonus)
    weights = weights.change(lm="domain", lm_weight=lm_weight)
    target = some(knowledge.targets)["12"]
    guidance = Guidance(target, lam, weights.distance, weights.scale)
    correction = dict(zip(target.symbols, prior_weights(target, some(knowledge.prior)), strict=True))

    def score(text: str, log_prob: float) -> Any:
        return (
            guidance.score(log_prob, text)
            + lm_weight * knowledge.domain_lms["12"].log_prob(text)
            + prior_weight * sum(correction[c] for c in text)
            + bonus * len(text)
        )

    lists = NBest(["l"], [[t for t, _ in hypotheses]], [[p for _, p in hypotheses]], [""], ["12"])
    (chosen,) = Rescorer(lists, knowledge).choose(weights)
    scores = {text: score(text, p) for text, p in sorted(hypotheses, key=lambda pair: pair[1])}
    assert scores[chosen] == pytest.approx(max(scores.values()))


def test_nbest_lists_are_tuned_by_rescoring_and_say_so(
    tmp_path: Path, validation: Emissions, knowledge: Knowledge
) -> None:
    lists = _nbest(validation, knowledge)
    lists.save(tmp_path / "nbest.parquet")
    assert NBest.load(tmp_path / "nbest.parquet") == lists
    tuned = tune(Rescorer(lists, knowledge), Tuning(SMALL, lms=()))
    assert tuned.kind == "nbest"
    plain, oracle = (
        evaluate(lists.references, texts, bootstrap=0).cer
        for texts in ([texts[0] for texts in lists.hypotheses], lists.oracle())
    )
    assert oracle <= some(tuned.evidence).chosen < some(tuned.evidence).plain == pytest.approx(plain)


def test_nbest_mistakes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text('{"id": "a", "hypothesis": "x"}\n', encoding="utf-8")
    with pytest.raises(FadaError, match="no column 'log_prob'"):
        NBest.load(path)
    path.write_text('{"id": "a", "hypothesis": "x", "log_prob": null}\n', encoding="utf-8")
    with pytest.raises(FadaError, match="must hold a number"):
        NBest.load(path)
    with pytest.raises(FadaError, match="not finite"):
        NBest(["a"], [["x"]], [[float("-inf")]])


# ----------------------------------------------------------------------------------------------------- command line


@pytest.fixture
def run_folder(tmp_path: Path, validation: Emissions) -> Path:
    folder = tmp_path / "run"
    (folder / "emissions").mkdir(parents=True)
    validation.save(folder / "emissions" / "validation.npz")
    make_emissions(2, 25, prefix="t").save(folder / "emissions" / "test.npz")
    TargetSet.from_texts(training_texts()).save(folder / "targets.json")
    lines = [Line(f"{d}-{i}", t, d) for d, texts in training_texts().items() for i, t in enumerate(texts)]
    write_parquet(LineSet.of(lines), folder / "train.parquet")
    return folder


def test_command_line_tunes_a_run_folder_and_evaluate_accepts_the_result(run_folder: Path) -> None:
    options = ["--scale", "100", "--distance", "aligned_w2", "--no-prior", "--curve", str(run_folder / "curve.svg")]
    run_fada("tune", run_folder, *options, "--page", r"(\d)$")
    tuned = Tuned.load(run_folder / "tuned.json")
    assert tuned.weights.guided
    assert some(tuned.evidence).clusters < some(tuned.evidence).lines
    assert (run_folder / "curve.svg").exists()
    arguments = ["--tuned", str(run_folder / "tuned.json"), "--targets", str(run_folder / "targets.json"), "--json"]
    value = json.loads(run_fada("evaluate", run_folder / "emissions/test.npz", *arguments).stdout)
    assert set(value["evaluations"]) == {"beam", "greedy", "tuned"}
    assert value["comparisons"]["tuned"]["overall"]["cer"]["difference"] < 0
    with pytest.raises(FadaError, match="tuned on 50 of these 50 lines"):
        run_fada("evaluate", run_folder / "emissions/validation.npz", *arguments)


def test_command_line_takes_references_from_a_source_of_lines(run_folder: Path, validation: Emissions) -> None:
    np.savez(run_folder / "foreign.npz", **cast(Any, dict(zip(validation.ids, validation.log_probs, strict=True))))
    symbols = (run_folder / "emissions" / "symbols.json").read_text(encoding="utf-8")
    (run_folder / "symbols.json").write_text(symbols, encoding="utf-8")
    rows = zip(validation.ids, some(validation.references), some(validation.domains), strict=True)
    write_parquet(LineSet.of([Line(*row) for row in rows]), run_folder / "validation.parquet")
    search = open_search(run_folder / "foreign.npz", Knowledge(), lines=run_folder / "validation.parquet")
    assert search.references == validation.references
    assert search.domains == validation.domains


def test_language_models_are_made_of_training_lines_only(run_folder: Path) -> None:
    lines = [Line("a", "abba", "12", extra={"split": "train"}), Line("b", "zzz", "12", extra={"split": "test"})]
    write_parquet(LineSet.of(lines), run_folder / "mixed.parquet")
    loaded = load_knowledge(run_folder / "targets.json", [run_folder / "mixed.parquet"], order=3)
    assert some(loaded.global_lm).vocabulary == ("a", "b")
    assert loaded.lm_order == 3


def test_a_cut_store_is_mended_and_other_grids_in_it_do_not_count(
    tmp_path: Path, validation: Emissions, knowledge: Knowledge
) -> None:
    store = tmp_path / "trials.jsonl"
    options: dict[str, Any] = {"lms": (), "prior": False, "store": store}
    wide = tune(BeamSearch(validation, knowledge), Tuning(Grid(lam=(0.3, 0.6), scale=(1.0, 100.0)), **options))
    whole = store.read_text(encoding="utf-8")
    store.write_text(whole[:-40], encoding="utf-8")
    tune(BeamSearch(validation, knowledge), Tuning(Grid(lam=(0.3, 0.6), scale=(1.0, 100.0)), **options))
    assert sorted(store.read_text(encoding="utf-8").splitlines()) == sorted(whole.splitlines())
    narrow = tune(BeamSearch(validation, knowledge), Tuning(Grid(lam=(0.3,), scale=(1.0,)), **options))
    assert len(some(narrow.evidence).curve) < len(some(wide.evidence).curve)
    assert {point.weights.scale for point in some(narrow.evidence).curve} == {1.0}


def test_a_damaged_row_of_a_store_is_decoded_again_and_the_others_are_kept(
    tmp_path: Path, validation: Emissions, knowledge: Knowledge, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "trials.jsonl"
    search = BeamSearch(validation, knowledge)
    first = Trials(search, store=store)
    for beam in (2, 3, 4):
        first.evaluate(Weights(beam=beam))
    head, *rows = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(b"".join([head, rows[0], b'{"weights": 3}\n', b"\xff\xfe\n", rows[2]]))
    again = Trials(search, store=store)
    assert len(again) == 2
    assert "2 rows cannot be read" in caplog.text
    assert store.read_bytes() == b"".join([head, rows[0], rows[2]])
    store.write_bytes(b"[]\n")
    with pytest.raises(FadaError, match="its first line is not that of a store of trials"):
        Trials(search, store=store)


def test_a_damaged_study_is_told(tmp_path: Path, validation: Emissions, knowledge: Knowledge) -> None:
    study = tmp_path / "study.db"
    study.write_bytes(b"SQLite format 3\0 and no more")
    with pytest.raises(FadaError, match=r"study\.db: not a sound study"):
        tune(BeamSearch(validation, knowledge), Tuning(Grid(lam=()), lms=(), prior=False, trials=1, study=study))


def test_a_store_of_other_emissions_is_refused(tmp_path: Path, validation: Emissions, knowledge: Knowledge) -> None:
    store = tmp_path / "trials.jsonl"
    Trials(BeamSearch(validation, knowledge), store=store).evaluate(Weights())
    sharper = [1.02 * scores for scores in validation.log_probs]
    with pytest.raises(FadaError, match="results of other lines"):
        Trials(BeamSearch(replace(validation, log_probs=sharper), knowledge), store=store)
