"""One book for all runs on the same people: found by path and by records, charged before anything leaves."""

import os
import re
import shutil
import stat
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from patients_and_books import PRIVATE, TASK, at_sites, borne, never_behind, opened, patients, train
from tacit import Federation, Ledger, Open, Privacy, Stopping, fit
from tacit.engines.base import Local
from tacit.errors import BudgetExhausted, LedgerUnusable
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.ledger import data_book, data_index
from tacit.privacy.ledger.data_book import DataBook, Receipt, beside, envelope
from tacit.privacy.ledger.data_index import Index
from tacit.privacy.ledger.run_ledger import RunLedger
from tacit.runs.directory import EXPERIMENT, LEDGER, Directory
from tacit.runs.fit import book_of, book_of_file
from tacit.runtime.fingerprints import People, digest_frame, sketch_frame
from tacit.sites.splits import ByColumn, Iid
from tacit.sites.vertical import VerticalFederation
from tacit.survival import PoissonPH
from tacit.survival.data.sources import Csv
from tacit.survival.statistics import cox, kaplan_meier, life_table

GRID = [1.0, 2.0, 4.0]


def test_a_second_run_on_the_same_arrays_states_the_sum():
    first, second = (train(at_sites(patients())).privacy for _ in range(2))
    assert (first.all_runs.runs, second.all_runs.runs) == (1, 2)
    assert first.all_runs.epsilon == pytest.approx(first.epsilon, rel=1e-6)
    assert second.epsilon == pytest.approx(first.epsilon)
    assert second.all_runs.epsilon > 1.15 * second.epsilon
    assert "Tacit knows of no earlier run on these records" in first.sentences()[1]
    assert "the 2 runs on these data cost any one record epsilon" in second.sentences()[1]
    assert "as a lifetime budget fixed in advance" in second.sentences()[1]


def test_other_people_have_a_book_of_their_own():
    train(at_sites(patients()))
    assert train(at_sites(patients(seed=1))).privacy.all_runs.runs == 1


@pytest.mark.parametrize(
    "changed",
    [
        lambda frame: frame.sample(frac=1, random_state=3),
        lambda frame: frame[frame.columns[::-1]],
        lambda frame: frame.rename(columns={"age": "years", "dose": "mg"}),
        lambda frame: frame.astype({"age": np.float32}),
        lambda frame: pd.concat([frame, patients(20, seed=5)]),
        lambda frame: frame.iloc[10:50],
        lambda frame: frame.assign(site=["tromso", "voss", "oslo"] * 20),
    ],
    ids=["other order", "other columns", "other names", "fewer digits", "extended", "a part", "other sites"],
)
def test_the_same_people_are_recognised_in_other_arrays(changed):
    train(at_sites(patients()))
    assert train(at_sites(changed(patients()))).privacy.all_runs.runs == 2


def few_valued(seed=1, count=400):
    draws = np.random.default_rng(seed)
    levels = {"a": 2, "b": 2, "c": 3, "event": 2}
    columns = {name: draws.integers(0, many, count).astype(float) for name, many in levels.items()}
    return pd.DataFrame({**columns, "time": draws.integers(1, 5, count) * 1.0}).assign(
        site=["oslo", "bergen"] * (count // 2)
    )


@pytest.mark.parametrize(
    "changed",
    [
        lambda frame: frame.drop(columns="dose"),
        lambda frame: frame.assign(age=(frame["age"] - frame["age"].mean()) / frame["age"].std()),
        lambda frame: frame.round(3),
        lambda frame: frame.assign(weight=frame["age"] + 9 * frame["dose"]),
        lambda frame: frame.assign(time=frame["time"] * 30.4, dose=0.0),
    ],
    ids=["column dropped", "standardised", "rounded", "column added", "one column left"],
)
def test_the_same_people_are_recognised_when_some_columns_change(changed, tmp_path):
    train(at_sites(patients(200)))
    assert train(at_sites(changed(patients(200)))).privacy.all_runs.runs == 2
    patients(200, seed=1).to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    changed(pd.read_csv(tmp_path / "a.csv")).to_csv(tmp_path / "b.csv", index=False, float_format="%.4f")
    assert train(opened(tmp_path / "b.csv")).privacy.all_runs.runs == 2


def test_the_same_people_are_recognised_when_each_of_them_is_there_thrice(tmp_path):
    # A promise about single records refuses such data; one about whole sites does not.
    whole = Privacy(unit="site", epsilon=2.0, delta=1e-5, clip=1.0, noise="server")
    train(at_sites(patients(200)))
    assert train(at_sites(pd.concat([patients(200)] * 3)), whole).privacy.all_runs.runs == 2
    patients(200, seed=1).to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    thrice = pd.concat([pd.read_csv(tmp_path / "a.csv")] * 3)
    thrice.to_csv(tmp_path / "b.csv", index=False, float_format="%.4f")
    assert train(opened(tmp_path / "b.csv"), whole).privacy.all_runs.runs == 2


def test_records_that_look_alike_are_recognised_without_one_of_them(tmp_path):
    train(at_sites(few_valued()))
    assert train(at_sites(few_valued().iloc[1:])).privacy.all_runs.runs == 2
    assert train(at_sites(few_valued(seed=2))).privacy.all_runs.runs == 1


def test_a_file_that_is_renamed_saved_anew_or_extended_is_charged_to_the_same_book(tmp_path):
    (tmp_path / "other").mkdir()
    patients().to_csv(tmp_path / "a.csv", index=False)
    os.link(tmp_path / "a.csv", tmp_path / "b.csv")
    patients()[["site", "event", "dose", "time", "age"]].to_csv(
        tmp_path / "other" / "c.csv", index=False, float_format="%.9g", lineterminator="\r\n"
    )
    pd.concat([patients(), patients(10, seed=4)]).to_parquet(tmp_path / "d.parquet")
    runs = [train(opened(tmp_path / name)) for name in ("a.csv", "b.csv", "other/c.csv", "d.parquet")]
    assert [run.privacy.all_runs.runs for run in runs] == [1, 2, 3, 4]
    for name in ("a.csv", "b.csv", "other/c.csv", "d.parquet"):
        assert book_of_file(tmp_path / name).total(1e-5, "record").runs == 4
        assert borne(beside(tmp_path / name)) == borne(beside(tmp_path / "a.csv"))


def test_a_file_and_the_arrays_in_it_have_one_book(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    assert train(at_sites(pd.read_csv(tmp_path / "a.csv"))).privacy.all_runs.runs == 2


def test_a_path_is_enough_to_find_the_book_whatever_is_in_the_file_now(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    patients(seed=8).to_csv(tmp_path / "a.csv", index=False)
    assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 2


def test_a_book_beside_the_file_is_enough_where_the_index_is_new(tmp_path, monkeypatch):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 2


def test_a_book_that_is_lost_beside_the_file_is_written_again(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    beside(tmp_path / "a.csv").unlink()
    assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 2
    with Ledger(beside(tmp_path / "a.csv"), mode="read") as ledger:
        assert len({row["ticket"] for row in ledger.entries() if row["kind"] == "release"}) == 2


def test_some_people_in_common_are_told_of_and_not_added_up():
    train(at_sites(patients(200)))
    shared = pd.concat([patients(200).iloc[:6], patients(200, seed=2)])
    told = train(at_sites(shared)).privacy
    assert told.all_runs.runs == 1
    assert "for people in both, the two totals add up" in told.sentences()[1]


def test_tables_whose_records_look_alike_are_not_taken_for_the_same_people():
    draws = np.random.default_rng(0)
    few = [pd.DataFrame(draws.integers(0, 2, (200, 3)), columns=list("abc")) for _ in range(2)]
    first, second = (People((), sketch_frame(frame), b"") for frame in few)
    index = Index()
    with index.lock():
        index.keep(first)
    assert index.find(first).same
    assert not index.find(second).same
    assert not index.find(second).near


def test_an_index_that_was_moved_away_is_written_anew_under_its_new_key(tmp_path):
    """One process may see both: what it worked out for the first key says nothing under the second."""
    people = People((), sketch_frame(patients()), b"")
    fewer = People((), sketch_frame(patients().iloc[5:]), b"")
    index = Index()
    with index.lock():
        index.keep(people)
    shutil.move(data_index.state_directory(), tmp_path / "away")
    with index.lock():
        kept = index.keep(people)
    assert Index().find(fewer).same == (kept,)


def test_rehearsals_open_runs_and_public_records_charge_nothing(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    rehearsal = Csv(path=str(tmp_path / "a.csv")).open(ByColumn(column="site"), 0, may_look=True)
    assert train(rehearsal, replace(PRIVATE, rehearsal=True)).privacy.all_runs is None
    assert train(rehearsal, Open()).privacy.all_runs is None
    public = at_sites(patients())
    public.public = True
    assert train(public).privacy.all_runs is None
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert not data_index.state_directory().exists()


def test_the_index_is_readable_by_its_owner_alone_and_holds_no_value(tmp_path):
    frame = patients().assign(age=123456.5)
    frame.to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    files = [path for path in data_index.state_directory().rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"key", "known.json", "people-1", "book.ledger"}
    for path in files:
        kept = path.read_bytes()
        assert path.name == "book.ledger" or stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not any(word in kept for word in (b"123456", b"oslo", np.float64(123456.5).tobytes()))
        for digest in digest_frame(pd.read_csv(tmp_path / "a.csv")):
            assert int(digest).to_bytes(8, "little") not in kept
    for folder in (data_index.state_directory(), *data_index.state_directory().rglob("*")):
        assert not folder.is_dir() or stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_envelope_bounds_every_subject_of_a_plan():
    draws = np.random.default_rng(1)
    for _ in range(20):
        plan = [
            Release(
                scale=float(draws.choice([2.0, 3.0])), sensitivity=1.0, count=int(draws.integers(1, 9)),
                subject=str(draws.choice(["records", "records@oslo", "records@voss"])), purpose=f"round {n}",
            )
            for n in range(6)
        ]  # fmt: skip
        assert accounting.epsilon(envelope(plan), 1e-5) >= accounting.epsilon(plan, 1e-5) - 1e-9
    sites = [Release(scale=2.0, sensitivity=1.0, unit="site", subject="sites", count=3)]
    assert [row.subject for row in envelope([*plan, *sites])][-1] == "sites"


def test_sites_that_are_dealt_otherwise_still_add_up_for_one_person(tmp_path):
    frame = patients()
    by_site = at_sites(frame)
    other = at_sites(frame.assign(site=np.where(frame["dose"] > 0, "high", "low")))
    one = Federation({"all": by_site.store})
    assert [train(part).privacy.all_runs.runs for part in (by_site, other, one)] == [1, 2, 3]
    (place,) = book_of(one, PRIVATE).ledgers()
    with Ledger(place, mode="read") as ledger:
        assert {row.subject for row in ledger.releases()} == {"records"}


def test_runs_about_whole_sites_count_for_their_records_and_not_the_other_way_round():
    federation = at_sites(patients())
    train(federation)
    whole = Privacy(unit="site", epsilon=2.0, delta=1e-5, clip=1.0, noise="server")
    told = train(federation, whole).privacy.all_runs
    assert (told.runs, told.unit) == (2, "site")
    assert told.epsilon == pytest.approx(2.0, rel=1e-2)
    assert "1 of these runs protects single records only" in told.notes[0]
    assert train(federation).privacy.all_runs.epsilon > 3.0


def test_vertical_parties_release_about_the_same_people():
    from tacit.functional import Boosting
    from tacit.functional.curves import curves

    draws = np.random.default_rng(0)
    held = {name: curves(draws.normal(size=(40, 15)), name=name, domain=(0, 1)) for name in ("x1", "x2", "y")}
    parties = {"clinic": {"x1": held["x1"], "y": held["y"]}, "lab": {"x2": held["x2"]}}
    promise = Privacy(unit="record", epsilon=5.0, delta=1e-5, clip=5.0)
    made = [
        VerticalFederation(parties),
        VerticalFederation({"clinic": {"y": held["y"]}, "lab": {"x2": held["x2"]}}),
    ]
    runs = [fit(Boosting(response="y", size=5), part, privacy=promise) for part in made]
    assert [run.privacy.all_runs.runs for run in runs] == [1, 2]
    assert runs[0].privacy.all_runs.epsilon >= runs[0].privacy.epsilon


def test_a_lifetime_outranks_the_budget_of_a_run_and_nothing_is_charged_or_written(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    run = train(opened(tmp_path / "a.csv"), out=tmp_path / "one")
    book_of_file(tmp_path / "a.csv").allow(1.0, 1e-5)
    before = [path.read_bytes() for path in book_of_file(tmp_path / "a.csv").ledgers()]
    patients().iloc[::-1].to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(
        BudgetExhausted, match=r"lifetime budget of these records does not cover it: .* nothing was charged"
    ):
        train(opened(tmp_path / "b.csv"), out=tmp_path / "two")
    assert before == [path.read_bytes() for path in book_of_file(tmp_path / "a.csv").ledgers()]
    assert not (tmp_path / "two").exists()
    assert not beside(tmp_path / "b.csv").exists()
    assert run.privacy.all_runs.lifetime is None
    book_of_file(tmp_path / "a.csv").allow(4.0, 1e-5)
    told = train(opened(tmp_path / "b.csv")).privacy.all_runs
    assert (told.runs, told.lifetime) == (2, (4.0, 1e-5))


SITE_LEVEL = clipped_release(accounting.calibrate(3.0, 1e-5), unit="site", subject="sites")


def test_the_total_of_a_record_counts_a_site_level_run_as_an_exchange_of_its_site():
    book = DataBook(People((), (), b"people"))
    book.charge([SITE_LEVEL], run="first")
    assert book.total(1e-5, "site").epsilon <= 3.0
    alone = book.total(1e-5, "record").epsilon
    assert alone == accounting.epsilon([SITE_LEVEL.under_replacement()], 1e-5) > 6.7
    # A little more about records adds a little.
    book.charge([Release(scale=1e4, sensitivity=1.0, subject="records@oslo")], run="second")
    assert alone <= book.total(1e-5, "record").epsilon < 1.1 * alone


@pytest.mark.parametrize("older", [False, True], ids=["set by this version", "set for everybody alone"])
def test_a_lifetime_binds_records_where_all_runs_protect_whole_sites(tmp_path, older):
    patients().to_csv(tmp_path / "a.csv", index=False)
    book = book_of_file(tmp_path / "a.csv")
    book.allow(5.0, 1e-5)
    if older:
        for path in [*book.ledgers()]:
            path.unlink()
            with Ledger(path) as ledger:
                ledger.allow(epsilon=5.0, delta=1e-5)
    with pytest.raises(BudgetExhausted, match=r"budget of records exhausted: epsilon would be 6\.706"):
        book.check([SITE_LEVEL])
    with pytest.raises(BudgetExhausted, match=r"budget of records exhausted: epsilon would be 6\.706"):
        book.charge([SITE_LEVEL], run="first")
    assert book.total(1e-5, "site").runs == 0
    book.allow(7.0, 1e-5)
    assert book.charge([SITE_LEVEL], run="first")
    assert book.total(1e-5, "record").lifetime == (7.0, 1e-5)


def test_a_smaller_lifetime_of_another_copy_is_not_outranked_by_that_of_records(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    book = book_of_file(tmp_path / "a.csv")
    book.allow(7.0, 1e-5)
    with Ledger(beside(tmp_path / "a.csv")) as ledger:
        assert set(ledger.budgets()) == {"*", "records"}
    beside(tmp_path / "a.csv").unlink()
    with Ledger(beside(tmp_path / "a.csv")) as ledger:
        ledger.allow(epsilon=5.0, delta=1e-5)
    with pytest.raises(BudgetExhausted, match="5 is allowed"):
        book.charge([SITE_LEVEL], run="first")


def test_a_watched_loss_that_is_bought_is_in_the_plan_that_a_lifetime_bears():
    federation = at_sites(patients())
    stop = Stopping(epsilon=0.3, patience=1)
    told = train(federation, stop=stop).privacy
    assert told.all_runs.epsilon == pytest.approx(told.epsilon, rel=1e-6)
    book_of(federation, PRIVATE).allow(1.1 * told.epsilon, 1e-5)
    with pytest.raises(BudgetExhausted):
        train(federation, stop=stop)


def test_statistics_with_epsilon_charge_the_book(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    federation, ledger = opened(tmp_path / "a.csv"), Ledger()
    table = life_table(federation, grid=GRID, epsilon=0.5, ledger=ledger)
    assert "Tacit knows of no earlier run on these records" in table.provenance
    again = kaplan_meier(federation, grid=GRID, epsilon=0.5, ledger=ledger)
    assert "the 2 runs on these data cost any one record epsilon 1 in total" in again.provenance
    ranges = {"age": (0, 100), "dose": (-3, 3)}
    found = cox(federation, grid=GRID, epsilon=1.0, delta=1e-5, ranges=ranges, ledger=ledger)
    assert "the 3 runs on these data" in found.provenance
    # Curves of a table that was paid for cost nothing more.
    kaplan_meier(table)
    assert book_of_file(tmp_path / "a.csv").total(1e-5, "record").runs == 3
    book_of_file(tmp_path / "a.csv").allow(2.0, 1e-5)
    spent = ledger.spent(1e-5)
    with pytest.raises(BudgetExhausted):
        life_table(federation, grid=GRID, epsilon=1.0, ledger=ledger)
    assert ledger.spent(1e-5) == spent


def test_statistics_that_are_rehearsed_or_bare_charge_nothing():
    from tacit.runtime.keys import Key

    federation = at_sites(patients())
    life_table(federation, grid=GRID)
    life_table(federation, grid=GRID, epsilon=1.0, ledger=Ledger(), key=Key(3, rehearsal=True))
    assert not data_index.state_directory().exists()


def test_a_book_that_can_be_written_nowhere_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerUnusable, match="XDG_STATE_HOME"):
        train(at_sites(patients()), out=tmp_path / "run")


def test_a_state_directory_that_cannot_be_leaves_the_book_beside_the_file(tmp_path, monkeypatch):
    patients().to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a.csv"))
    assert [train(opened(tmp_path / "a.csv")).privacy.all_runs.runs for _ in range(2)] == [1, 2]


def test_an_index_that_is_damaged_is_refused_and_not_begun_anew(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    (data_index.state_directory() / "key").write_bytes(b"short")
    with pytest.raises(LedgerUnusable, match="must hold 32 bytes"):
        train(opened(tmp_path / "a.csv"))


@pytest.mark.parametrize("lost", ["key", "data", "known.json", "book.ledger"])
def test_a_part_of_the_state_directory_that_is_lost_is_refused_and_its_advice_works(tmp_path, lost):
    train(at_sites(patients()))
    root, backup = data_index.state_directory(), tmp_path / "backup"
    shutil.copytree(root, backup)
    (place,) = root.rglob(lost)
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    for changed in (patients(), patients().iloc[1:]):
        with pytest.raises(LedgerUnusable, match="restore it from a backup") as refused:
            train(at_sites(changed))
    # What the message names is moved away: everything begins anew.
    (away,) = re.findall(r"move (\S+) away", str(refused.value))
    shutil.move(away, tmp_path / "moved away")
    assert train(at_sites(patients())).privacy.all_runs.runs == 1
    shutil.rmtree(root)
    shutil.copytree(backup, root)
    assert train(at_sites(patients())).privacy.all_runs.runs == 2


def test_a_lost_lifetime_is_a_loss_as_well():
    federation = at_sites(patients())
    book_of(federation, PRIVATE).allow(0.5, 1e-5)
    (place,) = book_of(federation, PRIVATE).ledgers()
    place.unlink()
    with pytest.raises(LedgerUnusable, match="is lost"):
        train(federation)


def test_a_book_that_is_lost_in_the_state_directory_is_written_again_from_beside_the_file(
    tmp_path, monkeypatch
):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    (book,) = data_index.state_directory().rglob("book.ledger")
    book.unlink()
    assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 2
    assert borne(book) == borne(beside(tmp_path / "a.csv"))
    # Another user's book beside the file does not know these runs.
    beside(tmp_path / "a.csv").unlink()
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
        assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 1
    book.unlink()
    with pytest.raises(LedgerUnusable, match="is lost"):
        train(opened(tmp_path / "a.csv"))


def test_a_link_to_a_file_has_the_book_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    patients().to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "other" / "link.csv").symlink_to(tmp_path / "a.csv")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a.csv"))
    names = ("a.csv", "other/link.csv", "a.csv", "other/link.csv")
    assert [train(opened(tmp_path / name)).privacy.all_runs.runs for name in names] == [1, 2, 3, 4]
    beside(tmp_path / "a.csv").unlink()
    assert train(opened(tmp_path / "other" / "link.csv")).privacy.all_runs.runs == 5
    assert borne(beside(tmp_path / "a.csv")) == borne(beside(tmp_path / "other" / "link.csv"))


def test_data_in_several_files_have_a_book_beside_each(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no folder"))
    (tmp_path / "no folder").write_text("")
    files = (tmp_path / "y.csv", tmp_path / "x1.csv", tmp_path / "x2.csv")
    plan = [Release(scale=3.0, sensitivity=1.0)]
    DataBook(People(files, (), b"")).charge(plan, run="one")
    for number, file in enumerate(reversed(files), start=2):
        book = DataBook(People((file,), (), b""))
        book.charge(plan, run=f"run {number}")
        assert book.total(1e-5, "record").runs == 2


def test_the_total_is_over_all_copies_of_the_book(tmp_path, monkeypatch):
    patients().to_csv(tmp_path / "a.csv", index=False)
    one = train(opened(tmp_path / "a.csv")).privacy
    beside(tmp_path / "a.csv").unlink()
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
        assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 1
    book = book_of_file(tmp_path / "a.csv")
    told, before = book.total(1e-5, "record"), [path.read_bytes() for path in book.ledgers()]
    assert told.runs == 2
    assert told.epsilon > 1.15 * one.epsilon
    with book.unite() as union:
        assert union.spent(1e-5) == pytest.approx(told.epsilon)
    assert [path.read_bytes() for path in book.ledgers()] == before


def test_the_delta_of_each_run_reaches_every_copy_of_the_book(tmp_path, monkeypatch):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"), replace(PRIVATE, delta=1e-4))
    beside(tmp_path / "a.csv").unlink()
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
        life_table(opened(tmp_path / "a.csv"), grid=GRID, epsilon=0.5, delta=1e-3, ledger=Ledger())
    # A run that is over brings all copies together.
    train(opened(tmp_path / "a.csv"), replace(PRIVATE, delta=2e-4))
    book = book_of_file(tmp_path / "a.csv")
    for path in book.ledgers():
        with Ledger(path, mode="read") as ledger:
            assert ledger.stated_deltas() == [1e-4, 2e-4, 1e-3]
            assert ledger.usual_delta() == 1e-4
    with book.unite() as union:
        assert union.stated_deltas() == [1e-4, 2e-4, 1e-3]


def test_a_receipt_counts_if_the_book_holds_its_charge():
    federation = at_sites(patients())
    train(federation)
    federation.receipt = federation.payer = "somebody"
    assert train(federation).privacy.all_runs.runs == 2
    for number, forged in enumerate(("somebody", Receipt("somebody", ())), start=3):
        assert train(federation.carry(forged)).privacy.all_runs.runs == number
    plan = [Release(scale=9.0, sensitivity=1.0, count=9)]
    receipt = book_of(federation, PRIVATE).charge_ahead(plan, run="ahead")
    assert book_of(federation, PRIVATE).accept(receipt) == receipt
    # What the receipt does not cover is charged to its run.
    paid = train(federation.carry(receipt)).privacy.all_runs
    assert paid.runs == 5
    assert paid.epsilon > accounting.epsilon(plan, 1e-5) + 0.5


@pytest.mark.parametrize("ticket", [None, "extra"])
def test_what_a_run_charges_beyond_its_plan_is_in_the_book(tmp_path, ticket):
    book = book_of(at_sites(patients()), PRIVATE)
    row = Release(scale=3.0, sensitivity=1.0, subject="records@oslo", purpose="round 1")
    with RunLedger(tmp_path / "own", book=book) as ledger:
        ledger.cover([replace(row, count=2), replace(row, subject="records@bergen", count=2)], run="r")
        for number in (1, 2):
            ledger.charge([row, replace(row, subject="records@bergen")], ticket=f"round {number}")
        (place,) = book.ledgers()
        assert sum(borne(place).values()) == 2
        for number in (1, 2):
            ledger.charge([row], ticket=ticket and f"{ticket} {number}")
        ledger.charge([replace(row, scale=2.0)], ticket="louder")
        ledger.charge([replace(row, scale=2.0)], ticket="louder")
        ledger.owe([row], ticket="owed")
    never_behind(tmp_path / "own", [place])
    assert sum(borne(place).values()) == 2 + 2 + 1 + 1
    with RunLedger(tmp_path / "own", book=book) as ledger:
        # Resumed, nothing is left of the plan.
        ledger.cover([replace(row, count=2), replace(row, subject="records@bergen", count=2)], run="r")
        ledger.charge([row], ticket="resumed")
    never_behind(tmp_path / "own", [place])
    assert book.total(1e-5, "record").runs == 1


def test_a_charge_before_any_plan_is_in_the_book(tmp_path):
    book, row = book_of(at_sites(patients()), PRIVATE), Release(scale=3.0, sensitivity=1.0)
    with RunLedger(tmp_path / "own", book=book) as ledger:
        ledger.charge([row])
    never_behind(tmp_path / "own", book.ledgers())
    assert book.total(1e-5, "record").runs == 1


def test_a_file_whose_folder_cannot_be_written_has_its_book_in_the_state_directory(tmp_path, monkeypatch):
    patients().to_csv(tmp_path / "a.csv", index=False)
    # Where a ledger cannot be made, whoever asks: a folder is in its place.
    monkeypatch.setattr(data_book, "beside", lambda file: file.parent / "locked" / file.name)
    assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 1
    assert train(opened(tmp_path / "a.csv")).privacy.all_runs.runs == 2


def test_a_split_that_is_simulated_is_still_about_the_same_people(tmp_path):
    patients().to_csv(tmp_path / "a.csv", index=False)
    train(opened(tmp_path / "a.csv"))
    one = Csv(path=str(tmp_path / "a.csv"), leave=("site",)).open(Iid(count=1), 0)
    assert train(one).privacy.all_runs.runs == 2


class Crash(BaseException):
    """The process is gone."""


class Clock:
    """Ends the process at the n-th time that something is about to happen, or has just happened."""

    def __init__(self, last: int) -> None:
        self.last, self.now = last, 0

    def __call__(self) -> None:
        self.now += 1
        if self.now == self.last:
            raise Crash

    def around(self, owner, name, monkeypatch) -> None:
        real = getattr(owner, name)

        def both(*args, **kwargs):
            self()
            found = real(*args, **kwargs)
            self()
            return found

        monkeypatch.setattr(owner, name, both)


LARGE = [
    (Ledger, "charge"), (Ledger, "owe"), (Ledger, "check"), (DataBook, "check"), (RunLedger, "cover"),
    (Index, "keep"), (Directory, "write_checkpoint"), (Local, "train"),
]  # fmt: skip
SMALL = [(Ledger, "allow"), (Ledger, "_append"), (data_index, "write_own"), (Directory, "write")]


def interrupted(run, last, steps):
    """Run until the given one of all instants before and after these steps; whether there was such one."""
    monkeypatch, clock = pytest.MonkeyPatch(), Clock(last)
    for owner, name in steps:
        clock.around(owner, name, monkeypatch)
    try:
        run()
    except Crash:
        return True
    finally:
        monkeypatch.undo()
    return False


WATCHED = Stopping(epsilon=0.3, patience=1)


@pytest.mark.parametrize(
    ("stop", "steps"),
    [
        pytest.param(None, LARGE, id="plain"),
        pytest.param(None, LARGE + SMALL, id="plain, every step", marks=pytest.mark.slow),
        pytest.param(WATCHED, LARGE + SMALL, id="watched, every step", marks=pytest.mark.slow),
    ],
)
def test_a_crash_at_any_instant_never_leaves_the_book_behind(tmp_path, stop, steps):
    whole = Counter()
    for last in range(1, 1000):
        place, csv = tmp_path / f"run-{last}", tmp_path / f"{last}.csv"
        patients(seed=last).to_csv(csv, index=False)

        def run(place=place, csv=csv):
            return fit(TASK, opened(csv), privacy=PRIVATE, rounds=1, stop=stop, out=place, resume=True)

        if not interrupted(run, last, steps):
            break
        never_behind(place / LEDGER, [beside(csv)])
        done = run()
        books = book_of_file(csv).ledgers()
        assert len(books) == 2
        never_behind(place / LEDGER, books)
        # Resumed, it has paid its plan once.
        assert done.privacy.all_runs.runs == 1
        assert done.privacy.all_runs.epsilon == pytest.approx(done.privacy.epsilon, rel=1e-6)
        whole = whole or borne(books[0])
        assert borne(books[0]) == borne(books[1]) == whole
    assert last > 3 * len(steps)


def test_two_plans_of_one_run_are_two_charges_and_one_run():
    book, plan = book_of(at_sites(patients()), PRIVATE), [Release(scale=3.0, sensitivity=1.0)]
    assert book.charge(plan, run="r", name="a")
    assert not book.charge(plan, run="r", name="a")
    assert book.charge([*plan, *plan], run="r", name="a")
    assert book.total(1e-5, "record").runs == 1
    (place,) = book.ledgers()
    assert sum(borne(place).values()) == 3


class Forgetful(PoissonPH):
    """A task that cannot be written down: what was cut off is never repeated."""

    identity = None


def test_what_a_resumed_run_pays_twice_is_twice_in_the_book(tmp_path):
    """If the noise of a round cannot be drawn again, its own ledger pays again; so must the book."""
    csv, torch_seed = tmp_path / "a.csv", torch.initial_seed()
    patients().to_csv(csv, index=False)
    task = Forgetful(horizon=4.0, steps=2)
    promise = replace(PRIVATE, epsilon=None, noise_multiplier=2.0)

    def run():
        return fit(task, opened(csv), privacy=promise, rounds=3, out=tmp_path / "run", resume=True)

    twice = 0
    for last in range(20, 200, 7):
        if not interrupted(run, last, LARGE + SMALL):
            break
        twice += 1
        never_behind(tmp_path / "run" / LEDGER, book_of_file(csv).ledgers())
    assert twice > 2
    done = run()
    never_behind(tmp_path / "run" / LEDGER, book_of_file(csv).ledgers())
    assert done.privacy.all_runs.runs == 1
    assert done.privacy.all_runs.epsilon >= done.privacy.epsilon
    assert torch.initial_seed() == torch_seed


def test_a_copy_of_a_run_that_is_resumed_with_other_work_is_charged_once_more(tmp_path):
    """Another learning rate draws new noise: the rounds that both copies release are in the book twice."""
    csv, promise = tmp_path / "a.csv", replace(PRIVATE, epsilon=None, noise_multiplier=2.0)
    patients().to_csv(csv, index=False)

    def run(place, lr=0.05):
        task = replace(TASK, lr=lr)
        return fit(task, opened(csv), privacy=promise, rounds=4, out=tmp_path / place, resume=True)

    def end_after_two(entry):
        if entry.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(replace(TASK, lr=0.05), opened(csv), privacy=promise, rounds=4, out=tmp_path / "one",
            callbacks=[end_after_two])  # fmt: skip
    for copy in ("alike", "edited"):
        shutil.copytree(tmp_path / "one", tmp_path / copy)
    file = tmp_path / "edited" / EXPERIMENT
    file.write_text(file.read_text().replace("lr = 0.05", "lr = 0.06"))
    run("one")
    (place, *_) = book_of_file(csv).ledgers()
    whole = sum(borne(place).values())
    # The same work gives the same bits: nothing more has left.
    run("alike")
    assert sum(borne(place).values()) == whole
    # Two of four rounds of two steps have left a second time, and so has the count of records.
    run("edited", lr=0.06)
    assert sum(borne(place).values()) == whole + 2 * 2 + 1
