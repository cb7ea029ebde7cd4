"""On ECS a run says what it ran as, and does not run as another revision than was expected."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from safedelete.deploy.aws.revision import revision_of
from safedelete.loader import load
from tests.e2e.world import Ended, run_here

JOBS = """
from datetime import timedelta
from safedelete import job

@job("reminders", schedule="*/15 * * * *", timeout=timedelta(minutes=5))
def reminders(run):
    open(MARK, "w").close()
    run.processed(3)
"""

OLD = """
@job("old-reminders", schedule="rate(1 hour)", timeout=timedelta(minutes=5))
def old(run):
    pass
"""

DIGEST = "sha256:" + "0" * 64


class Endpoint:
    """ECS' metadata endpoint, as far as it is asked."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {
            "/v4/c": {"Name": "safedelete", "Image": "acme/app:7", "ImageID": DIGEST},
            "/v4/c/task": {"Family": "safedelete-reminders", "Revision": "7"},
        }
        answers = self.answers

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = answers.get(self.path)
                body = json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/v4/c"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


class Site:
    def __init__(self, folder: Path, url: str, endpoint: Endpoint) -> None:
        self.path, self.mark = folder / "jobs.py", folder / "ran"
        self.path.write_text(JOBS.replace("MARK", repr(str(self.mark))))
        self.definition = revision_of(load(self.path).one(None))
        self.env = {
            "SAFEDELETE_DATABASE_URL": url,
            "SAFEDELETE_ENVIRONMENT": "test",
            "SAFEDELETE_REVISION": self.definition,
            "ECS_CONTAINER_METADATA_URI_V4": endpoint.address,
        }
        assert self.cli("init", str(self.path)).code == 0

    def cli(self, *arguments: str) -> Ended:
        return run_here(arguments, self.env)

    def untouched(self) -> None:
        assert not self.mark.exists()
        assert self.cli("history", str(self.path), "--json").document == []

    def shown(self) -> Ended:
        [record] = self.cli("history", str(self.path), "--json").document
        return self.cli("show", record["run"], "--file", str(self.path))


@pytest.fixture
def site(tmp_path: Path, sqlite_url: str, endpoint: Endpoint) -> Site:
    return Site(tmp_path, sqlite_url, endpoint)


def test_a_run_records_family_revision_image_and_what_it_was_rendered_from(site: Site) -> None:
    assert site.cli("run", str(site.path), "--expect-revision", "7").code == 0
    expected = f"safedelete-reminders:7 acme/app:7 {DIGEST} (definition {site.definition})"
    assert f"as {expected}" in site.shown().out
    [record] = site.cli("history", str(site.path), "--json").document
    assert record["task"] == expected


def test_another_revision_than_expected_does_nothing_at_all(site: Site) -> None:
    ended = site.cli("run", str(site.path), "--expect-revision", "8")
    assert ended.code == 2
    assert (
        f"This is revision 7 of safedelete-reminders (acme/app:7 {DIGEST}); revision 8 of "
        "safedelete-reminders was expected."
    ) in ended.said
    assert "Nothing was deleted." in ended.said
    site.untouched()


@pytest.mark.parametrize("expected", ["safedelete-reminders:7", "7"])
def test_the_expected_revision_runs(site: Site, expected: str) -> None:
    assert site.cli("run", str(site.path), "--expect-revision", expected).code == 0
    assert site.mark.exists()


@pytest.mark.parametrize(
    ("family", "expected", "said"),
    [
        # Every family has a revision 7.
        ("safedelete-scratch", "safedelete-reminders:7", "revision 7 of safedelete-reminders was expected"),
        ("safedelete-scratch", "7", "a number alone says nothing"),
        # The longest name that a family ends with is its job's.
        ("safedelete-old-reminders", "7", "its family is not known to be that of reminders"),
        ("safedelete-reminders", "latest", "must be FAMILY:N"),
        ("safedelete-reminders", "0", "must be FAMILY:N"),
        ("safedelete-reminders", "safedelete-reminders", "must be FAMILY:N"),
    ],
)
def test_the_same_number_of_another_family_does_nothing_at_all(
    site: Site, endpoint: Endpoint, family: str, expected: str, said: str
) -> None:
    site.path.write_text(site.path.read_text() + OLD)
    endpoint.answers["/v4/c/task"] = {"Family": family, "Revision": "7"}
    ended = site.cli("run", str(site.path), "reminders", "--expect-revision", expected)
    assert ended.code == 2
    assert said in ended.said
    site.untouched()


@pytest.mark.parametrize("answer", [None, {}, [], {"Family": "f", "Revision": "latest"}])
def test_a_revision_that_cannot_be_learned_is_not_the_expected_one(
    site: Site, endpoint: Endpoint, answer: object
) -> None:
    endpoint.answers["/v4/c/task"] = answer
    ended = site.cli("run", str(site.path), "--expect-revision", "7")
    assert ended.code == 2
    assert "does not say which revision this is" in ended.said
    assert not site.mark.exists()
    # A run that expects nothing goes on, and says so.
    assert site.cli("run", str(site.path)).code == 0
    [record] = site.cli("history", str(site.path), "--json").document
    assert record["task"] is None


def test_elsewhere_there_is_no_revision_to_expect(site: Site) -> None:
    del site.env["ECS_CONTAINER_METADATA_URI_V4"]
    ended = site.cli("run", str(site.path), "--expect-revision", "7")
    assert ended.code == 2
    assert "does not run on ECS" in ended.said
    assert site.cli("run", str(site.path)).code == 0
    assert "\nas " not in site.shown().out


def test_the_revision_that_is_expected_does_nothing_with_an_old_job_file_in_its_image(site: Site) -> None:
    site.path.write_text(site.path.read_text().replace("minutes=5", "minutes=6"))
    ended = site.cli("run", str(site.path), "--expect-revision", "7")
    assert ended.code == 2
    assert f"this task was rendered from the definition {site.definition}" in ended.said
    assert "Nothing was deleted." in ended.said
    site.untouched()


def test_an_old_job_file_in_the_image_is_logged_with_each_run(site: Site) -> None:
    def warned(ended: Ended) -> list[str]:
        return [
            line["rendered"] for line in ended.log if "not what this task was rendered from" in line["event"]
        ]

    assert warned(site.cli("run", str(site.path))) == []
    site.path.write_text(site.path.read_text().replace("minutes=5", "minutes=6"))
    ended = site.cli("run", str(site.path))
    assert (ended.code, warned(ended)) == (0, [site.definition])
