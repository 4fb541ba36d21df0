"""Built-in tasks, plans, reports, exports and statistics in an environment without torch and pyarrow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Importing them fails as it does where they are not installed.
BLOCK = """
import sys
from importlib import metadata
from importlib.abc import MetaPathFinder


class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def version(name, known=metadata.version):
    if name in ("torch", "pyarrow"):
        raise metadata.PackageNotFoundError(name)
    return known(name)


metadata.version = version
sys.meta_path.insert(0, Absent())
"""


def without_torch(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCK + code, *words], capture_output=True, text=True, cwd=ROOT, timeout=600
    )


# Several commands, one after another, in one interpreter: each ends by leaving it.
COMMANDS = """
import json
from tacit.cli.app import main
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.mark.parametrize(
    ("example", "options"),
    [
        ("survival.toml", ("--set", "rounds=2")),
        ("functional.toml", ()),
        ("control-cartpole.toml", ("--set", "rounds=2")),
    ],
)
def test_each_example_runs_and_reports_without_torch(example, options, tmp_path):
    out = tmp_path / "run"
    words = (
        ("run", f"examples/{example}", *options, "--out", str(out)),
        ("show", str(out)),
        ("report", str(out), "-o", str(tmp_path / "report.json")),
    )
    found = without_torch(COMMANDS, json.dumps(words))
    assert found.returncode == 0, found.stderr
    # The summary of the run, and the same again.
    assert found.stdout.count("\ntask  ") == 2, found.stdout
    # The run wrote the page; its figures are drawn once.
    assert (out / "report.html").stat().st_size > 10_000
    assert json.loads((tmp_path / "report.json").read_text())


def test_a_parquet_file_needs_its_extra_and_says_so(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"PAR1")
    found = without_torch(
        "from tacit.sites.table_files import read\n"
        "try:\n    read(sys.argv[1])\nexcept Exception as error:\n    print(error)\n",
        str(tmp_path / "data.parquet"),
    )
    assert "pip install 'tacit[parquet]'" in found.stdout, found.stderr


AUDITS = """
from pathlib import Path
from tacit import Privacy
from tacit.audits import audit_run, demonstrate, episodes, membership
from tacit.audits.mechanisms import PRIMITIVES
from tacit.audits.sensitivity import check_sensitivity
from tacit.experiments.experiment import construct_experiment

promise = {"unit": "record", "epsilon": 3.0, "delta": 1e-4, "clip": 1.0, "rehearsal": True}
task = {"kind": "logistic-hazard", "hidden": [4], "cuts": 5, "horizon": 3.0, "steps": 1, "sample": 0.5}
sites = {"kind": "iid", "count": 2}
data = {"kind": "simulated", "records": 80, "features": 3}
asked = construct_experiment({"data": data, "sites": sites, "task": task, "privacy": promise}, Path())
patients = asked.open_federation()
print(audit_run(asked, federation=patients, canaries=100).canaries)
print(membership(asked, patients, shadows=2).models)
print(demonstrate(asked, patients, patients=5).patients)
print(check_sensitivity(asked.task, patients, privacy=Privacy(**promise), neighbours=4).neighbours)
print(all(PRIMITIVES[name]().audit().kept for name in ("a training step", "histogram")))
worlds = {"data": {"kind": "gymnasium", "env": "CartPole-v1"}, "sites": {"kind": "variants", "copies": 1}}
agents = {"kind": "ppo", "hidden": [4], "envs": 2, "steps": 64}
played = construct_experiment({**worlds, "task": agents, "privacy": {**promise, "unit": "site"}}, Path())
import tacit.audits.episodes
sys.modules["tacit.audits.episodes"].TAKEN = 20
print(episodes(played, played.open_federation(), shadows=2).models)
"""


def test_built_in_tasks_are_audited_without_torch():
    found = without_torch(AUDITS)
    assert found.stdout.split() == ["100", "3", "5", "4", "True", "3"], found.stderr


EXPORTS = """
import tacit
from tacit.compat.export import export
from tacit.control import PPO
from tacit.functional import Boosting
from tacit.functional.data.sources import SimulatedCurves
from tacit.sites.splits import Iid
from tacit.sites.vertical import ByParty
from tacit.survival import CoxPH, LogisticHazard
from tacit.survival.data.sources import Simulated

patients = Simulated(records=80, features=3).open(Iid(count=2), 0)
for task in (LogisticHazard(hidden=(4,), cuts=5, steps=1, sample=0.5), CoxPH(cuts=5, steps=1, sample=0.5)):
    run = tacit.fit(task, patients, rounds=1)
    print(len(export(run, f"{sys.argv[1]}/{task.kind}", onnx=True)))
curves = SimulatedCurves(records=60, points=21).open(ByParty(count=2), 0)
print(len(export(tacit.fit(Boosting(size=8, steps=5), curves), f"{sys.argv[1]}/curves")))
"""


def test_built_in_models_are_exported_without_torch(tmp_path):
    found = without_torch(EXPORTS, str(tmp_path))
    assert found.stdout.split() == ["4", "4", "3"], found.stderr
