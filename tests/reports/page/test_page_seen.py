"""A report as a browser shows it: nothing is asked of the network, nothing sticks out, tables sort."""

import http.server
import threading

import pytest
from playwright.sync_api import expect

from browsing import WIDE, opened, require_readable, size
from tacit.reports.page import write
from tacit.reports.page.blocks import Code, Facts, Figure, Folded, Grid, Items, Page, Section, Text
from tacit.reports.page.html import fragment, html
from tacit.reports.plots.style import INK, picture, tidy

LONG, ODD = "x" * 10_000, "<script>document.title='caught'</script>\u202e\x00\N{GRINNING FACE}"


def drawing():
    figure = picture(1.5, "It rises", "public")
    axes = figure.add_subplot()
    tidy(axes, "Round", "Score")
    axes.plot([0, 1], [0, 1], color=INK)
    return figure


def page(score="10", **fields):
    rows = (("b", "9", "-"), ("a", score, "0.5"), (LONG, "1e-05", "2"), (ODD, "-", "1,000"))
    ledger = Grid("Releases", ("name", "score", "price"), rows, sortable=True)
    wide = Grid("Wide", tuple(f"column {place}" for place in range(12)), (("a cell",) * 12,))
    folded = Folded("More", (Text("inside"), Facts(((LONG, ODD),))))
    sections = (
        Section("Result", (Text(LONG), Items("Lines", (LONG,)), Figure("seen", drawing(), "It rises."))),
        Section("Ledger", (ledger, wide, folded, Code(LONG))),
    )
    alerts = (Text("Late.", "mind"), Text(LONG, "stop"))
    return Page(**{"title": "A run", "lead": ODD, "alerts": alerts, "sections": sections, **fields})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write(page(), tmp_path_factory.mktemp("report") / "report.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_opens_from_disk_quietly_and_nothing_sticks_out(chromium, place, width, scheme):
    with opened(chromium, place, color_scheme=scheme, **size(width)) as tab:
        assert tab.title() == "A run"
        assert tab.locator("figure svg").count() == 1
        ground = require_readable(tab, width)
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}[scheme]


def column(tab, place):
    return [
        words[:3]
        for words in tab.locator(
            f"#ledger table >> nth=0 >> tbody tr > :nth-child({place})"
        ).all_inner_texts()
    ]


def test_tables_sort_by_number_and_by_name_with_mouse_and_keyboard(chromium, place):
    with opened(chromium, place, **size(1280)) as tab:
        head = tab.locator("#ledger th[scope=col]").nth(1)
        head.locator("button").click()
        assert column(tab, 2) == ["1e-", "9", "10", "-"]
        assert head.get_attribute("aria-sort") == "ascending"
        tab.keyboard.press("Enter")
        assert column(tab, 2) == ["10", "9", "1e-", "-"]
        assert head.get_attribute("aria-sort") == "descending"
        tab.keyboard.press("Space")
        assert column(tab, 2) == ["9", "10", "1e-", "-"]
        assert head.get_attribute("aria-sort") is None
        tab.locator("#ledger th[scope=col] button").nth(2).click()
        assert column(tab, 3) == ["0.5", "2", "1,0", "-"]
        tab.locator("#ledger th[scope=col] button").nth(0).click()
        assert column(tab, 1)[1:3] == ["a", "b"]


def test_on_a_phone_a_figure_is_seen_as_a_whole_and_enlarged_to_be_read(chromium, place):
    with opened(chromium, place, **size(390)) as tab:
        figure, button = tab.locator("figure svg"), tab.locator("figure button")
        small = figure.bounding_box()["width"]
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert figure.bounding_box()["width"] > 1.9 * small
        assert tab.evaluate(WIDE) == 0
        tab.keyboard.press("Enter")
        assert figure.bounding_box()["width"] == small
    with opened(chromium, place, **size(1280)) as tab:
        assert not tab.locator("figure button").is_visible()


def test_without_a_script_all_is_there_and_paper_shows_what_is_folded_in_light(chromium, place):
    with opened(chromium, place, java_script_enabled=False, color_scheme="dark", **size(1280)) as tab:
        assert tab.locator("#ledger tbody tr").count() == 5
        assert tab.locator("button").count() == 0
        inside = tab.get_by_text("inside", exact=True)
        assert not inside.is_visible()
        tab.emulate_media(media="print")
        assert inside.bounding_box()["height"] > 0
        assert not tab.locator("nav").is_visible()
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_keyboard_finds_the_way_past_the_contents(chromium, place):
    with opened(chromium, place, **size(1280)) as tab:
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.className") == "skip"
        assert tab.locator(".skip").bounding_box()["x"] >= 0
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "main"


def test_a_fragment_fits_into_a_page_of_any_colour(chromium, tmp_path):
    file = tmp_path / "notebook.html"
    body = "<!doctype html><meta charset=utf-8><body style='color:rgb(1,2,3)'><p id=own>mine</p>"
    file.write_text(body + fragment(page()), encoding="utf-8")
    with opened(chromium, file.as_uri(), **size(600)) as tab:
        assert tab.heard == []
        assert tab.evaluate(WIDE) == 0
        assert tab.evaluate("getComputedStyle(document.querySelector('.tacit p')).color") == "rgb(1, 2, 3)"
        assert tab.evaluate("getComputedStyle(document.getElementById('own')).maxWidth") == "none"


class Live:
    """A page that changes, for as long as it is served."""

    def __init__(self):
        self.text, self.tag, self.seen = html(page(), refresh=0.05), '"1"', []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                self.seen.append(handler.headers.get("If-None-Match"))
                same = self.seen[-1] == self.tag
                handler.send_response(304 if same else 200)
                handler.send_header("ETag", self.tag)
                handler.send_header("Content-Type", "text/html; charset=utf-8")
                handler.end_headers()
                if not same:
                    handler.wfile.write(self.text.encode())

            def log_message(handler, *words):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/?key=1"

    def tell(self, text, tag):
        self.text, self.tag = text, tag

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def live():
    made = Live()
    yield made
    if made.thread.is_alive():
        made.stop()


def test_a_live_page_takes_what_is_new_and_keeps_its_place(chromium, live):
    with opened(chromium, live.address, **size(600)) as tab:
        tab.locator("#ledger th[scope=col] button").nth(1).click()
        tab.locator("summary").click()
        tab.evaluate("scrollTo({top: 300, behavior: 'instant'})")
        live.tell(html(page("7", title="B run"), refresh=0.05), '"2"')
        expect(tab).to_have_title("B run")
        assert column(tab, 2) == ["1e-", "7", "9", "-"]
        assert tab.locator("details").evaluate("one => one.open")
        assert tab.evaluate("scrollY") == 300
        assert tab.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert tab.locator("th button").count() == 3
        seen = len(live.seen)
        while '"2"' not in live.seen[seen:]:
            tab.wait_for_timeout(10)
        live.tell(html(page(title="The end")), '"3"')
        expect(tab).to_have_title("The end")
        assert "The run is over" in tab.inner_text("#state")
        assert tab.heard == []
        assert all(address == live.address for address in tab.asked)


def test_a_live_page_whose_run_is_gone_says_so_once_and_stays(chromium, live):
    with opened(chromium, live.address, **size(600)) as tab:
        assert tab.inner_text("#state") == "The run goes on, and this page with it."
        live.stop()
        expect(tab.locator("#state")).to_have_class("gone")
        assert "this is its last state" in tab.inner_text("#state")
        assert tab.get_attribute("#state", "role") == "status"
        assert tab.locator("#ledger tbody tr").count() == 5
