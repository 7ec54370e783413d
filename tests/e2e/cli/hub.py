"""hub.py - a model hub on loopback that injects faults on request, to test `quern pull`."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """Serve files = {path: bytes} as ORG/NAME. Files above lfs_bytes are redirected to a second server (the CDN), as
    hubs do. `faults` holds functions fault(handler, hub) -> True if it has answered; each is called in turn for every
    request of a file's contents. `requests` lists the requests received: (server, method, path, headers)."""

    def __init__(self, files, lfs_bytes=1000, token=None, sized=True, ranges=True, tls=None):
        self.files, self.lfs_bytes, self.token, self.sized, self.ranges = dict(files), lfs_bytes, token, sized, ranges
        self.faults, self.requests, self.listing, self.commit = [], [], None, COMMIT
        self.digests, self.page = {}, None      # digests: wrong digests by path
        self.lock = threading.Lock()
        self.redirect = None                    # redirect to this address instead of the CDN
        self.sent = 0                           # bytes of contents sent or being sent
        self.api = self.server("hub", tls)
        self.cdn = self.server("cdn", tls)
        self.url = f"{'https' if tls else 'http'}://localhost:{self.api.server_port}"
        self.cdn_url = f"{'https' if tls else 'http'}://127.0.0.1:{self.cdn.server_port}"

    def server(self, role, tls):
        hub = self

        class Handler(Answers):
            pass
        Handler.hub, Handler.role = hub, role
        s = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        s.daemon_threads = True
        if tls:
            s.socket = tls.wrap_socket(s.socket, server_side=True)
        threading.Thread(target=s.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return s

    def close(self):
        for s in (self.api, self.cdn):
            s.shutdown()
            s.server_close()

    def of_files(self):
        """Return the requests of file contents."""
        return [r for r in self.requests if "/resolve/" in r[2] or "/cdn/" in r[2] or "/files/" in r[2]]


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for k, v in headers.items():
            self.send_header(k.replace("_", "-"), str(v))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:
            self.wfile.write(body)
        return True

    def do_GET(self):
        hub, at = self.hub, urlsplit(self.path)
        with hub.lock:
            hub.requests.append((self.role, self.command, self.path, dict(self.headers)))
        try:
            parts = [unquote(p) for p in at.path.split("/")[1:]]
            if self.role == "hub" and hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self.reply(401, b'{"error":"Invalid username or password."}')
            if parts[0] == "api":
                return self.api(parts, parse_qs(at.query))
            return self.contents(parts)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # --- lists ---

    def entry(self, path, data):
        lfs, hub = len(data) > self.hub.lfs_bytes, self.hub
        sha256, sha1 = hub.digests.get(path, (hashlib.sha256(data).hexdigest(), git_sha1(data)))
        return lfs, sha256, sha1

    def api(self, parts, query):
        hub = self.hub
        if hub.listing is not None:
            return self.reply(200, hub.listing if isinstance(hub.listing, bytes) else json.dumps(hub.listing).encode())
        if parts[:4] != ["api", "models", "org", "name"]:
            return self.reply(401, b'{"error":"Repository not found"}', X_Error_Message="Repository not found")
        if parts[4] == "revision":
            if parts[5] not in ("main", "v1/x", hub.commit):
                return self.reply(404, b"{}", X_Error_Message="Invalid rev id: " + parts[5])
            siblings = []
            for path, data in hub.files.items():
                lfs, sha256, sha1 = self.entry(path, data)
                s = {"rfilename": path}
                if hub.sized:
                    s |= {"size": len(data), "blobId": sha1}
                    if lfs:
                        s["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 135}
                siblings.append(s)
            return self.reply(200, json.dumps({"id": "org/name", "sha": hub.commit, "siblings": siblings}).encode())
        assert parts[4] == "tree" and parts[5] == hub.commit and query["recursive"] == ["true"]
        tree = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "onnx"}]
        for path, data in hub.files.items():
            lfs, sha256, sha1 = self.entry(path, data)
            e = {"type": "file", "oid": sha1, "size": len(data), "path": path}
            if lfs:
                e["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": 135}
            tree.append(e)
        at = int(query.get("cursor", ["0"])[0])
        more = {}
        if hub.page and at + hub.page < len(tree):
            more["Link"] = f'<{hub.url}/api/models/org/name/tree/{hub.commit}?recursive=true&cursor={at + hub.page}>; rel="next"'
        return self.reply(200, json.dumps(tree[at:at + hub.page] if hub.page else tree).encode(), **more)

    # --- contents ---

    def contents(self, parts):
        hub = self.hub
        if parts[0] == "files":                 # a plain web server
            path = "/".join(parts[1:])
        elif self.role == "hub":
            assert parts[:3] == ["org", "name", "resolve"] and parts[3] == hub.commit
            path = "/".join(parts[4:])
        else:
            path = "/".join(parts[1:])
        data = hub.files.get(path)
        if data is None:
            return self.reply(404, b"<html>nothing</html>")
        if self.role == "hub" and parts[0] != "files" and len(data) > hub.lfs_bytes:
            return self.reply(302, Location=f"{hub.redirect or hub.cdn_url}/cdn/{'/'.join(parts[4:])}?X-Amz-Signature=secret",
                              X_Linked_Etag=f'"{self.entry(path, data)[1]}"', X_Linked_Size=len(data))
        for fault in list(hub.faults):
            if fault(self, hub):
                return True
        return self.send(data)

    def wanted(self, data):
        """Return the requested range as (from, to); None: the whole file."""
        ask = self.headers.get("Range")
        if not ask or not self.hub.ranges:
            return None
        a, b = ask.removeprefix("bytes=").split("-")
        return int(a), min(int(b), len(data) - 1)

    def send(self, data, cut=None, shift=0, pace=None):
        """Send the contents, or the requested range. cut: send only this many bytes, then close the connection. shift:
        send a range that starts this many bytes later."""
        rng = self.wanted(data)
        if rng and shift:
            rng = (rng[0] + shift, min(rng[1] + shift, len(data) - 1))
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        if rng and rng[0] >= len(data):
            return self.reply(416, Content_Range=f"bytes */{len(data)}")
        body = data[rng[0]:rng[1] + 1] if rng else data
        headers = {"ETag": etag, "Content_Length": len(body)}
        if rng:
            headers["Content_Range"] = f"bytes {rng[0]}-{rng[1]}/{len(data)}"
        self.reply(206 if rng else 200, **headers)
        for i in range(0, len(body), 65536):
            piece = body[i:i + 65536]
            if cut is not None and i + len(piece) > cut:
                self.wfile.write(piece[:cut - i])
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
                return True
            with self.hub.lock:         # before the write: a client that has its last byte may read the count at once
                self.hub.sent += len(piece)
            self.wfile.write(piece)
            if pace:
                pace()
        return True
