"""A hub on this machine: the few requests that huggingface_hub makes to list and download a repository, over real HTTP.

It serves the files of one folder under any name of a repository, counts requests, and can answer with errors.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """What the server serves and what it saw.

    Attributes: url; requests (method and path of each); refuse (HTTP status and X-Error-Code for everything, or None);
    cut (a file whose body breaks off in the middle, once, or None).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        self.refuse: tuple[int, str] | None = None
        self.cut: str | None = None
        self.url = ""

    def tree(self) -> list[dict[str, Any]]:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return [
            {
                "type": "file",
                "path": path.relative_to(self.folder).as_posix(),
                "size": path.stat().st_size,
                "oid": self.tag(path),
            }
            for path in files
        ]

    def tag(self, path: Path) -> str:
        return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()


@contextmanager
def serve(folder: Path) -> Iterator[FakeHub]:
    hub = FakeHub(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            hub.requests.append(f"{self.command} {self.path}")

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            if hub.refuse is not None:
                status, code = hub.refuse
                self.reply(status, b"{}", body, {"X-Error-Code": code})
            elif "/tree/" in path:
                self.reply(200, json.dumps(hub.tree()).encode(), body, {"Content-Type": "application/json"})
            elif "/revision/" in path:
                name = path.removeprefix("/api/models/").partition("/revision/")[0]
                self.reply(200, json.dumps({"id": name, "sha": COMMIT, "siblings": []}).encode(), body, {})
            else:
                self.file(hub.folder / path.partition("/resolve/")[2].partition("/")[2], body)

        def file(self, path: Path, body: bool) -> None:
            if not path.is_file():
                self.reply(404, b"", body, {"X-Error-Code": "EntryNotFound"})
                return
            data = path.read_bytes()
            headers = {"ETag": f'"{hub.tag(path)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            wanted = self.headers.get("Range")
            status = 200
            if wanted:
                start = int(wanted.removeprefix("bytes=").partition("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                data, status = data[start:], 206
            self.reply(status, data, body, headers, cut=body and path.name == hub.cut)

        def reply(self, status: int, data: bytes, body: bool, headers: dict[str, str], cut: bool = False) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if cut:
                hub.cut = None
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
            elif body:
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
