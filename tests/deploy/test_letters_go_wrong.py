"""Replies may be late, old, broken or missing: the run continues with the other sites, if it can."""

from pathlib import Path

import numpy as np
import pytest
from in_process import handed

from tacit.deploy.site.config import identity
from tacit.engines.messages import COORDINATOR, NoReply, SignedMessage, digest, encode_arrays, sign_message
from tacit.errors import Refused, SecureAggregationFailed, SitesUnreachable
from tacit.privacy.ledger.store import Ledger

EXAMPLES = Path(__file__).parents[2] / "examples"
SURVIVAL, FUNCTIONAL = EXAMPLES / "network.toml", EXAMPLES / "functional.toml"
SMALL = ["sites.count=3", "rounds=3", "data.records=300", "task.cuts=5", "task.hidden=[4]"]


class Stopped(Exception):
    """The coordinator's process is gone."""


def after(rounds: int):
    """Ends the coordinator once so many rounds are over."""

    def shown(entry):
        if entry.number == rounds:
            raise Stopped

    return shown


def only(site: str, what):
    """Spoils what one site answers about its work, from its second answer on."""
    seen: list[bytes] = []

    def spoil(name: str, asked: bytes, answer: bytes):
        if name != site or b"\xa4work" not in asked:
            return answer
        seen.append(answer)
        return answer if len(seen) < 2 else what(asked, answer, seen)

    return spoil


def signed(town, site: str, numbers: bytes, asked: bytes, content=None) -> bytes:
    letter = SignedMessage(
        writer=site, reader=COORDINATOR, about="work", content=content or {}, numbers=numbers,
        answers=digest(asked),
    )  # fmt: skip
    return sign_message(letter, identity(town.sites[site]))


def spoils(town):
    wide = encode_arrays({"row": np.zeros(3)})
    return {
        "replay": lambda asked, answer, seen: seen[0],
        "late": lambda asked, answer, seen: NoReply("late", "no answer within 600 seconds"),
        "schema": lambda asked, answer, seen: signed(town, "site-2", wide, asked),
        "unknown": lambda asked, answer, seen: signed(town, "site-3", wide, asked),
        "not-finite": lambda asked, answer, seen: signed(
            town,
            "site-2",
            encode_arrays({"row": np.full(width(town), np.nan)}),
            asked,
        ),
    }


def width(town) -> tuple[int]:
    working = next(iter(town.neighbours.guards["site-1"]._working.values()))
    setting = working.agreement.setting
    from tacit.runtime.keys import Key

    return (setting.task.start(setting.federation, Key(0)).shape[0],)


@pytest.mark.parametrize("reason", ["replay", "late", "schema", "unknown", "not-finite"])
def test_an_answer_that_cannot_be_used_is_left_out_named_and_logged(reason: str, tmp_path: Path):
    town, _, _ = handed(SURVIVAL, SMALL, tmp_path / "town")
    town.neighbours.spoil = only("site-2", spoils(town)[reason])
    run = town.run(tmp_path / "run")
    faults = [(fault.site, fault.reason) for entry in run.record.rounds for fault in entry.faults]
    assert faults == [("site-2", reason)] * 2
    assert run.record.rounds[0].faults == ()
    if reason != "not-finite":
        assert any(line.startswith("site-2: ") for line in town.said)


def test_bytes_that_are_no_letter_at_all_are_left_out(tmp_path: Path):
    town, _, _ = handed(SURVIVAL, SMALL, tmp_path / "town")
    town.neighbours.spoil = only("site-1", lambda asked, answer, seen: b"\x00" * 64)
    run = town.run(tmp_path / "run")
    assert [fault.reason for entry in run.record.rounds for fault in entry.faults] == ["schema"] * 2


def test_a_site_that_is_gone_is_missing_from_the_rounds_and_the_price_stays(tmp_path: Path):
    town, chosen, federation = handed(SURVIVAL, SMALL, tmp_path / "town")

    def shown(entry):
        town.neighbours.guards.pop("site-3", None)

    run = town.run(tmp_path / "run", shown=shown)
    assert [len(entry.faults) for entry in run.record.rounds] == [0, 1, 1]
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert run.privacy.epsilon == alone.privacy.epsilon


def test_a_coordinator_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path):
    town, chosen, federation = handed(SURVIVAL, SMALL, tmp_path / "town")
    with pytest.raises(Stopped):
        town.run(tmp_path / "run", shown=after(1))
    for name in town.sites:
        town.restart(name)
    run = town.run(tmp_path / "run", resume=True)
    alone = chosen.run_on(federation, tmp_path / "alone")
    assert np.array_equal(run.state, alone.state)
    # Everybody has paid once.
    for name in town.sites:
        rows = [
            e for e in Ledger(town.sites[name] / "state" / "ledger.db").entries() if e["kind"] == "release"
        ]
        assert len({row["ticket"] for row in rows}) == 1


def test_a_round_whose_answers_were_lost_is_asked_again_and_gives_the_same(tmp_path: Path):
    town, chosen, federation = handed(SURVIVAL, SMALL, tmp_path / "town")
    lost: list[str] = []

    def spoil(name: str, asked: bytes, answer: bytes):
        if b"\xa4work" in asked and name == "site-3" and not lost:
            lost.append(name)
            raise Stopped
        return answer

    town.neighbours.spoil = spoil
    with pytest.raises(Stopped):
        town.run(tmp_path / "run")
    run = town.run(tmp_path / "run", resume=True)
    assert np.array_equal(run.state, chosen.run_on(federation, tmp_path / "alone").state)


def test_when_nobody_answers_the_run_stops_and_can_be_resumed(tmp_path: Path):
    town, chosen, federation = handed(SURVIVAL, SMALL, tmp_path / "town")
    kept = dict(town.neighbours.guards)
    with pytest.raises(SitesUnreachable, match="no site answered"):
        town.run(tmp_path / "run", shown=lambda entry: town.neighbours.guards.clear())
    town.neighbours.guards.update(kept)
    run = town.run(tmp_path / "run", resume=True)
    assert np.array_equal(run.state, chosen.run_on(federation, tmp_path / "alone").state)


def test_a_resumed_run_goes_on_without_a_site_that_does_not_come_back(tmp_path: Path):
    town, _, _ = handed(SURVIVAL, SMALL, tmp_path / "town")
    with pytest.raises(Stopped):
        town.run(tmp_path / "run", shown=after(1))
    del town.neighbours.guards["site-2"]
    run = town.run(tmp_path / "run", resume=True)
    assert [len(entry.faults) for entry in run.record.rounds] == [0, 1, 1]


@pytest.mark.parametrize("noise", ["secure", "site"])
def test_a_vertical_run_refuses_to_go_on_without_a_party(noise: str, tmp_path: Path):
    changes = ["data.records=200", "privacy.epsilon=50", f"privacy.noise={noise}"]
    changes += [] if noise == "secure" else ["task.release=local"]
    town, chosen, federation = handed(FUNCTIONAL, changes, tmp_path / "town")
    town.neighbours.guards.pop("party-2").close()
    with pytest.raises(SitesUnreachable, match="party-2 is not there"):
        town.run(tmp_path / "a")
    town.restart("party-2")
    town.neighbours.spoil = lambda name, asked, answer: (
        NoReply("late", "no answer within 600 seconds")
        if name == "party-2" and b"experiment" not in asked
        else answer
    )
    told = "no answer from party-2" if noise == "site" else "every party must stay"
    with pytest.raises((Refused, SecureAggregationFailed), match=told):
        town.run(tmp_path / "b")
    # Nobody's columns have left masked: once the party is back, the same run goes on at no new price.
    town.neighbours.spoil = None
    run = town.run(tmp_path / "b", resume=True)
    assert np.array_equal(run.state, chosen.run_on(federation, tmp_path / "alone").state)


def secret_town(tmp_path: Path, sites: int = 4):
    changes = [*SMALL, f"sites.count={sites}", "privacy.unit=site", "privacy.noise=secure"]
    return handed(SURVIVAL, [*changes, "privacy.epsilon=50", "task.sample=1.0"], tmp_path / "town")


def test_a_sum_in_secret_bears_a_site_that_falls_silent_and_tells_of_it(tmp_path: Path):
    town, _, _ = secret_town(tmp_path)
    masks = 0

    def spoil(name: str, asked: bytes, answer: bytes):
        nonlocal masks
        masks += name == "site-4" and b"mask" in asked
        return (
            NoReply("late", "no answer")
            if name == "site-4" and b"experiment" not in asked and masks
            else answer
        )

    town.neighbours.spoil = spoil
    run = town.run(tmp_path / "run")
    assert run.record.rounds[0].skipped is None
    assert {fault.site for fault in run.record.rounds[0].faults} == {"site-4"}


def test_a_secret_round_that_was_cut_off_is_not_joined_again_and_is_left_out(tmp_path: Path):
    town, _, _ = secret_town(tmp_path)
    cut: list[str] = []

    def spoil(name: str, asked: bytes, answer: bytes):
        if b"\xa5stage\xa5agree" in asked and not cut:
            cut.append(name)
            raise Stopped
        return answer

    town.neighbours.spoil = spoil
    with pytest.raises(Stopped):
        town.run(tmp_path / "run")
    for name in town.sites:
        town.restart(name)
    run = town.run(tmp_path / "run", resume=True)
    assert "was answered before" in str(run.record.rounds[0].skipped)
    assert [entry.skipped for entry in run.record.rounds[1:]] == [None, None]
