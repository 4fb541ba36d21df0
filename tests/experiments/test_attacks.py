"""Every attack against every aggregator, from one file."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.aggregation.attacks import ATTACKS, Scaling
from tacit.errors import InvalidFile, InvalidValue, Refused
from tacit.experiments import attacks

TACIT = str(Path(sys.executable).with_name("tacit"))
FILE = """
name = "liars"
rounds = 4
[data]
records = 1200
[sites]
count = 7
[task]
kind = "cox-ph"
[attack]
liars = 2
kinds = ["scaling", "label-flip"]
against = ["mean", "covariance-filter", "mixing+trimmed-mean", "bulyan"]
"""
PROMISE = """
[privacy]
unit = "site"
noise = "site"
noise_multiplier = 0.05
delta = 1e-2
clip = 1.0
rehearsal = true
"""


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "liars.toml"
    path.write_text(text)
    return path


def test_a_table_has_a_line_for_each_attack_and_a_column_for_each_rule(tmp_path):
    tried = attacks.read(written(tmp_path)).run(None)
    (table,) = tried.tables.values()
    assert list(table) == ["none", "scaling", "label-flip"]
    for row in table.values():
        assert list(row) == ["mean", "covariance-filter", "mixing+trimmed-mean", "bulyan"]
        # Seven sites are too few for two liars under Bulyan, which needs eleven.
        assert row["bulyan"] is None
    assert table["scaling"]["mean"] < 0.5 < table["scaling"]["covariance-filter"]
    assert tried.worst("without")["mean"] == table["scaling"]["mean"]
    assert "C-index when 2 of 7 sites are dishonest, without noise" in tried.summary()
    assert len(re.findall(r"(?m) -$", tried.summary())) == 4  # the column of Bulyan


def test_under_a_promise_everything_is_tried_with_noise_and_without(tmp_path):
    asked = attacks.read(written(tmp_path, FILE + PROMISE), ["attack.against=['mean', 'krum']"])
    tried = asked.run(None)
    assert list(tried.tables) == ["without", "with"]
    assert tried.tables["with"] != tried.tables["without"]
    assert tried.tables["with"]["none"]["krum"] is not None


def test_a_promise_that_is_no_rehearsal_is_refused(tmp_path):
    asked = attacks.read(written(tmp_path, FILE + PROMISE), ["privacy.rehearsal=false"])
    with pytest.raises(Refused, match="rehearsal = true"):
        asked.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_attack_can_have_its_options(tmp_path):
    text = FILE.replace('kinds = ["scaling", "label-flip"]', 'kind = "scaling"\nfactor = -3.0')
    asked = attacks.read(written(tmp_path, text))
    assert asked.attacks == {"none": None, "scaling": Scaling(liars=2, factor=-3.0)}


def test_without_kinds_every_attack_is_tried(tmp_path):
    text = FILE.replace('kinds = ["scaling", "label-flip"]\n', "")
    assert list(attacks.read(written(tmp_path, text)).attacks) == ["none", *ATTACKS]


def test_the_rule_of_the_file_is_tried_too(tmp_path):
    asked = attacks.read(written(tmp_path, FILE + '[aggregation]\nkind = "robust"\nf = 1\n'))
    assert next(iter(asked.rules)) == "as in the file"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("liars = 2", "lairs = 2", 'lairs is not known .*"liars"'),
        ("liars = 2", "liars = 0", "liars = 0"),
        ("liars = 2\n", "", "liars"),
        ('"bulyan"', '"bulian"', 'did you mean "bulyan"'),
        ('"bulyan"', '"mixin+median"', 'did you mean "mixing"'),
        ('"label-flip"', '"label-flop"', 'did you mean "label-flip"'),
        ('kinds = ["scaling", "label-flip"]', "kinds = []", "a list of kinds"),
        ('kinds = ["scaling"', 'kind = "scaling"\nkinds = ["scaling"', "left out where kind is given"),
        ("[attack]", "[atack]", r"\[attack\] is missing"),
    ],
)
def test_a_bad_table_is_refused_by_name(old, new, said, tmp_path):
    with pytest.raises(InvalidFile, match=f"(?s){said}"):
        attacks.read(written(tmp_path, FILE.replace(old, new)))


def test_more_liars_than_sites_are_refused(tmp_path):
    with pytest.raises(InvalidValue, match="liars = 7"):
        attacks.read(written(tmp_path), ["attack.liars=7"]).run(None)


def test_trials_that_were_cut_off_go_on_where_they_were(tmp_path):
    asked, seen = attacks.read(written(tmp_path)), []

    def stop(line):
        seen.append(line)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked.run(tmp_path / "run", announce=stop)
    again = []
    resumed = attacks.read(tmp_path / "run").run(tmp_path / "run", resume=True, announce=again.append)
    assert len(again) == 12 - 4
    assert resumed.tables == asked.run(None).tables


@pytest.mark.slow
def test_the_command_prints_the_table_and_keeps_it(tmp_path):
    path = written(tmp_path)
    done = subprocess.run(
        [TACIT, "run", str(path), "--out", "kept"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"(?m)^attack +mean +covariance-filter +mixing\+trimmed-mean +bulyan$", done.stdout)
    assert re.search(r"(?m)^worst +0\.\d{3} ", done.stdout)
    assert "scaling against mean, without noise" in done.stderr
    again = subprocess.run(
        [TACIT, "run", "kept", "--resume", "--out", "kept", "--json", "-q"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = json.loads(again.stdout)
    assert (told["score"], told["liars"], told["sites"]) == ("c_index", 2, 7)
    assert told["worst"]["without"]["mean"] < 0.5
    assert again.stderr == ""
