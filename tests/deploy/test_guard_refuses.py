"""A guard answers what its site's own file lets through, and nothing else; both sides are told why."""

import math
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from in_process import handed

from tacit.aggregation.secure import Identity
from tacit.deploy.site.config import SiteLimits, accept, identity
from tacit.deploy.site.guard import Guard
from tacit.deploy.site.preflight import check
from tacit.engines.messages import COORDINATOR, Envelope, SignedMessage, encode_arrays, sign_message
from tacit.errors import BudgetExhausted, LedgerTampered, Refused, SitesUnreachable
from tacit.privacy.ledger.store import Ledger
from tacit.runtime.keys import Key

SURVIVAL = Path(__file__).parents[2] / "examples" / "network.toml"
SMALL = ["sites.count=3", "rounds=2", "data.records=300", "task.cuts=5", "task.hidden=[4]"]
STRICT = SiteLimits(epsilon=4.0, lifetime=10.0, delta=1e-5, fewest=20)


def private(document):
    """The records are somebody's, and nothing repeats."""
    document["data"]["public"] = False
    document["data"].pop("reference", None)
    document["data"].pop("test", None)
    document["privacy"]["rehearsal"] = False


def strict_town(tmp_path: Path, limits: SiteLimits = STRICT, changes=(), edit=None):
    def edited(document):
        private(document)
        if edit is not None:
            edit(document)

    town, _, _ = handed(SURVIVAL, [*SMALL, *changes], tmp_path / "town", limits, edited)
    return town


def spent(town, name: str = "site-1") -> float:
    with Ledger(town.sites[name] / "state" / "ledger.db", mode="read") as ledger:
        return ledger.spent(1e-5)


def test_a_real_promise_runs_and_each_site_has_it_on_its_own_ledger(tmp_path: Path):
    town = strict_town(tmp_path)
    run = town.run(tmp_path / "run")
    assert run.privacy.epsilon <= 3.0
    for name in town.sites:
        assert spent(town, name) == pytest.approx(run.privacy.epsilon, abs=1e-3)
    assert "Nothing" not in run.summary()


def test_the_number_of_records_is_bought_where_nobody_knows_it(tmp_path: Path):
    def unknown(document):
        del document["data"]["records"]

    town = strict_town(tmp_path, edit=unknown)
    run = town.run(tmp_path / "run")
    assert run.privacy.epsilon <= 3.0
    purposes = {release.purpose for release in Ledger(run.path / "ledger.db").releases()}
    assert "number of records" in purposes
    assert any("answered the number of records" in line for line in town.heard["site-2"])


REFUSED = {
    "an experiment that costs too much": (
        {}, ["privacy.epsilon=5"], BudgetExhausted, "4 is the limit of this site for one"
    ),
    "no promise at all": ({}, ["privacy.kind=open"], Refused, "makes no promise"),
    "a rehearsal": ({"rehearsal": True}, [], Refused, "protects no record of this site"),
    "records taken as public": ({"public": True}, [], Refused, "as public, and this site does not"),
    "a larger delta": ({}, ["privacy.delta=1e-4"], Refused, "above 1e-05"),
    "a server that would have to be trusted": (
        {}, ["privacy.unit=site", "privacy.noise=server", "task.sample=1.0"], Refused, "without noise"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED, ids=str)
def test_what_a_sites_limits_forbid_is_refused_with_the_reason_on_both_sides(what: str, tmp_path: Path):
    marks, changes, kind, words = REFUSED[what]

    def edit(document):
        document["data"]["public"] = marks.get("public", False)
        if "privacy" in document and document["privacy"].get("kind") != "open":
            document["privacy"]["rehearsal"] = marks.get("rehearsal", False)
        if "privacy.kind=open" in changes:
            document["privacy"] = {"kind": "open"}

    told = [change for change in changes if change != "privacy.kind=open"]
    town = strict_town(tmp_path, changes=told, edit=edit)
    with pytest.raises(kind, match=words):
        town.run(tmp_path / "run")
    assert any(words in line for line in town.heard["site-1"])
    assert not (town.sites["site-1"] / "state" / "ledger.db").exists() or spent(town) == 0.0


def test_a_lifetime_bears_as_many_experiments_as_fit_and_then_no_more(tmp_path: Path):
    town = strict_town(tmp_path, SiteLimits(epsilon=4.0, lifetime=3.5, delta=1e-5, fewest=20))
    town.run(tmp_path / "first")
    before = spent(town)
    with pytest.raises(BudgetExhausted, match=r"site-1 refuses: .*exhausted"):
        town.run(tmp_path / "second")
    assert spent(town) == before
    assert any("exhausted" in line for line in town.heard["site-1"])


def test_a_lifetime_binds_single_records_in_experiments_that_protect_whole_sites(tmp_path: Path):
    changes = ["privacy.unit=site", "privacy.noise=server", "task.sample=1.0", "privacy.epsilon=3"]
    limits = SiteLimits(epsilon=4.0, lifetime=5.0, delta=1e-5, fewest=20, trusted=True)
    town = strict_town(tmp_path / "a", limits, changes)
    with pytest.raises(BudgetExhausted, match=r"budget of records exhausted: epsilon would be 6\.7"):
        town.run(tmp_path / "a" / "run")
    town = strict_town(tmp_path / "b", replace(limits, lifetime=8.0), changes)
    run = town.run(tmp_path / "b" / "run")
    # The promise of the experiment itself is about sites, and stays what it was.
    assert run.privacy.epsilon <= 3.0
    told = [finding.what for finding in check(town.sites["site-1"]) if "on the ledger" in finding.what]
    assert "epsilon 6.7" in told[0]


def test_tasks_that_are_not_listed_and_too_few_records_are_refused(tmp_path: Path):
    town = strict_town(tmp_path / "a", SiteLimits(epsilon=4.0, tasks=("cox-ph",)))
    with pytest.raises(Refused, match="logistic-hazard is not allowed at this site"):
        town.run(tmp_path / "a" / "run")
    town = strict_town(tmp_path / "b", SiteLimits(epsilon=4.0, fewest=10_000))
    with pytest.raises(Refused, match="the log of the site gives the reason"):
        town.run(tmp_path / "b" / "run")
    assert any("must hold 10000 records at least" in line for line in town.heard["site-1"])
    assert not any("10000" in line for line in town.said)


def test_what_is_wrong_with_records_stays_in_the_sites_own_log(tmp_path: Path):
    town = strict_town(tmp_path)
    (file,) = (town.sites["site-2"] / "data").glob("*.parquet")
    import pandas as pd

    frame = pd.read_parquet(file)
    frame.loc[3, "time"] = -17.25
    frame.to_parquet(file)
    with pytest.raises(Refused, match="site-2 refuses: its records cannot be used"):
        town.run(tmp_path / "run")
    assert any("time is not allowed: it must be above 0" in line for line in town.heard["site-2"])
    assert not any("1 of" in line for line in town.heard["site-2"])
    assert not any("time" in line for line in town.said)
    details = file.with_name(f"{file.name}.refused.txt")
    assert details.stat().st_mode & 0o777 == 0o600
    assert "time in site site-2 is not allowed: 1 of" in details.read_text()
    assert "Records, the first being 1: 4\n" in details.read_text()


def test_code_is_never_loaded_whatever_table_names_it(tmp_path: Path):
    for table in ("task", "aggregation", "privacy"):
        town = strict_town(tmp_path / table, edit=lambda document: None)
        guard = town.neighbours.guards["site-1"]
        text = (
            (town.coordinator / "experiment.toml")
            .read_text()
            .replace(f"[{table}]", f'[{table}]\nkind = "os:system"\n[{table}.old]', 1)
        )
        letter = SignedMessage(
            writer=COORDINATOR, reader="site-1", about="agree", content={"experiment": text, "run": "ab"}
        )
        answer = read(guard.answer(sign_message(letter, identity(town.coordinator))))
        assert answer.about == "refused"
        assert "would have to be imported" in answer.content["why"]


def read(sent: bytes) -> SignedMessage:
    return msgspec.msgpack.decode(msgspec.msgpack.decode(sent, type=Envelope).letter, type=SignedMessage)


def test_who_is_not_the_coordinator_is_not_answered(tmp_path: Path):
    town = strict_town(tmp_path)
    guard = town.neighbours.guards["site-1"]
    letter = SignedMessage(writer=COORDINATOR, reader="site-1", about="hello")
    answer = read(guard.answer(sign_message(letter, Identity.fresh())))
    assert (answer.about, "not signed by" in answer.content["why"]) == ("refused", True)
    other = SignedMessage(writer=COORDINATOR, reader="site-2", about="hello")
    answer = read(guard.answer(sign_message(other, identity(town.coordinator))))
    assert "for 'site-2'" in answer.content["why"]
    for nonsense in (b"", b"\xff" * 40, b"\x81" * 5000):
        assert read(guard.answer(nonsense)).about == "refused"


def asked(town, what: dict, numbers: bytes, guard=None) -> SignedMessage:
    letter = SignedMessage(
        writer=COORDINATOR,
        reader="site-1",
        about="work",
        content={"run": what.pop("run"), **what},
        numbers=numbers,
    )
    found = (guard or town.neighbours.guards["site-1"]).answer(
        sign_message(letter, identity(town.coordinator))
    )
    return read(found)


def work(town, **changes):
    """A question that an honest coordinator might ask for round 1, and what to change in it."""

    run = next((town.sites["site-1"] / "state" / "experiments").glob("*.toml")).stem
    setting = town.neighbours.guards["site-1"]._working[run].agreement.setting
    width = setting.task.start(setting.federation, Key(0)).shape[0]
    state = changes.pop("state", np.zeros(width))
    content = {"asking": "round", "path": [1, "x"], "found": {}, "typical": 80.0, "run": run, **changes}
    return content, encode_arrays({"state": state})


def test_a_round_is_answered_once_and_the_same_question_gets_the_same_answer(tmp_path: Path):

    town = strict_town(tmp_path, changes=["rounds=3"])
    town.run(tmp_path / "run")
    content, numbers = work(town)
    refused = asked(town, dict(content), numbers)
    assert "was answered before" in refused.content["why"]
    # A round may be asked once; then once more in the same words, even after a restart.
    town = strict_town(tmp_path / "again")
    assert agreeing(town).about == "agree"
    content, numbers = work(town)
    first = asked(town, dict(content), numbers)
    town.restart("site-1")
    second = asked(town, dict(content), numbers)
    assert np.array_equal(first.arrays["row"], second.arrays["row"])
    other = encode_arrays({"state": np.ones_like(first.arrays["row"])})
    assert "was answered before" in asked(town, dict(content), other).content["why"]


BAD = {
    "a round that is not planned": ({"path": [99, "x"]}, "not part of an experiment of 2 rounds"),
    "a round without a number": ({"path": ["x"]}, "not part of an experiment"),
    "a change of the task": ({"found": {"lr": 9.0, "sample": 1.0}}, "is not an answer that a request"),
    "a choice among models": ({"asking": "choosing"}, "no site chooses"),
    "a question that is not there": ({"asking": "closing", "path": ["closing"]}, "has no final query"),
    "a word that nobody knows": ({"asking": "everything"}, "cannot be read"),
    "a size that is none": ({"typical": -3.0}, "must be above 0"),
    "a key too long": ({"path": [1, *["x"] * 9]}, "too long"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD, ids=str)
def test_what_no_honest_coordinator_asks_is_refused(what: str, tmp_path: Path):
    changes, words = BAD[what]
    town = strict_town(tmp_path)
    assert agreeing(town).about == "agree"
    content, numbers = work(town, **changes)
    answer = asked(town, content, numbers)
    assert (answer.about, words in answer.content["why"]) == ("refused", True), answer.content


def test_updates_that_are_to_be_added_up_in_secret_do_not_leave_by_themselves(tmp_path: Path):
    changes = ["sites.count=4", "privacy.unit=site", "privacy.noise=secure", "task.sample=1.0"]
    town = strict_town(tmp_path, SiteLimits(epsilon=50.0, lifetime=200.0), [*changes, "privacy.epsilon=40"])
    assert agreeing(town).about == "agree"
    content, numbers = work(town)
    assert "no single update leaves the site" in asked(town, content, numbers).content["why"]


def test_an_experiment_that_was_not_agreed_to_is_not_worked_on(tmp_path: Path):
    town = strict_town(tmp_path)
    letter = {"asking": "round", "path": [1], "found": {}, "typical": None}
    assert "has not agreed" in asked(town, {**letter, "run": "abcd"}, b"").content["why"]
    assert "hexadecimal" in asked(town, {**letter, "run": "../../etc"}, b"").content["why"]
    agree = {"experiment": "", "run": "../../etc"}
    sent = sign_message(
        SignedMessage(writer=COORDINATOR, reader="site-1", about="agree", content=agree),
        identity(town.coordinator),
    )
    assert "hexadecimal" in read(town.neighbours.guards["site-1"].answer(sent)).content["why"]


def test_two_runs_of_one_file_draw_other_noise_and_are_paid_for_twice(tmp_path: Path):

    town = strict_town(tmp_path)
    first, second = town.run(tmp_path / "first"), town.run(tmp_path / "second")
    assert not np.array_equal(first.state, second.state)
    assert spent(town) > first.privacy.epsilon * 1.1


def test_a_run_does_not_begin_without_everybody(tmp_path: Path):
    town = strict_town(tmp_path)
    del town.neighbours.guards["site-3"]
    with pytest.raises(SitesUnreachable, match="site-3 is not there"):
        town.run(tmp_path / "run")
    assert not (town.sites["site-1"] / "state" / "ledger.db").exists()


def test_an_open_site_may_have_any_limit_as_infinity():
    assert SiteLimits(epsilon=math.inf).open


def agreeing(town, site: str = "site-1", text: str | None = None, run: str = "abcd") -> SignedMessage:
    said = (town.coordinator / "experiment.toml").read_text() if text is None else text
    letter = SignedMessage(
        writer=COORDINATOR, reader=site, about="agree", content={"experiment": said, "run": run}
    )
    return read(town.neighbours.guards[site].answer(sign_message(letter, identity(town.coordinator))))


def test_what_a_task_does_not_protect_is_not_let_in(tmp_path: Path):
    functional = SURVIVAL.with_name("functional.toml")
    changes = ["data.records=200", "task.release=local", "privacy.noise=site", "privacy.epsilon=0.5"]

    def edit(document):
        document["data"]["public"] = False
        document["data"].pop("test", None)
        document["privacy"]["rehearsal"] = False

    town, _, _ = handed(functional, changes, tmp_path / "town", STRICT, edit)
    with pytest.raises(Refused, match="would receive without noise, would leave the sites unprotected"):
        town.run(tmp_path / "run")
    assert "would receive without noise" in agreeing(town, "party-1").content["why"]


def test_the_sites_own_size_never_stands_in_for_one_that_is_not_said(tmp_path: Path):
    town = strict_town(tmp_path)
    assert agreeing(town).about == "agree"
    content, numbers = work(town, typical=None)
    assert "the number of this site is a secret" in asked(town, content, numbers).content["why"]


def test_records_are_read_by_the_rules_that_were_accepted_and_by_no_others(tmp_path: Path):
    town = strict_town(tmp_path)
    text = (town.coordinator / "experiment.toml").read_text()
    for change in ("scale = { x1 = 1e-300 }", 'levels = { x1 = ["a"] }', 'cause = "any"'):
        other = text.replace("[data]\n", f"[data]\n{change}\n", 1)
        told = agreeing(town, text=other)
        assert "has accepted" in told.content["why"]
    # The administrator may accept them.
    file = tmp_path / "other.toml"
    file.write_text(text.replace("[data]\n", '[data]\ncause = "any"\n', 1))
    accept(town.sites["site-1"], file)
    town.restart("site-1")
    assert agreeing(town, text=file.read_text()).about == "agree"


def test_after_records_that_cannot_be_used_nothing_is_tried_until_somebody_has_looked(tmp_path: Path):
    import pandas as pd

    town = strict_town(tmp_path)
    (file,) = (town.sites["site-1"] / "data").glob("*.parquet")
    whole = pd.read_parquet(file)
    whole.assign(time=-1.0).to_parquet(file)
    assert "cannot be used" in agreeing(town).content["why"]
    whole.to_parquet(file)
    assert "must solve that first" in agreeing(town).content["why"]
    accept(town.sites["site-1"], town.coordinator / "experiment.toml")
    town.restart("site-1")
    assert agreeing(town).about == "agree"


def test_the_answer_that_was_given_is_given_again_whatever_has_become_of_the_records(tmp_path: Path):
    import pandas as pd

    town = strict_town(tmp_path)
    assert agreeing(town).about == "agree"
    content, numbers = work(town)
    first = asked(town, dict(content), numbers)
    (file,) = (town.sites["site-1"] / "data").glob("*.parquet")
    pd.read_parquet(file).iloc[1:].to_parquet(file)
    town.restart("site-1")
    assert np.array_equal(asked(town, dict(content), numbers).arrays["row"], first.arrays["row"])
    # Only the last answer is kept: an older one is not worked out anew.
    second = asked(town, {**content, "path": [2, "x"]}, numbers)
    assert second.about == "work"
    assert "no longer kept" in asked(town, dict(content), numbers).content["why"]


def test_a_folder_has_one_guard_and_does_not_go_on_without_its_books(tmp_path: Path):
    town = strict_town(tmp_path)
    assert agreeing(town).about == "agree"
    with pytest.raises(Refused, match="guarded by another process"):
        Guard(town.sites["site-1"])
    town.neighbours.guards["site-1"].close()
    for book in ("answers.jsonl", "ledger.db"):
        place = town.sites["site-1"] / "state" / book
        place.rename(place.with_suffix(".away"))
        with pytest.raises(LedgerTampered, match="is missing"):
            Guard(town.sites["site-1"])
        place.with_suffix(".away").rename(place)


def test_sites_that_were_told_different_experiments_are_not_added_up(tmp_path: Path):
    changes = ["sites.count=4", "privacy.unit=site", "privacy.noise=secure", "task.sample=1.0"]
    limits = SiteLimits(epsilon=3000.0, lifetime=4000.0)
    town = strict_town(tmp_path, limits, [*changes, "privacy.epsilon=40", "rounds=1"])
    guards = town.neighbours.guards
    honest = guards["site-1"].answer

    def told_otherwise(content: bytes) -> bytes:
        letter = read(content)
        if letter.about in ("consider", "agree"):
            other = letter.content["experiment"].replace("epsilon = 40.0", "epsilon = 4.0")
            assert other != letter.content["experiment"]
            again = SignedMessage(
                writer=COORDINATOR, reader="site-1", about=letter.about,
                content={**letter.content, "experiment": other},
            )  # fmt: skip
            answer = read(honest(sign_message(again, identity(town.coordinator))))
            from tacit.engines.messages import digest

            mine = SignedMessage(
                writer="site-1", reader=COORDINATOR, about=answer.about, content=answer.content,
                answers=digest(content),
            )  # fmt: skip
            return sign_message(mine, identity(town.sites["site-1"]))
        return honest(content)

    guards["site-1"].answer = told_otherwise
    run = town.run(tmp_path / "run")
    # It has refused the others' sum: they go on without it, and it has added nothing.
    assert {fault.site for fault in run.record.rounds[0].faults} == {"site-1"}
    assert any("the terms of the server have run" in line for line in town.heard["site-1"])


def test_sums_in_secret_must_stand_as_many_colluders_as_the_site_asks_for(tmp_path: Path):
    changes = ["sites.count=4", "privacy.unit=site", "privacy.noise=secure", "task.sample=1.0"]
    town = strict_town(tmp_path, SiteLimits(epsilon=50.0, colluders=2), [*changes, "privacy.epsilon=40"])
    with pytest.raises(Refused, match="colluders = 1 is below 2"):
        town.run(tmp_path / "run")
