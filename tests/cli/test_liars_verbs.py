"""Rules that stand liars, secret sums and attacks, as a person meets them: files, verbs, what they say."""

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.errors import InvalidFile, Refused, TacitError
from tacit.experiments import attacks, experiment
from tacit.survival.data import simulate

TACIT = str(Path(sys.executable).with_name("tacit"))
BASE = """
name = "liars"
seed = 3
rounds = 3
baselines = false
[data]
records = 240
features = 3
[sites]
count = 9
[task]
kind = "logistic-hazard"
hidden = [3]
cuts = 3
steps = 1
sample = 0.5
horizon = 3.0
"""
BY_COLUMN = BASE.replace("records = 240\nfeatures = 3", 'kind = "csv"\npath = "patients.csv"').replace(
    "count = 9", 'kind = "by-column"'
)
PROMISE = """
[privacy]
unit = "site"
epsilon = 800.0
delta = 1e-2
clip = 1.0
rehearsal = true
noise = "{}"
"""
ATTACK = """
[attack]
liars = 2
kinds = ["sign-flip", "scaling", "alie"]
against = ["mean", "robust", "bulyan"]
"""
OWN = """
from dataclasses import dataclass

import numpy as np

from tacit.aggregation.attacks import Attack


@dataclass(frozen=True)
class Middle:
    power: float = 1.0

    def __call__(self, updates):
        return np.median(updates.matrix, axis=0)


@dataclass(frozen=True)
class Brittle:
    def __call__(self, updates):
        lengths = np.linalg.norm(updates.matrix, axis=1)
        whole = lengths.max() < 100 * np.median(lengths)
        return updates.matrix.mean(axis=0) * (1.0 if whole else float("nan"))


@dataclass(frozen=True, kw_only=True)
class Silence(Attack):
    def craft(self, own, honest, outcome, key):
        return 0 * own


@dataclass(frozen=True, kw_only=True)
class Nothing:
    liars: int
"""
BUCKETS = 'kind = "bucketing"\nsize = 3\nthen = { kind = "median", f = 1 }'


def rule(text: str) -> str:
    return f"[aggregation]\n{text}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "liars.toml"
    path.write_text(text)
    return path


def in_process(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(map(str, words)))
    return done.exit_code, done.stdout, done.stderr


def tacit(folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([TACIT, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)


def warnings_of(plan: str) -> list[str]:
    found = re.findall(r"(?m)^warning +(.+)$", plan)
    usual = ("the run is open", "a rehearsal repeats", "epsilon 800 is a weak promise")
    return [line for line in found if not line.startswith(usual)]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('kind = "medain"', r'\[aggregation\] kind = \'medain\' .*did you mean "median"'),
        ("kind = 3", r"\[aggregation\] kind = 3 is not allowed"),
        ('kind = "median"\nff = 1', r'\[aggregation\] ff is not known \(did you mean "f"\?\)'),
        ('kind = "median"\nf = 1.5', r"f = 1.5 is not allowed: it must be a whole number"),
        ('kind = "median"\nf = "two"', r"f = 'two' is not allowed: it must be a whole number"),
        ('kind = "median"\nf = true', r"f = True is not allowed"),
        ('kind = "median"\nf = -1', r"f = -1 is not allowed: it must be a whole number of at least 0"),
        ('kind = "robust"\nf = -1', r"f = -1 is not allowed"),
        ('kind = "mean"\nf = 1', r'\[aggregation\] f is not known: it must be "weights"'),
        ('kind = "trimmed-mean"\nf = 1\ntrim = 0.1', r"trim = 0.1 .* left out where f is given \(f = 1\)"),
        ('kind = "trimmed-mean"\ntrim = 0.5', r"trim = 0.5 .* below 0.5"),
        ('kind = "krum"\nallow_fragile = "yes"', r"allow_fragile = 'yes' .* true or false"),
        ('kind = "centered-clip"\nradius = -1', r"radius = -1.0 .* above"),
        ('kind = "centered-clip"\nsteps = 0', r"steps = 0 .* at least 1"),
        ('kind = "mixing"', r"\[aggregation\] then is missing: give a table"),
        ('kind = "mixing"\nf = 2\nthen = { kind = "median" }', r"\[aggregation\] f is not known"),
        ('kind = "mixing"\nthen = "median"', r"aggregation.then = 'median' .* a table, \[aggregation.then\]"),
        ('kind = "mixing"\nthen = {}', r'\[aggregation.then\] kind is missing: it must be "median"'),
        ('kind = "mixing"\nthen = { kind = "mean" }', r"\[aggregation.then\] kind = 'mean' is not allowed"),
        ('kind = "mixing"\nthen = { kind = "krumm" }', r'\[aggregation.then\] .*did you mean "krum"'),
        ('kind = "mixing"\nthen = { kind = "median", f = -1 }', r"\[aggregation.then\] f = -1"),
        ('kind = "mixing"\nthen = { kind = "median", g = 1 }', r"\[aggregation.then\] g is not known"),
        ('kind = "bucketing"\nthen = { kind = "mixing" }', r"\[aggregation.then\] kind = 'mixing'"),
        ('kind = "bucketing"\nsize = 0\nthen = { kind = "median" }', r"\[aggregation\] size = 0"),
    ],
)
def test_a_bad_rule_is_refused_by_its_table_and_key(table, said, tmp_path):
    with pytest.raises(InvalidFile, match=said):
        experiment.read(written(tmp_path, BASE + rule(table)))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[quarantine]\nmode = 'obsrve'", 'did you mean "observe"'),
        ("[quarantine]\nreadmit = 9.0", "at most half of threshold"),
        ("[quarantine]\nf = 0", "f = 0 is not allowed"),
        ("[clusters]\ncount = 1", "a single model needs no clusters"),
        ("[clusters]\ncount = 2\nby = 'los'", 'did you mean "loss"'),
        (PROMISE.format("secure") + "colluders = 0", "colluders = 0 is not allowed"),
    ],
)
def test_bad_tables_beside_it_are_refused_too(table, said, tmp_path):
    with pytest.raises(InvalidFile, match=said):
        experiment.read(written(tmp_path, BASE + table))


@pytest.mark.parametrize(
    ("noise", "table", "way_out"),
    [
        ("site", 'kind = "krum"', "Use covariance-filter or geometric-median, or set allow_fragile = true"),
        ("server", 'kind = "median"', "Use mean, trimmed-mean, mixing before trimmed-mean"),
        ("server", 'kind = "geometric-median"', 'or noise = "site"'),
        ("server", 'kind = "centered-clip"\nradius = 0.5\nsteps = 2', "a radius and one step"),
        ("server", BUCKETS, 'or noise = "site"'),
        ("secure", 'kind = "robust"\nf = 2', "bucketing with at least 3 sites to a bucket"),
        ("secure", 'kind = "trimmed-mean"', "bucketing with at least 3 sites to a bucket"),
        ("secure", BUCKETS.replace("3", "2"), "Use larger groups, or more sites"),
        ("secure", "[quarantine]", 'Use noise = "site", or leave it out'),
        ("server", "[quarantine]", 'Use noise = "site"'),
        ("server", '[clusters]\ncount = 2\nby = "weights"', 'Use noise = "site"'),
        ("site", "[clusters]\ncount = 2", 'Use by = "direction" or by = "weights"'),
    ],
)
def test_what_cannot_be_kept_is_refused_by_the_plan_with_a_way_out(noise, table, way_out, tmp_path):
    text = table if table.startswith("[") else rule(table)
    code, out, err = in_process("plan", written(tmp_path, BASE + text + PROMISE.format(noise)))
    assert (code, out) == (2, "")
    assert way_out in err
    assert "a bug of ours" not in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (rule('kind = "median"\nf = 5'), "f = 5 is not allowed with 9 sites: median needs at least 11"),
        (rule('kind = "bulyan"\nf = 2'), "bulyan needs at least 11"),
        (rule('kind = "mixing"\nthen = { kind = "krum", f = 4 }'), "krum needs at least 11"),
        (rule(BUCKETS.replace("f = 1", "f = 2")), "f * size = 6 must be below 4.5"),
        (PROMISE.format("secure") + "colluders = 7", "At most 4 can be tolerated"),
        ("[clusters]\ncount = 10", "at most 9, the number of sites"),
        ("[clusters]\ncount = 2\n[quarantine]", "Leave one of them out"),
    ],
)
def test_too_few_sites_are_refused_by_the_plan(text, said, tmp_path):
    code, out, err = in_process("plan", written(tmp_path, BASE + text))
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    ("count", "text", "said"),
    [
        (9, rule('kind = "robust"'), []),
        (9, rule('kind = "covariance-filter"\nf = 3'), ["f = 3 of 9 sites is a third or more"]),
        (3, rule('kind = "median"'), ["with 3 sites, no rule can outvote a dishonest one"]),
        (4, rule('kind = "krum"'), ["krum with these options tolerates no dishonest site among 4"]),
        (
            9,
            rule(BUCKETS.replace(", f = 1", "")),
            ["bucketing with these options tolerates no dishonest site among 9"],
        ),
        (9, rule('kind = "median"') + PROMISE.format("site"), ["median loses more accuracy to noise"]),
        (9, PROMISE.format("secure"), ["nothing but its own clipping limits a dishonest site"]),
        (
            9,
            rule(BUCKETS) + PROMISE.format("secure"),
            ["spoils the sum of its bucket; 1 of 3 buckets can be"],
        ),
        (3, "[quarantine]", ["3 sites are too few to identify dishonest ones"]),
    ],
)
def test_a_plan_warns_of_what_its_author_may_want_to_reconsider(count, text, said, tmp_path):
    path = written(tmp_path, BASE.replace("count = 9", f"count = {count}") + text)
    code, out, _ = in_process("plan", path)
    found = warnings_of(out)
    assert code == 0
    assert len(found) == len(said)
    for line, words in zip(found, said, strict=True):
        assert words in line


@pytest.mark.parametrize(
    ("text", "fewest"),
    [
        (rule('kind = "robust"'), None),
        (rule('kind = "median"\nf = 2'), 5),
        (rule('kind = "mixing"\nthen = { kind = "multi-krum", f = 1 }'), 5),
        (rule(BUCKETS), 9),
        (PROMISE.format("secure"), 3),
        (PROMISE.format("secure") + "colluders = 5", 12),
        (rule('kind = "median"\nf = 1') + "[clusters]\ncount = 2", 6),
    ],
)
def test_where_data_decide_the_sites_a_plan_says_how_many_are_needed(text, fewest, tmp_path):
    code, out, err = in_process("plan", written(tmp_path, BY_COLUMN + text))
    assert code == 0, err
    needed = re.search(r"the data decide the number of sites: (\d+) are needed at least", out)
    assert (None if needed is None else int(needed[1])) == fewest
    assert "no rule can outvote" not in out


def test_where_data_decide_the_sites_a_run_is_refused_if_they_are_too_few_and_runs_if_not(tmp_path):
    records = simulate("SDGM1", records=240, features=3, seed=1)
    records.assign(site=[f"site-{number % 6}" for number in range(240)]).to_csv(
        tmp_path / "patients.csv", index=False
    )
    path = written(tmp_path, BY_COLUMN + rule('kind = "covariance-filter"\nf = 2'))
    code, _, err = in_process("run", path, "--out", tmp_path / "few", "--set", "aggregation.f=3")
    assert (code, (tmp_path / "few").exists()) == (2, False)
    assert "f = 3 is not allowed with 6 sites" in err
    code, out, err = in_process("run", path, "--out", tmp_path / "enough")
    assert code == 0, err
    assert re.search(r"(?m)^note +f = 2 of 6 sites is a third or more", out)


class Stop(Exception):
    """The machine goes down."""


@pytest.mark.parametrize(
    "text",
    [
        rule('kind = "trimmed-mean"\ntrim = 0.3'),
        rule('kind = "mixing"\nthen = { kind = "geometric-median" }'),
        rule('kind = "robust"\nf = 2') + "[quarantine]\nmode = 'exclude'\n",
        rule('kind = "robust"') + PROMISE.format("server"),
        rule(BUCKETS) + PROMISE.format("secure"),
        rule('kind = "krum"\nallow_fragile = true') + PROMISE.format("site"),
        rule('kind = "median"\nf = 1') + "[clusters]\ncount = 2\nby = 'weights'\n",
    ],
)
def test_a_settled_rule_is_read_back_and_gone_on_with(text, tmp_path):
    read = experiment.read(written(tmp_path, BASE + text))
    whole = read.run(tmp_path / "whole")

    def down(entry: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        read.run(tmp_path / "cut", callbacks=[down])
    code, out, err = in_process("run", tmp_path / "cut", "--resume")
    assert code == 0, err
    assert out == whole.summary() + "\n"
    assert np.array_equal(experiment.load(tmp_path / "cut").state, whole.state)
    assert in_process("show", tmp_path / "cut") == (0, out, "")
    code, out, _ = in_process("ledger", tmp_path / "cut" / "ledger.db", "--verify")
    assert (code, out.split()[0]) == (0, "valid")


def test_every_aggregator_and_every_attack_is_listed_with_one_line():
    for what in ("aggregators", "attacks"):
        code, out, _ = in_process("list", what)
        kinds = experiment.KINDS["aggregation" if what == "aggregators" else "attack"]
        assert code == 0
        assert [line.split()[0] for line in out.splitlines()] == list(kinds)
        # Whole sentences, whatever way a docstring is broken into lines.
        assert all(line.endswith(".") for line in out.splitlines())


def test_rules_can_be_tuned(tmp_path):
    text = (
        BASE + rule('kind = "mixing"\nthen = { kind = "median" }') + '[tune]\n"aggregation.then.f" = [1, 2]\n'
    )
    code, out, err = in_process("tune", written(tmp_path, text), "--out", tmp_path / "tuned", "-q")
    assert code == 0, err
    assert re.search(r"(?m)^candidate-2 +2 +0\.\d+$", out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder in which real commands run."""
    place = tmp_path_factory.mktemp("liars")
    (place / "mine.py").write_text(OWN)
    (place / "secret.toml").write_text(BASE + rule(BUCKETS) + PROMISE.format("secure"))
    (place / "attack.toml").write_text(BASE + ATTACK)
    own = ATTACK.replace('kinds = ["sign-flip", "scaling", "alie"]', 'kind = "mine:Silence"')
    (place / "own.toml").write_text(
        BASE + rule('kind = "mine:Middle"\npower = 2.0') + own.replace(', "robust", "bulyan"', "")
    )
    return place


def test_a_run_with_secret_sums_warns_on_the_standard_error_and_remembers_it(folder):
    code, out, err = in_process("run", folder / "secret.toml", "--out", folder / "secret")
    assert code == 0, err
    warning, *rounds, saved, report = err.splitlines()
    assert warning.startswith("warning: the server sees no single update: a dishonest site spoils")
    assert len(rounds) == 3
    assert report == f"report {folder / 'secret' / 'report.html'}"
    assert saved == f"saved {folder / 'secret'}"
    out = " ".join(out.split())
    assert f"note {warning.removeprefix('warning: ')}" in out
    assert "all sites but 1, not to collude with the server, which sees only sums" in out
    kept = (folder / "secret" / "experiment.toml").read_text()
    assert '[aggregation.then]\nkind = "median"\nf = 1\n' in kept


@pytest.fixture(scope="module")
def interrupted(folder):
    """Trials on which somebody pressed Ctrl-C in the sixth of them."""
    words = [TACIT, "run", "attack.toml"]
    with subprocess.Popen(
        words,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "6 of 12: sign-flip against bulyan, without noise\n":
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=600)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def told(folder):
    """What the command says of trials that nobody interrupted."""
    return in_process("run", folder / "attack.toml", "--out", folder / "told", "-q")


def test_interrupted_trials_are_gone_on_with_by_the_words_that_were_said(folder, interrupted, told):
    code, out, err = interrupted
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    said = re.search(r"resume with: tacit (.+)$", err, re.MULTILINE)
    assert said is not None
    resumed = tacit(folder, *shlex.split(said[1]))
    assert resumed.returncode == 0, resumed.stderr
    assert not resumed.stderr.startswith(("1 of", "5 of"))
    assert "12 of 12: alie against bulyan, without noise" in resumed.stderr
    assert resumed.stdout == told[1]


def test_trials_say_who_lies_what_is_left_and_why_a_rule_is_missing(folder, told):
    code, out, err = told
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "C-index when 2 of 9 sites are dishonest, without noise"
    assert [line.split()[0] for line in lines[4:9]] == ["none", "sign-flip", "scaling", "alie", "worst"]
    assert all(re.fullmatch(r"\S+ +0\.\d{3} +0\.\d{3} +-", line) for line in lines[4:9])
    assert lines[9:] == [
        "",
        next(line for line in lines if line.startswith("bulyan: f = 2 is not allowed with 9 sites")),
    ]
    assert in_process("show", folder / "told") == (0, out, "")
    code, told, _ = in_process("show", folder / "told", "--json")
    (found,) = json.loads(told)["runs"]
    assert (found["score"], found["liars"], found["sites"]) == ("c_index", 2, 9)
    assert found["worst"]["without"]["bulyan"] is None
    assert set(found["why"]["without"]) == {"bulyan"}


def test_a_rule_that_an_attack_breaks_is_called_broken_and_the_others_go_on(folder):
    attack = '[attack]\nliars = 2\nkind = "scaling"\nfactor = -500.0\nagainst = ["median"]\n'
    (folder / "brittle.toml").write_text(BASE + rule('kind = "mine:Brittle"') + attack)
    tried = attacks.read(folder / "brittle.toml").run(None)
    assert tried.worst("without")["as in the file"] is None
    assert tried.worst("without")["median"] is not None
    assert re.search(r"(?m)^none +0\.\d{3} +0\.\d{3}$", tried.summary())
    assert re.search(r"(?m)^worst +broken +0\.\d{3}$", tried.summary())
    assert "\nas in the file, scaling: the run failed: training diverged in round 1" in tried.summary()


def test_the_plan_of_trials_is_that_of_the_experiment_and_says_how_many_runs(folder):
    code, out, err = in_process("plan", folder / "attack.toml")
    assert code == 0, err
    assert re.search(r"(?m)^trials +12 runs", out)
    assert json.loads(in_process("plan", folder / "attack.toml", "--json")[1])["trials"] == 12


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("attack.liars=9", "fewer than the 9 sites: at least one must be honest"),
        ("attack.liars=0", "liars = 0 is not allowed"),
        ("attack.kinds=alie", "a list of kinds"),
        ("attack.against=['bulian']", 'did you mean "bulyan"'),
        ("attack.scale=2.0", "scale is not known"),
    ],
)
def test_trials_that_cannot_be_are_refused_and_leave_nothing_behind(change, said, folder, tmp_path):
    code, out, err = in_process("run", folder / "attack.toml", "--set", change, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert said in err
    assert not (tmp_path / "run").exists()


def test_a_trigger_that_no_record_has_is_refused_before_anything_is_tried(tmp_path):
    attack = '[attack]\nliars = 2\nkind = "backdoor"\ncolumn = "zebra"\nagainst = ["mean"]\n'
    asked = attacks.read(written(tmp_path, BASE + attack))
    with pytest.raises(TacitError, match='column = \'zebra\' is not allowed: it must be "x1", "x2" or "x3"'):
        asked.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("promise", "said"),
    [
        (PROMISE.format("secure"), 'does not go with noise = "secure"'),
        (PROMISE.format("site").replace("true", "false"), "give [privacy] rehearsal = true"),
    ],
)
def test_liars_are_refused_where_nobody_could_see_them_and_where_people_are_protected(
    promise, said, tmp_path
):
    path = written(tmp_path, BASE + ATTACK + promise)
    with pytest.raises(Refused, match=re.escape(said)):
        attacks.read(path).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    code, _, err = in_process("plan", path)
    assert code == 2
    assert said in err


def test_trials_under_a_promise_to_records_are_told_with_noise_and_without(tmp_path):
    promise = PROMISE.format("site").replace('"site"', '"record"', 1)
    path = written(tmp_path, BASE + ATTACK.replace(', "scaling", "alie"', "") + promise)
    tried = attacks.read(path).run(None)
    assert list(tried.tables) == ["without", "with"]
    assert tried.summary().count("C-index when 2 of 9 sites are dishonest") == 2


def test_an_experiment_of_many_runs_is_not_read_as_one(folder):
    with pytest.raises(InvalidFile, match="asks for more than one run: use tacit run"):
        experiment.read(folder / "attack.toml")


def test_own_rules_and_own_attacks_are_found_beside_the_file(folder, tmp_path):
    done = tacit(tmp_path, "run", folder / "own.toml", "-q")
    assert done.returncode == 0, done.stderr
    assert re.search(r"(?m)^attack +as in the file +mean$", done.stdout)
    assert re.search(r"(?m)^mine:Silence +0\.\d{3} +0\.\d{3}$", done.stdout)
    (kept,) = (tmp_path / "runs").iterdir()
    assert 'kind = "mine:Middle"\npower = 2.0' in (kept / "experiment.toml").read_text()


def test_an_own_attack_that_is_none_is_refused(folder):
    with pytest.raises(InvalidFile, match=r"\[attack\] kind = 'mine:Nothing' is not allowed"):
        attacks.read(folder / "own.toml", ["attack.kind=mine:Nothing"])
