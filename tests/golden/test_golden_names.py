"""Public names stay where users import them from.

Three lists, from firm to loose, all in `data/names/`, where no script that rewrites imports finds them:

- `promised.json`: DESIGN.md section 8 with parameters and defaults. Parameters may be added, none may leave.
- `documented.json`: what README, guides and examples import or name. It maps each path to where it is found
  today; a path that moves has its new place on the right, and must have left the documentation.
- `references.json`: modules of which docs/reference shows docstrings. They are internals and may be re-pathed
  with the page that names them: a page must not name a path that leads nowhere.
"""

import capture
import pytest

import tacit

PROMISED = capture.load("names/promised")
DOCUMENTED = capture.load("names/documented")
REFERENCES = capture.load("names/references")


def test_the_package_offers_all_its_names():
    golden = capture.load("names/tacit")
    assert set(golden) <= set(tacit.__all__)
    assert set(golden) <= set(dir(tacit))
    assert all(hasattr(tacit, name) for name in golden)


@pytest.mark.parametrize("path", PROMISED)
def test_a_promised_name_keeps_its_parameters(path):
    found = capture.describe_parameters(capture.resolve(path))
    known = {name: found[name] for name in PROMISED[path] if name in found}
    assert capture.compare(known, PROMISED[path]) == []


def test_required_parameters_are_not_added():
    for path, golden in PROMISED.items():
        found = capture.describe_parameters(capture.resolve(path))
        added = {name: one for name, one in found.items() if name not in golden}
        assert all("default" in one or one["given"].startswith("variadic") for one in added.values()), path


@pytest.mark.parametrize("path", DOCUMENTED)
def test_a_documented_path_leads_to_something(path):
    capture.resolve(DOCUMENTED[path])


def test_a_path_that_moved_has_left_the_documentation():
    moved = {path for path, today in DOCUMENTED.items() if path != today}
    assert moved & set(capture.collect_documented()) == set()


def test_the_reference_names_no_path_that_leads_nowhere():
    for path in set(REFERENCES) & set(capture.collect_references()):
        capture.resolve(path)


def test_a_run_has_its_members(train):
    run = tacit.load(train("record"))
    assert [name for name in capture.load("names/run") if not hasattr(run, name)] == []
    assert list(run.history.columns) == capture.load("names/history")
    assert run.scores == pytest.approx(capture.load("documents/show-record")["runs"][0]["scores"], rel=1e-9)
    assert run.privacy.epsilon == pytest.approx(capture.load("documents/verify-record")["epsilon"], rel=1e-9)
