"""The name of a curve that ends early stands where it ends, not at the far edge of the axis."""

import numpy as np
from matplotlib.text import Text

from tacit import Federation
from tacit.sites.table import from_arrays
from tacit.survival import figures
from tacit.survival.statistics import kaplan_meier


def site(times: np.ndarray) -> Federation:
    return Federation(
        {"x": from_arrays(np.zeros((len(times), 1)), time=times, event=np.arange(len(times)) % 2.0)}
    )


def test_a_curve_that_ends_early_is_named_at_its_end():
    curves = {"short": kaplan_meier(site(np.arange(1.0, 21))), "long": kaplan_meier(site(np.arange(1.0, 61)))}
    axes = figures.estimates(curves).axes[0]
    names = {text.get_text(): text for text in axes.findobj(Text) if text.get_text() in curves}
    assert names["short"].xy[0] == 20.0
    assert names["long"].xy[0] == 1
    # Away from the curve that goes on beside it.
    boxes = [names["short"].get_window_extent(), names["long"].get_window_extent()]
    assert not boxes[0].overlaps(boxes[1])
