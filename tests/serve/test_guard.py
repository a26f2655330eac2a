"""Who may speak to the desk: host, origin, site, token, sizes, types; and what every answer carries."""

import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fada.errors import FadaError
from fada.serve import jobs
from fada.serve.export import Format
from fada.serve.project import Limits, Project, safe_name, sniffed
from fada.serve.server import listening, serve
from tests.support.desks import finished, opened, put_document
from tests.support.disks import files_up_to
from tests.support.drawn import png
from tests.support.telephones import heic

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    limits = Limits(body=300_000, files=3, pixels=100_000, waiting=2, requests=8, streams=2)
    with opened(tmp_path_factory.mktemp("desk") / "project", limits=limits) as client:
        yield client


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with opened(tmp_path_factory.mktemp("desk") / "project", token=TOKEN) as client:
        yield client


def upload(client: Any, name: str, data: bytes) -> Any:
    return client.post("/api/documents", files=[("files", (name, data))])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8765", 200),
        ("localhost", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
    ],
)
def test_another_name_of_the_server_is_refused(client: Any, host: str, status: int) -> None:
    assert client.get("/api/health", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8765"}, 200),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_requests_of_other_sites_are_refused(client: Any, method: str, headers: dict[str, str], status: int) -> None:
    body = None if method == "GET" else {"model": "medieval"}
    assert client.request(method, "/api/settings", headers=headers, json=body).status_code == status


def test_a_link_from_elsewhere_opens_the_page(client: Any) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=headers).status_code == 200


def test_every_answer_is_locked_down_and_tells_no_traces(client: Any) -> None:
    for path in ("/", "/api/health", "/api/lines/1", "/nowhere", "/docs", "/openapi.json"):
        answer = client.get(path)
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
        assert "Traceback" not in answer.text
    assert client.get("/api/lines/1").json() == {"error": "there is no line 1.", "where": None}
    assert client.get("/api/lines/x").status_code == 422


def test_a_token_is_asked_for_and_becomes_a_cookie(locked: Any) -> None:
    assert locked.get("/api/health").status_code == 401
    assert locked.get("/").status_code == 401
    assert locked.get("/?token=wrong").status_code == 401
    assert locked.get("/api/health?token=" + TOKEN).status_code == 401, "only the page takes it from the address"
    assert locked.get("/api/health", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert locked.get("/api/health", headers={"authorization": f"Bearer {TOKEN}é".encode()}).status_code == 401
    entered = locked.get(f"/?token={TOKEN}")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert locked.get("/api/health").status_code == 200
    locked.cookies.clear()


@pytest.mark.parametrize(
    ("name", "data", "status"),
    [
        ("page.png", b"<html><script>alert(1)</script>", 415),
        ("page.png", b"MZ\x90\x00", 415),
        ("page.png", b"", 415),
        ("page.png", b"\x89PNG\r\n\x1a\n broken", 415),
        ("big.png", png(400, 300), 413),
        ("text.txt", b"a text", 415),
        ("page.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", 415),
        ("big.heic", heic(Image.new("L", (400, 300))), 413),
    ],
)
def test_what_is_not_read_is_refused_whatever_its_name(client: Any, name: str, data: bytes, status: int) -> None:
    answer = upload(client, name, data)
    assert answer.status_code == status
    assert name in answer.json()["error"]
    assert client.get("/api/documents").json() == []
    assert [*client.desk.project.temporary.iterdir()] == []


def test_too_much_at_once_is_refused(client: Any) -> None:
    assert upload(client, "page.png", bytes(400_000)).status_code == 413
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    chunks = (head if i == 0 else bytes(10_000) for i in range(50))
    assert (
        client.post(
            "/api/documents", content=chunks, headers={"content-type": "multipart/form-data; boundary=x"}
        ).status_code
        == 413
    )
    files = [("files", (f"{i}.png", png())) for i in range(4)]
    assert client.post("/api/documents", files=files).status_code == 413


def test_a_full_queue_says_when_to_come_back(client: Any) -> None:
    document = put_document(client.desk)
    queue, started = client.desk.jobs, []
    with queue._condition:  # nobody takes a job out meanwhile
        for _ in range(2):
            started.append(queue._heap.append((9, 0)))
        answer = upload(client, "page.png", png())
        queue._heap.clear()
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert client.get("/api/documents").json()[0]["id"] == document
    client.delete(f"/api/documents/{document}")


def test_a_full_disk_is_told_and_a_job_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jobs, "_AGAIN", 0.01)
    started, full = threading.Event(), threading.Event()

    def work(job: Any) -> bool:
        started.set()
        return full.wait(60)

    with opened(tmp_path / "project") as client:
        put_document(client.desk)
        line = client.get("/api/pages/1").json()["lines"][0]
        change = {"version": line["version"], "text": "typed"}
        client.desk.jobs.register("some", work)
        job = client.desk.jobs.add("some")["id"]
        assert started.wait(60)
        with files_up_to(100):
            full.set()
            for answer in (client.patch(f"/api/lines/{line['id']}", json=change), upload(client, "a.png", png())):
                assert answer.status_code == 503
                assert answer.json()["error"] == "the disk of the server is full or does not answer."
            while "a job of the desk waits for its database" not in caplog.text:
                time.sleep(0.01)
        assert finished(client, job)["state"] == "done"
        assert client.get(f"/api/lines/{line['id']}").json()["text"] == line["text"]
        assert client.patch(f"/api/lines/{line['id']}", json=change).json()["text"] == "typed"


def test_an_export_tells_a_full_disk_leaves_nothing_there_and_is_whole_again_with_room(tmp_path: Path) -> None:
    with opened(tmp_path / "project") as client:
        document = put_document(client.desk)

        def exported() -> dict[str, Any]:
            place = f"/api/documents/{document}/export"
            return {one: client.get(place, params={"format": one, "only": "all"}) for one in get_args(Format)}

        with files_up_to(100):
            full = exported()
        assert {one: answer.status_code for one, answer in full.items()} == dict.fromkeys(full, 503) | {"text": 200}
        assert full["alto"].json()["error"] == "the disk of the server is full or does not answer."
        assert not list((tmp_path / "project" / "tmp").iterdir())
        assert {answer.status_code for answer in exported().values()} == {200}


def test_an_archive_cannot_leave_its_folder(tmp_path: Path) -> None:
    from fada.serve.worker import pages

    folder = tmp_path / "in" / "document"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("../../outside.png", png())
        archive.writestr("/etc/other.png", png())
        archive.writestr("inside/page.png", png())
        archive.writestr("inside/evil.sh", b"#!/bin/sh")
    found = [a["page"]["file"] for a in pages(str(folder), 10, 10**6) if "page" in a]
    assert sorted(Path(file).name for file in found) == ["other.png", "page.png"]
    assert all(Path(file).resolve().is_relative_to(folder.resolve()) for file in found)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_an_archive_that_is_broken_or_unpacks_to_too_much_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    from fada.serve import worker

    monkeypatch.setattr(worker, "MOST_UNPACKED", 10_000)
    with zipfile.ZipFile(tmp_path / "big.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("page.png", bytes(20_000))
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and no more")
    problems = [answer["problem"] for answer in worker.pages(str(tmp_path), 10, 10**6)]
    assert [problem.partition(":")[0] for problem in problems] == ["big.zip", "broken.zip"]


@given(st.text(max_size=60), st.sampled_from([".png", ".jpg", ".xml", ".zip"]))
def test_a_safe_name_is_one_part_of_a_path(name: str, ending: str) -> None:
    safe = safe_name(name, ending)
    assert safe == Path(safe).name
    assert not set(safe) & set('/\\:*?"<>|\0\n')
    assert safe.lower().endswith((ending, ".jpeg"))
    assert not safe.startswith(".")
    assert len(safe) < 120


@given(st.binary(max_size=100))
def test_sniffing_never_fails(head: bytes) -> None:
    assert (sniffed(head) or ".").startswith(".")


def test_a_project_is_open_once_and_no_other_folder_is_taken(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(FadaError, match="thesis"):
        Project(other)
    project = Project(tmp_path / "desk")
    try:
        with pytest.raises(FadaError, match="another"):
            Project(tmp_path / "desk")
    finally:
        project.close()


def test_a_short_token_and_a_taken_port_are_told(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "medieval", "workers": 1, "say": print}
    with pytest.raises(FadaError, match="at least 16"):
        serve(tmp_path / "a", host="0.0.0.0", port=0, token="short", **settings)
    with listening("127.0.0.1", 0) as taken, pytest.raises(FadaError, match="--port"):
        listening("127.0.0.1", taken.getsockname()[1])
