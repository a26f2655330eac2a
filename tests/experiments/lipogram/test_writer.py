"""Lipograms: the mask never fails, words and texts are whole, the experiment resumes, mistakes are explained."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fada.errors import FadaError
from fada.evaluation.significance import MeanSem
from fada.experiments.lipogram import words
from fada.experiments.lipogram.effects import expected_effects
from fada.experiments.lipogram.experiment import Experiment, LipogramRecipe
from fada.experiments.lipogram.readability import unknown_words
from fada.experiments.lipogram.story import (
    DEVELOPMENT_TOPICS,
    TOPICS,
    Story,
    forbidden_characters,
    measure,
    parse_story,
    read_topics,
    violating_words,
)
from fada.experiments.lipogram.summary import METRICS, Row, Summary, Written, compared
from fada.experiments.lipogram.words import KnownWords, Lexicon, Plausible
from fada.experiments.lipogram.writer import LipogramWriter, focused_target, lipogram_target
from fada.models.language import continue_prompt, load_language_model
from fada.targets.distribution import CharDistribution
from fada.targets.target_set import TargetSet
from fada.text.characters import OTHER
from fada.text.tokens import TokenTable
from tests.support import tiny_models as tiny
from tests.support.commands import run_fada
from tests.support.types import some

CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %} A: {% endif %}"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a byte-level tokenizer and no chat template, as a folder."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny.byte_level_tokenizer(tiny.ENGLISH * 3, 400)
    tiny.llama(len(tokenizer), sharpness=4.0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True, scope="module")
def kept_words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which the words of vocabularies are kept; finding them takes seconds."""
    folder = tmp_path_factory.mktemp("words")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("FADA_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def loaded(model_folder: Path) -> tuple[Any, Any]:
    return load_language_model(str(model_folder))


def writer(loaded: tuple[Any, Any], **options: Any) -> Any:
    settings: dict[str, Any] = {"max_new_tokens": 24, "min_new_tokens": 8, "style": "continue"}
    return LipogramWriter(*loaded, **settings | options)


def test_the_words_of_a_vocabulary_are_kept_and_read_again(
    loaded: tuple[Any, Any], kept_words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, before = loaded[1], {*kept_words.iterdir()}
    table = TokenTable.from_tokenizer(tokenizer)
    made = words._lexicon.__wrapped__(tokenizer, table, "en")
    [kept] = {*kept_words.iterdir()} - before
    with monkeypatch.context() as without:
        without.setattr(words, "word_frequencies", lambda language: pytest.fail("found anew"))
        assert words._lexicon.__wrapped__(tokenizer, table, "en").spellings == made.spellings
    kept.write_text('[["broken"', encoding="utf-8")
    assert words._lexicon.__wrapped__(tokenizer, table, "en").spellings == made.spellings


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("letter", ["a", "e"])
def test_masked_modes_never_violate_and_end_with_a_sentence(loaded: tuple[Any, Any], letter: str, sample: bool) -> None:
    own = CharDistribution.from_texts([tiny.ENGLISH])
    for mode, target in (("hard", None), ("soft+hard", lipogram_target(own, letter)), ("soft+hard", None)):
        stories, _ = writer(loaded, sample=sample, num_beams=3).write(
            ["a dog at the park", "rain"], {letter}, mode, target, seed=3
        )
        figures = measure(stories, {letter})
        assert figures["outputs"] == figures["words"] == 0.0
        assert figures["complete"] == 100.0
        assert all(story.text for story in stories)


def test_soft_guidance_lowers_the_share_of_the_letter(loaded: tuple[Any, Any]) -> None:
    topics = list(DEVELOPMENT_TOPICS[:10])
    plain, _ = writer(loaded, sample=True, max_new_tokens=40).write(topics, {"e"}, "plain", seed=1)
    soft, timing = writer(loaded, sample=True, max_new_tokens=40, scale=20_000.0).write(topics, {"e"}, "soft", seed=1)

    def share(stories: Any) -> Any:
        return CharDistribution.from_texts(s.text for s in stories).frequency("e")

    assert share(soft) < 0.7 * share(plain)
    assert 0 < timing.guidance_seconds < timing.seconds
    assert all(story.distance is not None for story in soft)
    assert all(story.distance is None for story in plain)


def test_rates_are_approached_from_both_sides(loaded: tuple[Any, Any]) -> None:
    realised = []
    for rate in (0.02, 0.2):
        w = writer(loaded, sample=True, max_new_tokens=50, min_new_tokens=40, scale=3000.0, warmup=20.0)
        stories, _ = w.write(list(DEVELOPMENT_TOPICS[:10]), {"e"}, "soft", focused_target({"e": rate}))
        realised.append(CharDistribution.from_texts(s.text for s in stories).frequency("e"))
    assert realised[0] == pytest.approx(0.02, abs=0.02)
    assert realised[1] > 3 * realised[0]


def test_sampling_repeats_with_its_seed_and_beam_search_needs_none(loaded: tuple[Any, Any]) -> None:
    def texts(seed: int, **options: Any) -> Any:
        stories, _ = writer(loaded, **options).write(["a cat"], {"e"}, "plain", seed=seed)
        return [story.text for story in stories]

    assert texts(1, sample=True) == texts(1, sample=True) != texts(2, sample=True)
    assert texts(1, num_beams=3) == texts(2, num_beams=3)


class TestKnownWords:
    """The look-ahead, on a vocabulary of characters where every step can be told."""

    tokenizer = tiny.character_tokenizer("the ious.ng!")
    table = TokenTable.from_tokenizer(tokenizer)

    def after(self, text: str, probabilities: Any = None, budget: int = 40, forbidden: str = "e") -> Any:
        """The tokens still possible after `text`, with their scores."""
        ids = [1, *(self.tokenizer.convert_tokens_to_ids(c) for c in text)]
        logits = torch.full((1, len(self.tokenizer)), 1e-4).log()
        for name, p in (probabilities or {}).items():
            logits[0, self.tokenizer.convert_tokens_to_ids(name)] = torch.tensor(p).log()
        rules = KnownWords(self.tokenizer, self.table, forbidden, [2], 1, budget)
        out = rules(torch.tensor([ids]), logits)[0]
        return {name: float(out[i]) for name, i in self.tokenizer.get_vocab().items() if torch.isfinite(out[i])}

    def test_a_word_goes_on_as_a_known_word_without_the_letter_can(self) -> None:
        possible = self.after("th")
        assert {"i", "u"} <= set(possible) <= {"i", "u", "o"}

    def test_a_word_may_end_only_where_it_is_one(self) -> None:
        assert {" ", "."} <= set(self.after("this"))
        assert not {" ", "."} & set(self.after("nothi"))

    def test_a_beginning_is_worth_the_share_of_its_words_that_may_be_written(self) -> None:
        free, without = self.after("", forbidden="o"), self.after("", forbidden="e")
        assert without["t"] < free["t"]
        assert without["i"] > without["t"]

    def test_a_text_ends_only_after_a_sentence(self) -> None:
        assert "</s>" not in self.after("this", {" ": 0.5, "</s>": 0.4})
        assert "</s>" in self.after("this.", {" ": 0.5, "</s>": 0.4})

    def test_late_in_the_budget_a_finished_sentence_is_the_end(self) -> None:
        assert set(self.after("this.", {" ": 0.9}, budget=6)) == {"</s>"}

    def test_towards_the_end_a_sentence_ends_more_and_more_readily(self) -> None:
        scores = [self.after("this", budget=budget)["."] for budget in (44, 40, 36)]
        assert scores == sorted(scores)
        early, later = (self.after("this is this is this" + " is" * n, budget=42)["."] for n in (0, 6))
        assert later > early

    def test_no_word_begins_that_cannot_be_finished_and_the_last_token_but_one_closes_the_sentence(self) -> None:
        assert not set(self.after("this ", budget=8)) & set("t")
        assert set(self.after("this", {" ": 0.9}, budget=6)) == {".", "!"}

    def test_after_a_number_no_word_begins_but_an_ordinal_may_end(self) -> None:
        tokenizer = tiny.byte_level_tokenizer("on the 19th of this month " * 9, 400)
        rules = KnownWords(tokenizer, TokenTable.from_tokenizer(tokenizer), "e", [2], 0, 40)
        out = rules(torch.tensor([tokenizer(" on 19")["input_ids"]]), torch.zeros(1, len(tokenizer)))[0]
        assert torch.isfinite(out[tokenizer.convert_tokens_to_ids("th")])
        assert not torch.isfinite(out[tokenizer.convert_tokens_to_ids("o")])

    def test_rules_that_leave_nothing_are_dropped(self) -> None:
        tokenizer = tiny.character_tokenizer("ab")
        b = tokenizer.convert_tokens_to_ids("b")
        rules = KnownWords(tokenizer, TokenTable.from_tokenizer(tokenizer), "a", [2], 1, 4)
        out = rules(torch.tensor([[1, b, b, b]]), torch.zeros(1, len(tokenizer)))
        assert torch.isfinite(out[0, b])

    def test_every_spelling_in_the_lexicon_is_the_word_it_stands_for(self) -> None:
        tokenizer = tiny.byte_level_tokenizer(tiny.ENGLISH * 3, 400)
        table = TokenTable.from_tokenizer(tokenizer)
        lexicon = Lexicon.of(tokenizer, table, {"garden": 0.2, "don't": 0.1, "naïve": 0.05})
        written = {text for text, _, _ in lexicon.spellings}
        assert {text.strip() for text in written} == {"garden", "Garden", "don't", "Don't", "naïve", "Naïve"}
        assert all(table.join(tokens).decode() == text for text, tokens, _ in lexicon.spellings)


def test_masked_stories_have_no_unknown_words(loaded: tuple[Any, Any]) -> None:
    stories, _ = writer(loaded, sample=True).write(list(DEVELOPMENT_TOPICS[:6]), {"e"}, "hard", seed=5)
    assert not [word for story in stories for word in unknown_words(story.text)]


def test_improbable_tokens_are_left_out() -> None:
    scores = torch.tensor([[2.0, 1.0, -7.0, -9.0, -torch.inf]])
    assert Plausible(10.0)(torch.zeros(1, 1), scores).tolist() == [[0.0, -1.0, -9.0, -torch.inf, -torch.inf]]


def test_the_expected_effect_grows_with_the_scale_and_is_nothing_without(loaded: tuple[Any, Any]) -> None:
    w = writer(loaded, sample=True, max_new_tokens=30)
    stories, _ = w.write(list(DEVELOPMENT_TOPICS[:5]), {"e"}, "plain", seed=2)
    nothing, weak, strong = expected_effects(w, stories, "e", [0.0, 5_000.0, 50_000.0])
    assert nothing.tokens == pytest.approx(0, abs=1e-5)
    assert nothing.perplexity == pytest.approx(1)
    assert strong.tokens < weak.tokens < -5
    assert strong.perplexity > 1


def test_cells_are_compared_topic_by_topic() -> None:
    def cell(*texts: Any, loss: Any) -> Any:
        stories = [Story(str(i), text, -loss * 10, 10) for i, text in enumerate(texts)]
        figures: dict[str, Any] = {"lam": 1.0, "scale": 0.0, "metrics": {}, "seconds": 1.0, "guidance_seconds": 0.0}
        return Written(search="sample", seed=0, letter="e", variant="soft", stories=stories, **figures)

    plain, soft = cell("the big tree", "we see it", loss=1.0), cell("the big oak", "we got it", loss=1.1)
    found = compared([soft], [plain])
    assert found.words == pytest.approx(-50)
    assert found.perplexity == pytest.approx(2.718281828**0.1)
    assert found.words_se == pytest.approx(0)
    assert found.perplexity_se == pytest.approx(0)
    assert compared([plain], [cell("oak", "no", loss=1.0)]).words is None
    few = compared([cell("oak", "no", loss=1.0)], [cell("the tree", "no", loss=1.0)])  # a topic that has none to lose
    assert (few.words, few.words_se) == (-100, None)
    figures = dict.fromkeys(METRICS, MeanSem(1.0, None, 1))
    row = Row(
        search="sample", letter="e", variant="soft", runs=1, figures=figures, overhead=0.0, against={"plain": few}
    )
    told = Summary(recipe={}, tuning=None, done=1, planned=1, rows=[row], rates=[], author=[]).to_markdown()
    assert "| e | soft | plain | -100.0 | 1.000 ± 0.000 |" in told


@pytest.mark.parametrize(
    ("answer", "story"),
    [
        ('{"Story": "A dog ran."}', "A dog ran."),
        ('Sure!\n```json\n{\n  "Story": "A dog\nran."\n}\n```\nI avoided it.', "A dog\nran."),
        ('{"Story": "A dog ran', "A dog ran"),
        ('{"Story": "A "big" dog ran."}', 'A "big" dog ran.'),
        ("{'story': \"A dog.\", }", "A dog."),
        ('{"Title": {"a": 1}, "STORY ": "Up.", "Why": "because"}', "Up."),
        ("A dog ran.", "A dog ran."),
        ('{"Story": "He said \\"go\\"."', 'He said "go".'),
        ("", ""),
    ],
)
def test_stories_are_found_in_imperfect_json(answer: str, story: str) -> None:
    assert parse_story(answer) == story


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=60))
def test_any_story_survives_json_and_no_answer_raises(text: str) -> None:
    assert parse_story(json.dumps({"Story": text})) == text.strip()
    assert parse_story("Here:\n" + json.dumps({"Story": text}, ensure_ascii=False) + "\nDone.") == text.strip()
    parse_story(text)


def test_forbidden_letters_with_their_accents_on_request() -> None:
    assert forbidden_characters("E") == {"e"}
    assert forbidden_characters("a, e") == {"a", "e"}
    assert {"é", "è", "ê", "ë", "ē", "ẽ"} <= forbidden_characters("e", accents=True)
    assert "á" not in forbidden_characters("e", accents=True)
    assert {"ά", "ἄ", "α"} <= forbidden_characters("α", accents=True)
    assert violating_words("Thé cat, ÉTÉ", forbidden_characters("e", accents=True)) == ["Thé", "ÉTÉ"]
    assert violating_words("Thé cat, ÉTÉ", {"e"}) == []


def test_targets_for_lipograms_and_rates() -> None:
    own = CharDistribution.from_texts([tiny.ENGLISH])
    target = lipogram_target(own, "e")
    assert target.frequency("e") == 0.0
    assert target.frequencies.sum() == pytest.approx(1)
    focused = focused_target({"e": 0.05})
    assert focused.symbols == ("e", OTHER)
    assert focused.frequency("e") == pytest.approx(0.05)
    with pytest.raises(FadaError, match="nothing to avoid"):
        lipogram_target(own, "ж")
    with pytest.raises(FadaError, match="less than 1"):
        focused_target({"e": 1.0})


def test_figures_of_stories_are_what_their_names_say() -> None:
    stories = [Story("t", "The cat sat. A cat sat.", -6.0, 3), Story("t", "Dogs run", -2.0, 1)]
    figures = measure(stories, {"e"})
    assert figures["outputs"] == 50.0
    assert figures["words"] == pytest.approx(100 / 8)
    assert figures["perplexity"] == pytest.approx(2.718281828**2)
    assert figures["length"] == 4.0
    assert figures["complete"] == 50.0
    assert figures["unknown"] == 0.0
    assert measure([Story("t", "A waltlld dog", -1.0, 1)], {"e"})["unknown"] == pytest.approx(100 / 3)
    assert measure([], {"e"})["outputs"] == 0.0


def test_thirty_topics_and_none_of_them_is_used_for_tuning() -> None:
    assert len(set(TOPICS)) == len(set(DEVELOPMENT_TOPICS)) == 30
    assert not set(TOPICS) & set(DEVELOPMENT_TOPICS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "a dog", "--forbid", "7"], "not a letter"),
        (["--topic", "a dog", "--forbid", "ж"], "nothing to avoid"),
        (["--topic", "a dog", "--forbid", "aeiou", "--mode", "hard"], "words in the model's vocabulary"),
        (["--topic", "a dog", "--language", "tlh"], "no list of words"),
        (["--topic", "a dog", "--style", "short"], "chat template"),
        (["--topics", "{empty}"], "no topic in it"),
        (["--topics", "{missing}"], "no such file"),
        ([], "nothing to write about"),
        (["--topic", " "], "empty topic"),
        (["--topic", "a dog", "--model", "{empty}"], "not a language model"),
        (["--recipe", "{missing}"], "needs --out"),
        (["--recipe", "{missing}", "--out", "{out}"], "no such recipe"),
        (["--recipe", "{bad}", "--out", "{out}"], "colour"),
    ],
)
def test_mistakes_are_answered_with_a_reason(
    model_folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "empty").write_text("\n# only a comment\n", encoding="utf-8")
    (tmp_path / "bad").write_text("colour: red\n", encoding="utf-8")
    places = {name: str(tmp_path / name) for name in ("empty", "missing", "bad", "out")}
    filled = [argument.format(**places) for argument in arguments]
    model = [] if "--model" in filled else ["--model", str(model_folder)]
    style = [] if "--style" in filled else ["--style", "continue"]
    with pytest.raises(FadaError, match=re.escape(message)):
        run_fada("lipogram", *model, *style, "--tokens", 8, *filled)


def test_a_story_from_the_command_line(model_folder: Path) -> None:
    options = ["--model", model_folder, "--style", "continue", "--tokens", 16, "--beams", 2, "--json", "--mode", "hard"]
    result = run_fada("lipogram", "--forbid", "e", "--topic", "a dog", *options)
    [row] = json.loads(result.stdout)
    assert row["violating words"] == "none"
    assert "e" not in row["story"].lower()


def test_generating_towards_a_target_file(model_folder: Path, tmp_path: Path) -> None:
    TargetSet.from_texts({"1": [tiny.ENGLISH], "2": ["zzz"]}).save(tmp_path / "targets.json")
    options = ["--model", str(model_folder), "--targets", str(tmp_path / "targets.json"), "--domain", "1", "--json"]
    result = run_fada("generate", "The dog", *options, "--tokens", 8, "--nbest", 2, "--beams", 3)
    rows = json.loads(result.stdout)
    assert len(rows) == 2
    assert rows[0]["score"] == pytest.approx(0.5 * rows[0]["log_prob"] - 0.5 * rows[0]["distance"], abs=1e-4)


def test_an_empty_prompt_is_refused(loaded: tuple[Any, Any]) -> None:
    with pytest.raises(FadaError, match="prompt is empty"):
        continue_prompt(*loaded, " ", CharDistribution.from_texts(["ab"]))


def test_chat_models_are_instructed_and_their_json_is_closed(loaded: tuple[Any, Any]) -> None:
    _, tokenizer = loaded
    tokenizer.chat_template = CHAT
    try:
        w = writer(loaded, style="json", num_beams=2)
        prompt = w.prompt("a dog", "e")
        assert "a dog" in prompt
        assert '"e"' in prompt
        assert prompt.endswith('{"Story": "')
        closing = {w.table.pieces[i] for i in w.end_tokens}
        assert b'"' in closing
        assert not any(re.search(rb"[a-z]", piece) for piece in closing)
        [story], _ = w.write(["a dog"], {"e"}, "hard")
        assert not violating_words(story.text, {"e"})
    finally:
        tokenizer.chat_template = None


RECIPE = """
model: {model}
letters: [e]
variants: [plain, soft, paper, hard, soft+hard]
topics: [a dog, a cat]
searches: [{{sample: true, seeds: [0, 1]}}, {{sample: false, num_beams: 2}}]
tuned_scales: [5000, 10000]
rates: {{e: [0.5]}}
author: Nevermore, quoth the raven.
max_new_tokens: 12
min_new_tokens: 4
style: continue
"""


def test_the_experiment_resumes_and_sums_up(model_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.format(model=model_folder), encoding="utf-8")
    out = tmp_path / "out"
    result = run_fada("lipogram", "--recipe", path, "--out", out, "--json")
    rows = json.loads(result.stdout)
    assert {row["variant"] for row in rows} == {"plain", "soft", "paper", "hard", "soft+hard"}
    assert all(row["words"] == 0 for row in rows if "hard" in row["variant"])
    files = sorted((out / "stories").iterdir())
    assert len(files) == 5 * 3 + 3 * 2
    before = {file.name: file.stat().st_mtime_ns for file in files}
    gone = files[3]
    text = json.loads(gone.read_text(encoding="utf-8"))["stories"]
    gone.unlink()
    summary = Experiment(LipogramRecipe.load(path), out).run()
    assert json.loads(gone.read_text(encoding="utf-8"))["stories"] == text
    after = {file.name: file.stat().st_mtime_ns for file in files}
    assert {name for name in before if before[name] != after[name]} == {gone.name}
    assert (summary.done, summary.planned) == (21, 21)
    assert some(summary.tuning).chosen["e"] in (5000, 10000)
    assert [row.factor for row in summary.rates] == [None, 0.5]
    assert some(summary.rates[1].requested) > 0
    assert [row.mode for row in summary.author] == ["plain", "soft"]
    soft = next(row for row in summary.rows if row.variant == "soft")
    assert some(soft.against["plain"].words) < 0
    table = (out / "table.md").read_text(encoding="utf-8")
    assert "| e | soft+hard |" in table
    assert "| e | soft+hard | hard |" in table
    added = LipogramRecipe.load(path).model_copy(update={"variants": ("plain", "eq2"), "rates": {"e": (0.5,)}})
    more = Experiment(added, out).run()
    assert {(row.search, row.variant) for row in more.rows} >= {("sample", "eq2"), ("beam2", "eq2")}
    assert {file.name: file.stat().st_mtime_ns for file in files} == after
    with pytest.raises(FadaError, match="other settings"):
        Experiment(LipogramRecipe.load(path).quick(), out)


def test_topics_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text("a dog\n\n# no\na cat \n", encoding="utf-8")
    assert read_topics(tmp_path / "topics.txt") == ("a dog", "a cat")


@pytest.mark.parametrize("name", ["lipogram", "lipogram-beam"])
def test_the_committed_tables_come_from_the_committed_stories(name: str, tmp_path: Path) -> None:
    committed = Path(__file__).parents[3] / "results" / name
    folder = tmp_path / name
    shutil.copytree(committed, folder)
    (folder / "table.md").unlink()
    Experiment(LipogramRecipe.load(folder / "recipe.json"), folder).summarise()
    assert (folder / "table.md").read_text(encoding="utf-8") == (committed / "table.md").read_text(encoding="utf-8")
