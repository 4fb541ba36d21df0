"""A run charges what it has planned, whatever it asks of the sites: one plan, priced by composition."""

from pathlib import Path

import pytest

from tacit import Ledger
from tacit.errors import BudgetExhausted
from tacit.experiments import experiment, tuning
from tacit.privacy.accounting import calibrate, epsilon
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.ledger.run_ledger import begin_plan
from tacit.privacy.policy import Privacy
from tacit.runs.directory import LEDGER
from tacit.survival.data import simulate
from tacit.survival.statistics import federated

SURVIVAL = """
name = "trial"
rounds = 3
baselines = false
[data]
records = 300
features = 3
[sites]
count = {sites}
[task]
{task}
[privacy]
delta = 1e-5
clip = 1.0
rehearsal = true
{privacy}
"""
CURVES = """
name = "curves"
baselines = false
[data]
kind = "simulated-curves"
records = 120
[task]
kind = "functional-boosting"
{task}
[sites]
kind = "columns"
[privacy]
unit = "record"
epsilon = 50.0
delta = 1e-5
clip = 1.0
rehearsal = true
{privacy}
"""
RECORD, SITE = 'unit = "record"\nepsilon = 4.0', 'unit = "site"\nepsilon = 60.0'
SMALL = "steps = 2\nsample = 0.2"
LOGISTIC, COX = (
    f'kind = "logistic-hazard"\ncuts = 4\n{SMALL}',
    f'kind = "cox-ph"\ngroups_per_site = 20\ncuts = 4\n{SMALL}',
)
CASES = {
    "a grid that is bought": (LOGISTIC, RECORD),
    "Laplace noise": (LOGISTIC, RECORD + '\nmechanism = "laplace"'),
    "risk groups and a hazard that is bought": (COX, RECORD),
    "a loss that is watched": (LOGISTIC, RECORD + "\n[stop]\npatience = 1\nepsilon = 0.5"),
    "synthetic records": (
        f'kind = "poisson-ph"\ncuts = [0.5, 1.0, 2.0]\n{SMALL}',
        RECORD + '\n[augment]\nkind = "mvaec"\nepsilon = 1.0\nsteps = 3\nspan = [0.1, 3.0]',
    ),
    "noise at the sites": (LOGISTIC, SITE + '\nnoise = "site"'),
    "a server that draws sites": (LOGISTIC, SITE + '\nnoise = "server"\nparticipation = 0.5'),
    "bounds that follow the updates": (LOGISTIC, SITE + '\nnoise = "server"\nclip_quantile = 0.5'),
    "secure aggregation must tolerate": (LOGISTIC, SITE + '\nnoise = "secure"'),
}


def read(path: Path, text: str) -> experiment.Experiment:
    path.write_text(text)
    return experiment.read(path)


def require_one_plan(path: Path, stated: float | None, delta: float = 1e-5) -> None:
    with Ledger(path / LEDGER, mode="read") as ledger:
        rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
        assert rows
        assert len({row["plan"] for row in rows}) == 1
        assert len(ledger._account.plans.names()) == 1
        assert ledger.spent(delta) == ledger.spent_as_planned(delta) == epsilon(ledger.releases(), delta)
        assert stated == ledger.spent(delta)


@pytest.mark.parametrize("case", CASES)
def test_everything_that_a_run_charges_was_planned(case, tmp_path):
    task, privacy = CASES[case]
    chosen = read(tmp_path / "x.toml", SURVIVAL.format(sites=4, task=task, privacy=privacy))
    run = chosen.run(tmp_path / "run")
    require_one_plan(tmp_path / "run", run.privacy.epsilon)
    assert run.privacy.epsilon == pytest.approx(chosen.plan().statement.epsilon)


@pytest.mark.parametrize(("task", "privacy"), [("", ""), ('release = "local"', 'noise = "site"')])
def test_everything_that_a_fit_of_curves_charges_was_planned(task, privacy, tmp_path):
    run = read(tmp_path / "x.toml", CURVES.format(task=task, privacy=privacy)).run(tmp_path / "run")
    require_one_plan(tmp_path / "run", run.privacy.epsilon)


def test_a_tuning_is_one_plan_with_all_its_candidates_and_the_choice(tmp_path):
    text = SURVIVAL.format(sites=2, task=LOGISTIC, privacy=RECORD) + "[tune]\n'task.lr' = [0.01, 0.1]\n"
    (tmp_path / "x.toml").write_text(text)
    done = tuning.tune(tuning.read(tmp_path / "x.toml"), tmp_path / "tuned")
    require_one_plan(tmp_path / "tuned", done.run.privacy.epsilon)


def test_each_private_statistic_is_a_plan_of_its_own():
    people = simulate("SDGM1", records=200, features=2, seed=0)
    from tacit import Federation

    federation = Federation.from_frame(people.assign(site="a"), site="site", targets=("time", "event"))
    with Ledger() as ledger:
        for _ in range(2):
            federated.kaplan_meier(federation, grid=[0.5, 1.0, 2.0], epsilon=0.3, delta=1e-5, ledger=ledger)
        assert ledger.spent_as_planned(1e-5) < ledger.spent(1e-5)


def test_a_run_that_is_resumed_with_other_releases_is_another_plan():
    privacy = Privacy(unit="record", noise_multiplier=1.0, delta=1e-5, clip=1.0)
    before, after = ([clipped_release(noise, rate=0.1, count=50)] for noise in (1.0, 1.2))
    with Ledger() as ledger:
        for rows, own in ((before, "first"), (after, "second")):
            plan = begin_plan(ledger, privacy, rows, own=own, resumed=own == "second")
            ledger.charge([Release(**{**rows[0].as_dict(), "count": 20})], plan=plan)
        assert len(ledger._account.plans.names()) == 2
        assert ledger.spent(1e-5) > ledger.spent_as_planned(1e-5)


def test_a_run_that_is_resumed_with_other_releases_than_its_budget_bears_is_refused():
    """Such a plan was never held against the budget: composed charge by charge it could be chosen from."""
    noise = calibrate(3.0, 1e-5, 50, rate=0.1)
    privacy = Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0)
    with Ledger() as ledger:
        begin_plan(ledger, privacy, [clipped_release(noise, rate=0.1, count=50)], own="first")
        before = ledger.entries()
        with pytest.raises(BudgetExhausted, match="3 is allowed; nothing was charged"):
            begin_plan(
                ledger, privacy, [clipped_release(noise, rate=0.1, count=60)], own="second", resumed=True
            )
        assert ledger.entries() == before
        # As it was planned, it goes on.
        own = begin_plan(
            ledger, privacy, [clipped_release(noise, rate=0.1, count=50)], own="first", resumed=True
        )
        assert ledger.charge([clipped_release(noise, rate=0.1, count=50)], plan=own)
