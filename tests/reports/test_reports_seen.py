"""Reports of real runs, as a browser shows them: every workload, several runs, any name."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import private, record, troubled

from browsing import opened, require_readable, size
from tacit import Federation, fit
from tacit.audits import audit, mechanisms
from tacit.cli import reporting
from tacit.experiments import experiment
from tacit.reports.page import write
from tacit.reports.page.blocks import Figure
from tacit.reports.run import page
from tacit.sites.table import from_frame
from tacit.survival import PoissonPH

SMALL = 600_000
SURVIVAL = """name = "relapse"
rounds = 4
[data]
kind = "simulated"
records = 400
features = 4
[sites]
kind = "iid"
count = 3
[task]
kind = "logistic-hazard"
hidden = [4]
cuts = 5
[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-4
clip = 1.0
rehearsal = true
"""
FUNCTIONAL = """name = "curves"
[data]
kind = "simulated-curves"
design = "smooth"
records = 2000
[sites]
kind = "columns"
count = 3
[task]
kind = "functional-boosting"
radius = "private"
[privacy]
unit = "record"
epsilon = 40.0
delta = 1e-4
clip = 1.5
noise = "server"
rehearsal = true
"""
CONTROL = """name = "landers"
rounds = 3
[data]
kind = "gymnasium"
env = "LunarLander-v3"
episodes = 2
watch = 1
[sites.moon]
gravity = -1.6
[sites.earth]
gravity = -9.8
[task]
kind = "ppo"
hidden = [4]
envs = 2
steps = 256
"""
FILES = {"survival": SURVIVAL, "functional": FUNCTIONAL, "control": CONTROL}
# What is drawn of a run, and of the model of its workload.
DRAWN = {
    "survival": ["result", "rounds", "survival-curves", "feature-effects"],
    "functional": ["result", "predictions", "surfaces", "selection-path", "stopping"],
    "control": ["result", "rounds", "returns-by-round", "training-returns", "returns-by-world"],
    "audited": [
        "result",
        "rounds",
        "survival-curves",
        "feature-effects",
        "bounds",
        "membership",
        "inversion",
    ],
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("reports")
    found = {}
    for name, text in FILES.items():
        (place / f"{name}.toml").write_text(text)
        found[name] = experiment.read(place / f"{name}.toml").run(place / name).report()
    experiment.read(place / "survival.toml", ["privacy.epsilon=1.0"]).run(place / "other")
    both = [place / "survival", place / "other"]
    found["several"] = write(reporting.page(both), place / "several.html")
    found["audited"] = _audited(place)
    found["officer"] = write(reporting.data_protection(both[0]), place / "officer.html")
    return found


def _audited(place: Path) -> Path:
    """The report of a run that was attacked in every way."""
    read = experiment.read(place / "survival.toml")
    read.run(place / "audited")
    few = dict(list(mechanisms.PRIMITIVES.items())[:4])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mechanisms, "PRIMITIVES", few)
        audit(read, canaries=1000, shadows=3).write(place / "audited")
    return write(reporting.page([place / "audited"]), place / "audited" / "report.html")


@pytest.mark.parametrize(
    ("width", "scheme"),
    # Each width and each scheme once; the rest at leisure.
    [
        (1280, "light"),
        (390, "dark"),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
        pytest.param(390, "light", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", [*FILES, "several", "audited", "officer"])
def test_a_report_is_whole_on_a_desk_and_on_a_phone_by_day_and_by_night(
    chromium, reports, name, width, scheme
):
    assert reports[name].stat().st_size < SMALL
    with opened(chromium, reports[name].as_uri(), color_scheme=scheme, **size(width)) as tab:
        # What is folded is looked at as well, where there is something to see.
        tab.evaluate("document.querySelectorAll('details:has(figure)').forEach(part => part.open = true)")
        require_readable(tab, width)
        for figure in tab.locator("figure svg").all():
            assert figure.get_attribute("role") == "img"
            assert figure.get_attribute("aria-label")
        assert (
            tab.locator("figcaption").count() == tab.locator("figure svg").count() >= len(DRAWN.get(name, ()))
        )


@pytest.mark.parametrize("name", DRAWN)
def test_the_figures_of_a_report_are_there(reports, name):
    made = reporting.page([reports[name].parent])
    found = [block.name for section in made.sections for block in section.blocks if isinstance(block, Figure)]
    assert found == DRAWN[name]


def test_the_ledger_of_a_run_sorts(chromium, reports):
    with opened(chromium, reports["survival"].as_uri(), **size(1280)) as tab:
        prices = tab.locator("#ledger tbody tr > :nth-child(2)")
        before = prices.all_inner_texts()
        button = tab.locator("#ledger thead th:nth-child(2) button")
        button.click()
        button.click()
        assert prices.all_inner_texts() == sorted(before, key=float, reverse=True) != before


HOSTILE = [
    "<script>document.title='caught'</script>",
    '"><img src=x onerror="document.title=1">',
    'O\'Neill & "Sons" </svg></style>',
    "\N{HOSPITAL}\u202e ward",
    "x" * 10_000,
]


def test_names_of_sites_and_columns_are_shown_and_do_nothing(chromium, tmp_path):
    draws = np.random.default_rng(1)
    columns = [f"c {name}" for name in HOSTILE]
    frame = pd.DataFrame(draws.normal(size=(200, len(columns))), columns=columns)
    frame["time"], frame["event"] = draws.exponential(2, 200), draws.integers(0, 2, 200)
    frame["where"] = [HOSTILE[place % len(HOSTILE)] for place in range(200)]
    tables = {
        name: from_frame(part, targets=["time", "event"], leave=["where"])
        for name, part in frame.groupby("where")
    }
    sites = Federation(tables, public=True)
    run = fit(PoissonPH(horizon=4.0, steps=1), sites, rounds=2, out=tmp_path / "run")
    for report in (
        run.report(),
        write(reporting.data_protection(tmp_path / "run"), tmp_path / "officer.html"),
    ):
        assert report.stat().st_size < SMALL
        with opened(chromium, report.as_uri(), **size(390)) as tab:
            require_readable(tab, 390)
            assert "caught" not in tab.title()
            assert tab.locator("main img").count() == 0
    with opened(chromium, run.report().as_uri(), **size(390)) as tab:
        told = tab.locator("#sites").inner_text()
        assert HOSTILE[0] in told
        assert HOSTILE[1] in told
        assert "x" * 40 in told


def test_a_hundred_rounds_of_fifty_sites_are_written_small(tmp_path):
    names = [f"hospital of a long name, number {place}" for place in range(50)]
    told = private(troubled(names, 100))
    report = write(page(told), tmp_path / "report.html")
    assert report.stat().st_size < SMALL


def test_a_run_that_nobody_scored_is_whole(chromium, tmp_path):
    blank = replace(record(), scores={}, baselines={}, intervals={}, rounds=())
    report = write(page(private(blank)), tmp_path / "report.html")
    with opened(chromium, report.as_uri(), **size(390)) as tab:
        require_readable(tab, 390)
        assert "No score" in tab.locator("#result").inner_text()
