"""The page of a run under way: who may see it, who may not, and that it hurts nobody."""

import http.client
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from tacit.errors import InvalidValue, TacitError
from tacit.reports import live
from tacit.reports.live import AT_ONCE, HEADERS, LONGEST, serve_page
from tacit.reports.page.blocks import Page

REFUSED = [
    ({"Host": "evil.example"}, 421),
    ({"Host": "127.0.0.1"}, 421),
    ({"Host": "127.0.0.1:1"}, 421),
    ({"Host": "127.0.0.1.evil.example:{port}"}, 421),
    ({"Host": "[::1]:{port}"}, 421),
    ({"Host": ""}, 421),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403),
    # One's own port, but not the name that was asked for.
    ({"Origin": "http://localhost:{port}"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    # Another server on this machine is of the same site, whatever its port.
    ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Sec-Fetch-Site": "whatever"}, 403),
]


# A bound for what hangs: a slow machine needs seconds.
SOON = 120.0


def state(number=0):
    return Page(title=f"round {number}", lead="")


def plain(page, refresh):
    return f"<title>{page.title}</title><!-- {refresh} -->"


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    # Who has asked does not come back, unless a test says so.
    monkeypatch.setattr(live, "LINGER", 0.01)
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) == before


@pytest.fixture
def page():
    with serve_page(state, render=plain) as shown:
        yield urlsplit(shown.url)


def ask(url, path=None, *, method="GET", **headers):
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=SOON)
    given = {name.replace("_", "-"): value.format(port=url.port) for name, value in headers.items()}
    try:
        connection.putrequest(method, url.path if path is None else path, skip_host="Host" in given)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def raw(url, content):
    with socket.create_connection((url.hostname, url.port), timeout=SOON) as peer:
        peer.sendall(content)
        found = b""
        try:
            while part := peer.recv(65536):
                found += part
        except ConnectionResetError:
            pass
    return found


def test_who_knows_the_address_sees_the_page(page):
    status, headers, body = ask(page)
    assert (status, body) == (200, "<title>round 0</title><!-- 2.0 -->")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers.items() >= HEADERS.items()
    assert headers["Server"] == "tacit"
    assert not any(name.lower().startswith("access-control") for name in headers)
    assert page.hostname == "127.0.0.1"
    assert re.fullmatch(r"/[\w-]{32}/", page.path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Host": "localhost:{port}"},
        {"Host": "LOCALHOST:{port}"},
        {"Host": "localhost:{port}", "Origin": "http://localhost:{port}"},
        {"Origin": "http://127.0.0.1:{port}"},
    ],
)
def test_what_one_opens_oneself_is_answered(page, headers):
    assert ask(page, **headers)[0] == 200


@pytest.mark.parametrize(("headers", "wanted"), REFUSED)
def test_what_another_origin_asks_for_is_refused(page, headers, wanted):
    status, told, body = ask(page, **headers)
    assert status == wanted
    assert "round" not in body
    assert told.items() >= HEADERS.items()
    assert not any(name.lower().startswith("access-control") for name in told)


@pytest.mark.parametrize("path", ["/", "/favicon.ico", "/../", "/%2e%2e/", "", "/x" * 99, "*"])
def test_any_other_path_says_nothing(page, path):
    status, _, body = ask(page, path)
    assert (status, body) == (404, "There is nothing here.\n")


def test_a_part_of_the_address_is_not_enough(page):
    for path in (
        page.path[:-1],
        page.path[:-2] + "/",
        f"{page.path}x",
        f"{page.path}?x=1",
        page.path.upper(),
    ):
        assert ask(page, path)[0] == 404


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "X" * 50]
)
def test_a_page_can_be_looked_at_and_nothing_else(page, method):
    status, headers, _ = ask(page, method=method, Access_Control_Request_Method="GET")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert not any(name.lower().startswith("access-control-allow") for name in headers)


def test_heads_have_no_body(page):
    whole = ask(page)
    status, headers, body = ask(page, method="HEAD")
    assert (status, body) == (200, "")
    assert headers["Content-Length"] == whole[1]["Content-Length"]
    assert headers["ETag"] == whole[1]["ETag"]


def test_what_is_known_is_not_sent_again(page):
    tag = ask(page)[1]["ETag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        status, headers, body = ask(page, If_None_Match=known)
        assert (status, body, headers["ETag"]) == (304, "", tag)
        assert headers.items() >= HEADERS.items()
    assert ask(page, If_None_Match='"other"')[0] == 200


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"\r\n\r\n", b""),
        (b"GARBAGE\r\n\r\n", b"HTTP/1.0 400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"HTTP/1.0 505"),
        (b"GET /\r\n\r\n", b"HTTP/1.0 421"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"HTTP/1.0 421"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"HTTP/1.0 431"),
        (b"GET /" + b"a" * LONGEST + b" HTTP/1.1\r\n\r\n", b"HTTP/1.0 431"),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * LONGEST + b"\r\n\r\n", b"HTTP/1.0 431"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"HTTP/1.0 400"),
        (b"GET /\xff\xfe\x00 HTTP/1.1\r\nHost: \xff\r\n\r\n", b"HTTP/1.0 421"),
    ],
)
def test_what_is_no_request_is_refused_and_not_repeated(page, content, wanted):
    found = raw(page, content)
    assert found.startswith(wanted)
    assert b"GARBAGE" not in found
    assert b"aaaa" not in found
    assert ask(page)[0] == 200


def test_the_page_is_made_once_for_all_who_ask_within_a_while():
    made, at_once = [], []

    def slow():
        at_once.append(1)
        made.append(len(at_once))
        time.sleep(0.02)
        at_once.pop()
        return state(len(made))

    with serve_page(slow, refresh=SOON, render=plain) as shown, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(urlsplit(shown.url))[2], range(12)))
    assert set(found) == {"<title>round 1</title><!-- 120.0 -->"}
    assert made == [1]


def test_a_page_grows_old():
    rounds = iter(range(100))
    with serve_page(lambda: state(next(rounds)), refresh=0.01, render=plain) as shown:
        first, found = ask(urlsplit(shown.url))[2], ""
        for _ in range(100):
            found = ask(urlsplit(shown.url))[2]
            if found != first:
                break
        assert found != first
        ask(urlsplit(shown.url))


def test_a_page_that_cannot_be_made_hurts_nobody(capfd):
    def broken():
        raise ValueError("<b>not today</b>")

    with serve_page(broken, render=plain) as shown:
        status, headers, body = ask(urlsplit(shown.url))
        assert status == 500
        assert headers["Content-Type"] == "text/plain; charset=utf-8"
        assert "ETag" not in headers
        assert "ValueError: <b>not today</b>" in body
        assert "The run goes on." in body
    assert capfd.readouterr() == ("", "")


def test_nothing_is_said_on_stderr(page, capfd):
    raw(page, b"GARBAGE\r\n\r\n")
    with socket.create_connection((page.hostname, page.port)) as peer:
        peer.sendall(b"GET / HT")
    ask(page)
    assert capfd.readouterr() == ("", "")


def test_slow_clients_are_left_behind(monkeypatch):
    monkeypatch.setattr(live, "PATIENCE", 0.05)
    with serve_page(state, render=plain) as shown:
        url = urlsplit(shown.url)
        with socket.create_connection((url.hostname, url.port), timeout=SOON) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n")
            assert peer.recv(100) == b""


def test_idle_connections_keep_nobody_out_for_long(monkeypatch):
    monkeypatch.setattr(live, "PATIENCE", 0.2)
    with serve_page(state, render=plain) as shown:
        url = urlsplit(shown.url)
        idle = [socket.create_connection((url.hostname, url.port), timeout=SOON) for _ in range(2 * AT_ONCE)]
        try:
            assert [peer.recv(1) for peer in idle] == [b""] * len(idle)
            assert threading.active_count() <= AT_ONCE + 3
            monkeypatch.setattr(live, "PATIENCE", SOON)
            assert ask(url)[0] == 200
        finally:
            for peer in idle:
                peer.close()


def test_whoever_watches_is_given_the_last_state(monkeypatch):
    monkeypatch.setattr(live, "LINGER", SOON)
    number, answers = [1], []

    def watch(url):
        while not answers or "None" not in answers[-1]:
            answers.append(ask(url)[2])

    with serve_page(lambda: state(number[0]), refresh=SOON, render=plain) as shown:
        url = urlsplit(shown.url)
        assert ask(url)[2] == "<title>round 1</title><!-- 120.0 -->"
        number[0] = 40
        watcher = threading.Thread(target=watch, args=(url,))
        watcher.start()
        began = time.monotonic()
    assert time.monotonic() - began < live.LINGER
    watcher.join()
    # It does not ask for another one: nobody would answer.
    assert answers[-1] == "<title>round 40</title><!-- None -->"


def test_nobody_is_waited_for_who_does_not_watch(monkeypatch):
    monkeypatch.setattr(live, "LINGER", SOON)
    began = time.monotonic()
    with serve_page(state, render=plain):
        pass
    assert time.monotonic() - began < live.LINGER


def test_somebody_who_does_not_come_back_is_waited_for_a_little_while(monkeypatch):
    monkeypatch.setattr(live, "LINGER", 0.05)
    with serve_page(state, refresh=SOON, render=plain) as shown:
        ask(urlsplit(shown.url))
        began = time.monotonic()
    assert 0.05 <= time.monotonic() - began < SOON


def test_an_interrupted_run_ends_at_once_and_the_port_is_free_again(monkeypatch):
    monkeypatch.setattr(live, "LINGER", SOON)

    def interrupted():
        with serve_page(state, render=plain) as shown:
            ask(urlsplit(shown.url))
            ports.append(urlsplit(shown.url).port)
            raise KeyboardInterrupt

    ports, began = [], time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < live.LINGER
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))
    with serve_page(state, port=ports[0], render=plain) as shown:
        assert urlsplit(shown.url).port == ports[0]


def test_an_open_connection_does_not_keep_the_port_open(monkeypatch):
    monkeypatch.setattr(live, "PATIENCE", SOON)
    began = time.monotonic()
    with serve_page(state, render=plain) as shown:
        url = urlsplit(shown.url)
        peer = socket.create_connection((url.hostname, url.port), timeout=SOON)
        peer.sendall(b"GET / HT")
        ask(url, "/")
    assert time.monotonic() - began < live.PATIENCE
    assert peer.recv(1) == b""
    peer.close()


def test_only_this_machine_is_served(page):
    others = {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for other in others - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError):  # noqa: PT011
            socket.create_connection((other, page.port), timeout=1)


def test_every_address_is_another():
    with serve_page(state, render=plain) as first, serve_page(state, render=plain) as second:
        assert urlsplit(first.url).path != urlsplit(second.url).path
        assert ask(urlsplit(second.url), urlsplit(first.url).path)[0] == 404


def test_a_port_that_is_taken_is_refused(page):
    with pytest.raises(InvalidValue, match=f"port = {page.port} is not allowed: another program uses it"):
        serve_page(state, port=page.port).__enter__()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"port": -1}, "port"),
        ({"port": 65536}, "port"),
        ({"refresh": 0}, "refresh"),
        ({"refresh": -1.0}, "refresh"),
    ],
)
def test_what_cannot_be_served_is_refused(given, told):
    with pytest.raises(TacitError, match=told):
        serve_page(state, **given).__enter__()


def test_a_port_of_the_administrator_is_refused(monkeypatch):
    def forbidden(self, address):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(live._Server, "server_bind", lambda self: forbidden(self, None))
    with pytest.raises(
        InvalidValue, match="port = 80 is not allowed: only the administrator of this machine may use it"
    ):
        serve_page(state, port=80).__enter__()
