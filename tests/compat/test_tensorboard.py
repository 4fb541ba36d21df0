"""A run in TensorBoard: real event files, read back."""

import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tacit import Privacy, fit
from tacit.compat.tracking import TensorBoard
from tacit.errors import InvalidValue
from tacit.learning.record import Fault, Round
from tacit.sites.splits import SPLITS
from tacit.survival import LogisticHazard
from tacit.survival.data.sources import Simulated

TASK = LogisticHazard(hidden=(4,), cuts=5, steps=2, sample=0.3, lr=0.3)
REHEARSAL = Privacy(unit="record", epsilon=3.0, delta=1e-4, clip=1.0, rehearsal=True)


def read(folder) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    return found


def words(found: EventAccumulator, tag: str) -> str:
    (event,) = found.Tensors(f"{tag}/text_summary")
    return event.tensor_proto.string_val[0].decode()


def test_every_round_and_what_came_of_them_can_be_read_back(tmp_path):
    patients = Simulated(records=150, features=3).open(SPLITS["iid"](count=3), 0)
    with TensorBoard(tmp_path) as board:
        run = fit(TASK, patients, privacy=REHEARSAL, rounds=3, baselines=True, callbacks=[board])
        board.finish(run)
    found = read(tmp_path)
    for name in ("c_index", "ibs"):
        told = [(event.step, event.value) for event in found.Scalars(f"scores/{name}")]
        assert [step for step, _ in told] == [1, 2, 3]
        assert [value for _, value in told] == pytest.approx(
            [entry.scores[name] for entry in run.record.rounds]
        )
    spent = [event.value for event in found.Scalars("privacy/epsilon")]
    assert spent == pytest.approx([entry.epsilon for entry in run.record.rounds])
    assert [event.value for event in found.Scalars("round/sites")] == [3, 3, 3]
    assert [event.value for event in found.Scalars("round/faults")] == [0, 0, 0]
    for whose, scores in {"federated": run.scores, **run.baselines}.items():
        (last,) = found.Scalars(f"final/{whose}/c_index")
        assert last.value == pytest.approx(scores["c_index"])
    assert "REHEARSAL" in words(found, "promise")
    assert "privacy.protects: no one" in words(found, "promise in short")


def test_what_nobody_may_know_is_not_written(tmp_path):
    fault = Fault(site="", reason="late", detail="it came after the round")
    entry = Round(
        number=1, rounds=2, sites=None, scores={}, epsilon=None, budget=None, seconds=None,
        skipped="too <b>few</b> sites", faults=(fault, fault),
    )  # fmt: skip
    board = TensorBoard(tmp_path)
    board(entry)
    board.close()
    found = read(tmp_path)
    assert found.Tags()["scalars"] == ["round/faults", "round/skipped"]
    assert found.Scalars("round/faults")[0].value == 2
    assert words(found, "round/why skipped") == "    too <b>few</b> sites", "as code, not as markup"


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(InvalidValue, match=r"pip install 'tacit\[tensorboard\]'"):
        TensorBoard(tmp_path)
