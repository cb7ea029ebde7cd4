"""A private Prometheus that reads one text file's metrics and one file of rules."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

from safedelete.testing.servers.machine import Account, ServerUnavailableError, find_program, free_port
from safedelete.testing.servers.process import Server

CONFIG = """
global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}
rule_files: ["{rules}"]
scrape_configs: [{{job_name: node, static_configs: [{{targets: ["{target}"]}}]}}]
"""


class Prometheus(Server):
    """Listens on loopback, keeps its data in its own folder.

    Args:
        rules: The file of rules.
        target: ``host:port`` of what it scrapes.
    """

    name = "prometheus"

    def __init__(self, rules: Path, target: str) -> None:
        super().__init__(start_timeout=60.0)
        self._rules, self._target = rules, target
        self.port = 0

    def _account(self) -> Account:
        return Account(str(os.geteuid()))

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program = find_program("prometheus")
        if program is None:
            raise ServerUnavailableError(
                "There is no `prometheus` in $PATH.", hint="Install Debian's prometheus."
            )
        self.port = free_port()
        config = self.folder / "prometheus.yml"
        config.write_text(CONFIG.format(rules=self._rules, target=self._target))
        return [
            str(program),
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ], {}

    def _answers(self) -> bool:
        with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)

    def alerts(self) -> dict[tuple[str, str], str]:
        """Return the alerts that are pending or fire, by name and job."""
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=5) as answer:
            found = json.load(answer)["data"]["alerts"]
        return {(a["labels"]["alertname"], a["labels"]["job_name"]): a["state"] for a in found}

    def wait_for(self, *alerts: tuple[str, str], seconds: float = 60) -> dict[tuple[str, str], str]:
        """Wait until these fire; returns all there are then."""
        end = time.monotonic() + seconds
        while True:
            there = self.alerts()
            if all(there.get(alert) == "firing" for alert in alerts):
                return there
            assert time.monotonic() < end, there
            time.sleep(0.2)


@contextmanager
def collector(folder: Path) -> Iterator[str]:
    """Serve a folder's text files the way node_exporter's textfile collector does; yields ``host:port``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"".join(path.read_bytes() for path in sorted(folder.glob("*.prom")))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
