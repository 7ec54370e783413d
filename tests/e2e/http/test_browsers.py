"""HTTP for browsers (CORS) and over TLS."""

import os
import re
import signal
import socket
import ssl
import subprocess
import urllib.request
from urllib.parse import urlsplit

import openai
import pytest

from service import DEMO, eventually, marked
from test_http import ask

PAGE = "https://chat.example.org"


@pytest.fixture(scope="module")
def shared_with_pages(tmp_path_factory):
    from service import Service
    keys = tmp_path_factory.mktemp("cors") / "keys"
    keys.write_text("sk-page-0123456789abcdef name=page\n")
    s = Service(DEMO, "--cors-origin", PAGE, "--api-key-file", keys)
    yield s
    s.stop()
    Service.used.remove(s)


def preflight(service, origin, headers="authorization,content-type,x-stainless-os"):
    return ask(service, "/v1/chat/completions", method="OPTIONS",
               headers={"Origin": origin, "Access-Control-Request-Method": "POST",
                        "Access-Control-Request-Headers": headers})


def test_a_preflight_needs_no_key(shared_with_pages):
    status, headers, _ = preflight(shared_with_pages, PAGE)
    assert status == 204 and headers["Access-Control-Allow-Origin"] == PAGE and headers["Vary"] == "Origin"
    assert "POST" in headers["Access-Control-Allow-Methods"]
    assert "x-stainless-os" in headers["Access-Control-Allow-Headers"]


def test_other_origins_are_not_allowed(shared_with_pages):
    status, headers, reply = preflight(shared_with_pages, "https://evil.example")
    assert status == 403 and headers["Access-Control-Allow-Origin"] is None
    assert "--cors-origin https://evil.example allows it" in reply["error"]["message"]


def test_replies_to_an_allowed_page_have_the_cors_headers(shared_with_pages):
    key = {"Authorization": "Bearer sk-page-0123456789abcdef"}
    for path, body in (("/v1/models", None), ("/v1/completions", {"prompt": "a", "max_tokens": 1}),
                       ("/v1/completions", {"prompt": "a", "max_tokens": 1, "stream": True})):
        status, headers, _ = ask(shared_with_pages, path, body, headers={**key, "Origin": PAGE})
        assert status == 200 and headers["Access-Control-Allow-Origin"] == PAGE
        assert ask(shared_with_pages, path, body, headers=key)[1]["Access-Control-Allow-Origin"] is None
    assert ask(shared_with_pages, "/v1/models", headers={"Origin": PAGE})[1]["Access-Control-Allow-Origin"] == PAGE


def test_without_the_option_no_origin_is_allowed(service):
    status, headers, reply = preflight(service, PAGE)
    assert status == 403 and headers["Access-Control-Allow-Origin"] is None
    assert f"--cors-origin {PAGE} allows it" in reply["error"]["message"]
    assert ask(service, "/v1/chat/completions", method="OPTIONS")[0] == 405, "no browser's"


def test_an_invalid_origin_is_named(start):
    with pytest.raises(AssertionError, match="--cors-origin"):
        start(DEMO, "--cors-origin", "chat.example.org")


# --- writes that pages may do ---

def form(service, origin, **headers):
    """Requests that a page can send without a preflight."""
    body = (b'--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\na\r\n--xyz--\r\n')
    origin = {"Origin": origin} if origin else {}
    return ask(service, "/v1/files", body, headers={"Content-Type": "multipart/form-data; boundary=xyz", **origin, **headers})


@pytest.fixture(scope="module")
def keeps_files(tmp_path_factory):
    from service import Service
    s = Service(DEMO, "--journal", tmp_path_factory.mktemp("pages") / "journal", "--cors-origin", PAGE)
    yield s
    s.stop()
    Service.used.remove(s)


def n_files(service):
    return len(ask(service, "/v1/files")[2]["data"])


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null", "http://",
                                    "https://chat.example.org.evil.example", "https://" + "a" * 400 + ".example"])
def test_a_page_of_another_origin_writes_nothing(keeps_files, origin):
    before = n_files(keeps_files)
    status, headers, reply = form(keeps_files, origin)
    assert status == 403 and "--cors-origin" in reply["error"]["message"], reply
    assert reply["error"]["code"] == "origin_not_allowed" and headers["Access-Control-Allow-Origin"] is None
    assert n_files(keeps_files) == before
    status, _, reply = ask(keeps_files, "/v1/files/file-0", method="DELETE", headers={"Origin": origin})
    assert status == 403
    status, _, reply = ask(keeps_files, "/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"Origin": origin})
    assert status == 403
    assert ask(keeps_files, "/v1/models", headers={"Origin": origin})[0] == 200, "reading is not writing"


def test_pages_of_the_service_and_of_named_origins_write(keeps_files):
    own = keeps_files.http
    assert form(keeps_files, own)[0] == 200
    assert form(keeps_files, PAGE)[0] == 200
    assert form(keeps_files, None)[0] == 200, "no browser"
    assert form(keeps_files, "https://quern.example.org", Host="quern.example.org")[0] == 200, "behind a proxy"
    # Behind a proxy that changes Host, Sec-Fetch-Site shows the same origin. No page can set that header.
    assert form(keeps_files, "https://quern.example.org", **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    for site in ("cross-site", "same-site", "none"):
        assert form(keeps_files, "https://quern.example.org", **{"Sec-Fetch-Site": site})[0] == 403


def test_the_official_client_sends_no_origin(keeps_files):
    with openai.OpenAI(base_url=keeps_files.http + "/v1", api_key="none", max_retries=0) as c:
        assert c.files.create(file=("a", b"a"), purpose="batch").bytes == 1
        assert c.completions.create(model="demo", prompt="Once", max_tokens=1).choices


# --- TLS ---

def make_certificate(d, days=2):
    """Make (certificate, key) for 127.0.0.1."""
    try:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", str(days), "-subj", "/CN=quern-test", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", d / "key.pem", "-out", d / "cert.pem"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not there")
    return d / "cert.pem", d / "key.pem"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure(certificate):
    from service import Service
    s = Service(DEMO, "--tls-cert", certificate[0], "--tls-key", certificate[1])
    assert s.ready["https"] is True
    s.http = s.http.replace("http://", "https://")
    yield s
    s.stop()
    Service.used.remove(s)


def test_the_official_client_over_tls(secure, certificate):
    http = openai.DefaultHttpxClient(verify=ssl.create_default_context(cafile=certificate[0]))
    with openai.OpenAI(base_url=secure.http + "/v1", api_key="none", max_retries=0, http_client=http) as c:
        whole = c.completions.create(model="demo", prompt="Once", max_tokens=40, temperature=0)
        parts = c.completions.create(model="demo", prompt="Once", max_tokens=40, temperature=0, stream=True)
        assert "".join(p.choices[0].text for p in parts) == whole.choices[0].text


def test_a_client_without_tls_is_not_answered(secure):
    with pytest.raises(OSError):
        urllib.request.urlopen(secure.http.replace("https", "http") + "/health", timeout=20)
    with pytest.raises(ssl.SSLError):
        try:
            urllib.request.urlopen(secure.http + "/health", timeout=20)
        except urllib.error.URLError as e:
            raise e.reason


@pytest.mark.parametrize("fields,status", [(b"", b"200"), (b"Host: y\r\n", b"400"), (b"X: a\0b\r\n", b"400"), (b"X: 1\n", b"400"),
                                           (b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", b"400")])
def test_what_precedes_a_request_is_checked_over_tls(secure, certificate, fields, status):
    context = ssl.create_default_context(cafile=certificate[0])
    second = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    at = urlsplit(secure.http)
    with socket.create_connection((at.hostname, at.port), 60) as plain:
        with context.wrap_socket(plain, server_hostname=at.hostname, suppress_ragged_eofs=True) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n" + second)
            got = b""
            while part := s.recv(65536):
                got += part
    assert got.startswith(b"HTTP/1.1 " + status), got
    assert (b'"version"' in got) == (status == b"200"), got


def test_closing_a_stream_cancels_the_job_over_tls(secure, certificate):
    context = ssl.create_default_context(cafile=certificate[0])
    body = b'{"prompt": "Once", "max_tokens": 1500, "ignore_eos": true, "n": 8, "stream": true}'
    request = urllib.request.Request(secure.http + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=context, timeout=60) as r:
        r.read(200)
    secure.idle()


def test_certificates_are_read_again_on_sighup(start, tmp_path):
    """New connections use the new certificate; an open connection continues, and an invalid certificate changes
    nothing."""
    for name in ("used", "new", "other"):
        (tmp_path / name).mkdir()
    used, new, other = (make_certificate(tmp_path / name) for name in ("used", "new", "other"))
    first = used[0].read_text()
    s = start(DEMO, "--tls-cert", used[0], "--tls-key", used[1])
    at = urlsplit(s.http).hostname, urlsplit(s.http).port
    (controller,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]

    def served():
        return ssl.get_server_certificate(at, timeout=60)

    def reload(cert, key, words):
        """Replace the files one after the other, then send the signal."""
        before = s.log().count(words)
        for source, target in ((cert, used[0]), (key, used[1])):
            target.write_text(source if isinstance(source, str) else source.read_text())
        os.kill(controller, signal.SIGHUP)
        eventually(lambda: s.log().count(words) > before, what=words)

    def goes_on(connection):
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        got = b""
        while not got.endswith(b"}"):
            part = connection.recv(65536)
            if not part:
                return False
            got += part
        return got.startswith(b"HTTP/1.1 200 ")

    assert served() == first
    context = ssl.create_default_context(cafile=used[0])
    with socket.create_connection(at, 60) as plain, context.wrap_socket(plain, server_hostname=at[0]) as open_one:
        reload(*new, "certificate read again changed=yes until=20")
        assert served() == new[0].read_text() != first
        assert goes_on(open_one)
        kept = 'previous certificate kept reason="--tls-'
        for cert, key, why in ((other[0], new[1], "do not match|mismatch|not match"), ("nonsense", new[1], "cert: "), (new[0], "nonsense", "key: ")):
            reload(cert, key, kept)
            assert re.search(why, s.log().rpartition(kept)[2]), s.log()
            assert served() == new[0].read_text()
        used[1].unlink()
        os.kill(controller, signal.SIGHUP)
        eventually(lambda: f"{kept}key: {used[1]}: " in s.log(), what="the missing key's name")
        assert served() == new[0].read_text()
        reload(*new, "certificate read again changed=no")
        before = s.log().count("certificate read again changed=no")
        s.process.send_signal(signal.SIGHUP)    # `quern serve` has no terminal, and passes the signal on
        eventually(lambda: s.log().count("certificate read again changed=no") > before, what="the certificate, read again")
        reload(*other, "certificate read again changed=yes")
        assert served() == other[0].read_text()
        assert goes_on(open_one)


def test_sighup_without_tls_is_harmless(start):
    s = start(DEMO)
    (controller,) = [pid for pid, name in marked(s.mark).items() if name.startswith("quern-contr")]
    os.kill(controller, signal.SIGHUP)
    assert ask(s, "/health")[0] == 200 and controller in marked(s.mark)


def test_invalid_certificates_are_named(start, certificate, tmp_path):
    cert, key = certificate
    (tmp_path / "no").write_text("no PEM")
    for options, words in (((cert, tmp_path / "no"), "--tls-key"), ((tmp_path / "no", key), "--tls-cert"),
                           (("/no-such-file", key), "no-such-file")):
        with pytest.raises(AssertionError, match=words):
            start(DEMO, "--tls-cert", options[0], "--tls-key", options[1])
    with pytest.raises(AssertionError, match="belong together"):
        start(DEMO, "--tls-cert", cert)
