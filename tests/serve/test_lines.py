"""Lines over the interface: saved as typed, versions, history, completion, outlines; over stored emissions."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fada.serve.signs import code_of
from tests.support.desks import TEXTS, finished, opened, put_document


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(tmp_path_factory.mktemp("desk") / "project") as client:
        yield client


@pytest.fixture
def page(client: Any) -> dict[str, Any]:
    document = put_document(client.desk)
    found = client.get(f"/api/documents/{document}").json()
    return client.get(f"/api/pages/{found['pages'][0]['id']}").json()


def patch(client: Any, line: dict[str, Any], **change: Any) -> Any:
    return client.patch(f"/api/lines/{line['id']}", json={"version": line["version"], **change})


def test_a_page_has_its_lines_as_they_were_read(page: dict[str, Any]) -> None:
    assert [line["text"] for line in page["lines"]] == list(TEXTS)
    assert [line["order"] for line in page["lines"]] == [0, 1, 2]
    first = page["lines"][0]
    assert first["state"] == "draft"
    assert first["plain"] == first["reading"] == TEXTS[0]
    assert "".join(cell["character"] for cell in first["characters"]) == TEXTS[0]
    starts = [cell["start"] for cell in first["characters"]]
    assert starts == sorted(starts)
    assert all(0 <= cell["start"] <= cell["end"] <= 1 for cell in first["characters"])
    assert first["alternatives"][0] == {"text": TEXTS[0], "score": 0.0}
    assert 0 <= first["expected_word_error"] <= 1


def test_what_is_typed_is_kept_with_its_history_and_can_be_undone(client: Any, page: dict[str, Any]) -> None:
    line = page["lines"][0]
    typed = patch(client, line, text="the quicker").json()
    assert (typed["text"], typed["state"], typed["version"]) == ("the quicker", "typed", line["version"] + 1)
    sure = patch(client, typed, state="confirmed").json()
    assert (sure["text"], sure["state"]) == ("the quicker", "confirmed")
    steps = client.get(f"/api/lines/{line['id']}/history").json()
    assert [(s["text"], s["state"]) for s in steps][-3:] == [
        (TEXTS[0], "draft"),
        ("the quicker", "typed"),
        ("the quicker", "confirmed"),
    ]
    back = client.post(f"/api/lines/{line['id']}/undo", json={"version": sure["version"]}).json()
    assert (back["text"], back["state"]) == ("the quicker", "typed")
    back = client.post(f"/api/lines/{line['id']}/undo", json={"version": back["version"]}).json()
    assert (back["text"], back["state"]) == (TEXTS[0], "draft")


def test_the_later_of_two_is_shown_the_line_of_the_first(client: Any, page: dict[str, Any]) -> None:
    line = page["lines"][1]
    assert patch(client, line, text="mine").status_code == 200
    answer = patch(client, line, text="yours")
    assert answer.status_code == 409
    assert answer.json()["line"]["text"] == "mine"
    assert client.get(f"/api/lines/{line['id']}").json()["text"] == "mine"


def test_typed_text_is_placed_on_the_image(client: Any, page: dict[str, Any]) -> None:
    line = page["lines"][0]
    typed = patch(client, line, text="the qüick brown fox").json()
    read = {i: cell for i, cell in enumerate(line["characters"]) if i != 5}
    for i, cell in read.items():
        if i not in (4, 6):  # the neighbours of what the model cannot write share its place
            assert typed["characters"][i]["start"] == pytest.approx(cell["start"], abs=0.02)
    unknown = typed["characters"][5]
    assert unknown["character"] == "ü"
    assert typed["characters"][4]["start"] <= unknown["start"] <= unknown["end"] <= typed["characters"][6]["end"]


def test_a_prefix_changes_the_rest(client: Any, page: dict[str, Any]) -> None:
    line = page["lines"][0]

    def complete(**asked: Any) -> dict[str, Any]:
        answer = client.post(f"/api/lines/{line['id']}/complete", json=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert complete(prefix="")["text"] == TEXTS[0]
    assert complete(prefix="the q")["text"] == TEXTS[0]
    other = complete(prefix="thx quick")
    assert other["text"].startswith("thx quick")
    assert other["text"].endswith("brown fox")
    foreign = complete(prefix="Ⱦhe quick")["text"]
    assert foreign.startswith("Ⱦhe quick")
    assert foreign.endswith("brown fox")
    cells = [c for c in line["characters"] if c["character"] != " "]
    span = {"start": cells[3]["start"], "end": cells[7]["end"]}
    worded = complete(words=[{"text": "quack", **span}])
    assert "quack" in worded["text"]
    assert worded["text"].startswith("the ")


def test_lines_are_split_joined_drawn_moved_and_deleted(client: Any, page: dict[str, Any]) -> None:
    one, two, three = page["lines"]
    one = patch(client, one, text=TEXTS[0]).json()
    parts = client.post(f"/api/lines/{one['id']}/split", json={"version": one["version"], "at": 0.5}).json()
    assert " ".join(part["text"] for part in parts).split() == TEXTS[0].split()
    assert max(x for x, _ in parts[0]["outline"]) == min(x for x, _ in parts[1]["outline"])
    joined = client.post(
        "/api/lines/join", json={"lines": [{"id": part["id"], "version": part["version"]} for part in parts]}
    ).json()
    assert joined["text"].split() == TEXTS[0].split()
    assert sorted(map(tuple, joined["outline"])) == sorted(map(tuple, one["outline"]))
    outline = [[20, 130], [200, 130], [200, 150], [20, 150]]
    drawn = client.post(f"/api/pages/{page['id']}/lines", json={"outline": outline})
    assert drawn.status_code == 201
    numbers = [line["id"] for line in client.get(f"/api/pages/{page['id']}").json()["lines"]]
    assert numbers == [one["id"], two["id"], drawn.json()["id"], three["id"]]
    order = client.put(f"/api/pages/{page['id']}/order", json={"lines": numbers[::-1]}).json()
    assert [line["id"] for line in order["lines"]] == numbers[::-1]
    assert client.put(f"/api/pages/{page['id']}/order", json={"lines": numbers[1:]}).status_code == 400
    moved = client.put(
        f"/api/lines/{two['id']}/outline", json={"version": two["version"], "outline": outline, "baseline": []}
    )
    assert moved.json()["outline"] == outline
    assert client.delete(f"/api/lines/{three['id']}", params={"version": three["version"] + 1}).status_code == 409
    assert client.delete(f"/api/lines/{three['id']}", params={"version": three["version"]}).status_code == 204
    assert client.get(f"/api/lines/{three['id']}").status_code == 404
    for job in client.get("/api/jobs").json():
        client.delete(f"/api/jobs/{job['id']}")


@pytest.mark.parametrize("format", ["alto", "page", "text", "tsv", "pairs", "parquet"])
def test_confirmed_lines_are_exported_and_read_again(
    client: Any, page: dict[str, Any], format: str, tmp_path: Path
) -> None:
    from fada import read_lines

    query = f"/api/documents/{page['document']}/export?format={format}"
    assert client.get(query).status_code == 400
    for line in page["lines"][:2]:
        assert patch(client, line, state="confirmed").status_code == 200
    answer = client.get(query)
    assert answer.status_code == 200
    if format == "text":
        assert answer.text == "".join(f"{text}\n" for text in TEXTS[:2])
        return
    name = answer.headers["content-disposition"].rsplit("'")[-1]
    file = tmp_path / name
    file.write_bytes(answer.content)
    lines = list(read_lines(file))
    assert [line.text for line in lines] == list(TEXTS[:2])
    if format != "tsv":
        assert all(line.load_image().width > 100 for line in lines)


def test_pictures_of_pages_and_lines(client: Any, page: dict[str, Any]) -> None:
    whole = client.get(page["image"])
    assert whole.headers["content-type"] == "image/jpeg"
    assert client.get(page["image"], params={"width": 100}).status_code == 200
    crop = client.get(f"/api/lines/{page['lines'][0]['id']}/image")
    assert crop.headers["content-type"] == "image/jpeg"
    for answer in (whole, crop):  # a browser keeps them, and asks each time whether they are still the same
        again = client.get(answer.request.url.path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_knowledge_is_edited_and_the_document_is_read_again(client: Any, page: dict[str, Any]) -> None:
    document = page["document"]
    address = f"/api/documents/{document}"
    own = {one["character"] for one in client.get(f"{address}/knowledge").json()["targets"]}
    assert own == set("".join(TEXTS)), "without any text, the frequencies are those of the document"
    text = "the quick brown fox jumps ouer the lazy dog " * 20
    told = client.post(f"{address}/texts", json={"name": "1250", "text": text})
    assert told.status_code == 201, told.text
    known = told.json()["knowledge"]
    assert known["domains"][0] == "1250"
    assert {one["character"] for one in known["targets"]} == set(text)
    assert finished(client, told.json()["job"]["id"])["state"] == "done"
    change = {"version": known["version"], "targets": {"q": 0.0}}
    forbidden = client.put(f"{address}/knowledge", json=change, params={"page": page["id"]}).json()
    assert next(one for one in forbidden["knowledge"]["targets"] if one["character"] == "q")["frequency"] == 0
    assert finished(client, forbidden["job"]["id"])["state"] == "done"
    lines = client.get(f"/api/pages/{page['id']}").json()["lines"]
    assert "q" not in lines[0]["text"]
    assert lines[0]["plain"] == TEXTS[0]
    change = {"version": forbidden["knowledge"]["version"], "targets": {}, "domain": None}
    cleared = client.put(f"{address}/knowledge", json=change).json()
    finished(client, cleared["job"]["id"])
    assert client.get(f"/api/pages/{page['id']}").json()["lines"][0]["text"] == TEXTS[0]
    worth = client.get(f"{address}/worth").json()
    assert worth["lines"] == 3
    version = cleared["knowledge"]["version"]
    assert client.put(f"{address}/knowledge", json={"version": version, "domain": "1350"}).status_code == 400
    text_number = known["texts"][0]["id"]
    assert client.delete(f"{address}/texts/{text_number}").json()["knowledge"]["texts"] == []


def test_of_two_who_change_the_knowledge_at_once_the_later_is_told(client: Any, page: dict[str, Any]) -> None:
    address = f"/api/documents/{page['document']}/knowledge"
    version = client.get(address).json()["version"]

    def send(change: dict[str, Any]) -> Any:
        return client.put(address, json={"version": version, **change})

    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(send, [{"targets": {c: 0.0}} for c in "quick"])]
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409]
    first = next(answer.json()["knowledge"] for answer in answers if answer.status_code == 200)
    forbidden = {one["character"] for one in first["targets"] if one["edited"]}
    assert len(forbidden) == 1
    for told in [answer.json()["knowledge"] for answer in answers if answer.status_code == 409]:
        assert {one["character"] for one in told["targets"] if one["edited"]} == forbidden
        assert told["version"] == first["version"]
    desk = client.desk  # what the machine finds out loses nothing that was chosen, and is no change of the version
    desk.alter_knowledge(page["document"], lambda now: now.model_copy(update={"inferred": [["la", 1.0]]}))
    assert client.get(address).json()["version"] == first["version"]
    weighed = client.put(address, json={"version": first["version"], "weights": {"lam": 0.5}}).json()["knowledge"]
    assert {one["character"] for one in weighed["targets"] if one["edited"]} == forbidden
    assert weighed["weights"]["lam"] == 0.5
    assert desk.chosen(page["document"]).inferred == [["la", 1.0]]


def test_signs_are_those_of_the_model_with_codes(client: Any, page: dict[str, Any]) -> None:
    signs = client.get(f"/api/documents/{page['document']}/signs").json()
    by_character = {sign["character"]: sign for sign in signs}
    assert by_character["⁊"]["code"] == "et"
    assert [code_of(c) for c in "\u0363ᵈꝵ\u1dd1"] == ["^a", "^^d", "rum2", "ur"]
    assert by_character["ꝑ"]["name"] == "LATIN SMALL LETTER P WITH STROKE THROUGH DESCENDER"
    assert len({sign["code"] for sign in signs}) == len(signs)
    assert [sign["count"] for sign in signs] == sorted((sign["count"] for sign in signs), reverse=True)


def test_a_document_gets_another_name_and_direction(client: Any, page: dict[str, Any]) -> None:
    where = f"/api/documents/{page['document']}"
    changed = client.patch(where, json={"name": "Sefer", "direction": "rtl"}).json()
    assert (changed["name"], changed["direction"]) == ("Sefer", "rtl")
    assert {line["direction"] for line in client.get(f"/api/pages/{page['id']}").json()["lines"]} == {"rtl"}
    refused = client.patch(where, json={"model": "no such model"})
    assert refused.status_code == 400
    assert "no model" in refused.json()["error"]
