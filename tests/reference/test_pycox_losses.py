"""Our losses on the inputs on which pycox 0.3.0 computed its own, values and gradients as recorded.

Where the two divide by different numbers, the test says so. Times are put where both mean the same: at the
end of an interval, since a censored record of pycox has survived the interval that it left in, and ours only
if it stayed until its end. No event is tied with a censored record, a pair that pycox ranks and ours (as
published) does not.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.learning.batches import Batch
from tacit.learning.perceptron import build_layers
from tacit.sites.table import from_arrays
from tacit.survival.models.cox_loss import Pairs, PartialLikelihood, Ranks
from tacit.survival.models.deephit import IncidenceLoss
from tacit.survival.models.losses import HazardLoss, PiecewiseLoss

RECORDED = json.loads((Path(__file__).parent / "pycox_losses.json").read_text())
INPUTS = {name: np.array(values) for name, values in RECORDED["inputs"].items()}
ENDS = np.array([0.5, 1.0, 2.0, 3.5, 7.0])
RECORDS = len(INPUTS["places"])
SPREAD = float(INPUTS["sigma"])
PRESENT = np.ones((1, 1, RECORDS), dtype=np.bool_)
CLOSE = {"rtol": 1e-6, "atol": 1e-9}


class Half(Batch):
    """A batch in which everybody's luck is one half."""

    @property
    def uniforms(self) -> np.ndarray:
        return np.full(self.rows.shape, 0.5)


def unit(**values: np.ndarray) -> dict[str, np.ndarray]:
    """Targets of one site with one unit."""
    return {name: np.asarray(given, dtype=np.float64)[None, None] for name, given in values.items()}


def agree(name: str, value: float, gradient: np.ndarray) -> None:
    assert value == pytest.approx(RECORDED[name]["value"], rel=1e-6)
    expected = np.array(RECORDED[name]["gradient"])
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(gradient.reshape(expected.shape), expected, **CLOSE)


def at_ends(events: str) -> dict[str, np.ndarray]:
    return unit(time=ENDS[INPUTS["places"]], event=INPUTS[events])


def scores(name: str = "scores") -> np.ndarray:
    """Scores (sites, units, members, outputs), cause by cause."""
    return INPUTS[name].reshape(1, 1, RECORDS, -1)


def test_logistic_hazard_is_that_of_pycox_over_the_number_of_records():
    loss, targets = HazardLoss(ENDS), at_ends("events")
    slopes = loss.slopes(scores(), targets, PRESENT)
    agree("nll_logistic_hazard", loss.values(scores(), targets).mean(), slopes / RECORDS)


def test_pc_hazard_is_that_of_pycox_over_the_number_of_records():
    loss, widths = PiecewiseLoss(ENDS), np.diff(ENDS, prepend=0.0)
    time = (ENDS - widths)[INPUTS["places"]] + INPUTS["fractions"] * widths[INPUTS["places"]]
    targets = unit(time=time, event=INPUTS["events"])
    slopes = loss.slopes(scores(), targets, PRESENT)
    agree("nll_pc_hazard_loss", loss.values(scores(), targets).mean(), slopes / RECORDS)


def test_the_likelihood_of_deep_hit_is_that_of_pycox_over_the_number_of_records():
    loss, targets = IncidenceLoss(ENDS), at_ends("events")
    slopes = loss.slopes(scores(), targets, PRESENT)
    agree("nll_pmf", loss.values(scores(), targets).mean(), slopes / RECORDS)


def test_the_likelihood_of_competing_risks_is_that_of_pycox_over_the_number_of_records():
    loss, targets = IncidenceLoss(ENDS, causes=2), at_ends("causes")
    given = scores("scores_of_causes")
    agree("nll_pmf_cr", loss.values(given, targets).mean(), loss.slopes(given, targets, PRESENT) / RECORDS)


@pytest.mark.parametrize(
    ("causes", "events", "given", "likelihood", "ranking"),
    [
        (1, "events", "scores", "nll_pmf", "rank_loss_deephit_single"),
        (2, "causes", "scores_of_causes", "nll_pmf_cr", "rank_loss_deephit_cr"),
    ],
)
def test_the_ranking_term_is_that_of_pycox_over_the_number_of_pairs(
    causes, events, given, likelihood, ranking
):
    targets, share = at_ends(events), 0.3
    loss = IncidenceLoss(ENDS, causes, ranking=share, spread=SPREAD)
    value = loss.ranks(scores(given), targets, PRESENT)[0, 0] / RECORDS**2
    # A unit has the slopes of both terms together, each over its own number.
    both = loss.slopes(scores(given), targets, PRESENT).reshape(np.array(RECORDED[ranking]["gradient"]).shape)
    ranked = (both - (1 - share) * np.array(RECORDED[likelihood]["gradient"])) / share
    agree(ranking, float(value), ranked)


def test_the_partial_likelihood_is_that_of_pycox_which_divides_by_events_instead_of_members():
    targets = unit(time=INPUTS["durations"], event=INPUTS["events"])
    risks, loss = INPUTS["log_risks"].reshape(1, 1, -1, 1), PartialLikelihood()
    factor = RECORDS / INPUTS["events"].sum()
    value = loss.values(risks, targets, PRESENT)[0, 0] * factor
    agree("cox_ph_loss", float(value), loss.slopes(risks, targets, PRESENT) * factor)


def test_the_loss_of_pairs_is_that_of_pycox_which_divides_by_cases_instead_of_members():
    risks = np.concatenate([INPUTS["cases"], INPUTS["controls"]])
    found = np.zeros((2, RECORDS))
    program, weights = Pairs(build_layers([1, 1], "relu", bias=False)), np.ones((1, 1))
    for place in range(RECORDS):
        # A case and its control alone in a unit: nobody else can be drawn.
        table = from_arrays(risks[[place, RECORDS + place]], time=[1.0, 2.0], event=[1.0, 0.0])
        batch = Half(np.arange(2)[None, None], np.ones((1, 1, 2), dtype=np.bool_))
        signals = program.contributions(weights, batch, table).signals[0].reshape(2, -1)
        # The first of each half is the case, then its control; two members, one case.
        found[:, place] = 2 * signals[:, 0] / RECORDS
    lead = INPUTS["controls"] - INPUTS["cases"]
    agree("cox_cc_loss", float(np.logaddexp(0, lead).mean()), found)


def test_nobody_is_drawn_as_a_control_who_is_gone():
    ranks = Ranks(unit(time=INPUTS["durations"]))
    luck = np.random.default_rng(0).random((1, 1, RECORDS))
    control, there = ranks.draw_controls(luck)
    later = INPUTS["durations"][control[0, 0]] >= INPUTS["durations"]
    assert later[there[0, 0]].all()
    assert there.sum() == RECORDS - 1
