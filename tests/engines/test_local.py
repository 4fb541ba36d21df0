"""In one process a site's update leaves as it would from a machine of its own, under a key of its own."""

import numpy as np

from tacit import Federation
from tacit.engines.base import Local, RecordCountQuery, run_at_site
from tacit.learning.task import Updates, Work
from tacit.privacy.mechanisms.base import CountNoise, NoPrivacy, RecordLevel
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.runtime.keys import Key
from tacit.sites.table import from_arrays

SIZES = {"oslo": 5, "bergen": 9, "tromso": 7}
FEDERATION = Federation(
    {name: from_arrays(np.ones((size, 2)), y=np.ones(size)) for name, size in SIZES.items()}
)
STATE, KEY = np.zeros(4), Key(3, rehearsal=True) / 1


class Still(Work):
    """A task whose sites send nothing but what protects them."""

    def train(self, state, cohort, mechanism, key) -> Updates:
        return Updates(cohort.names, np.zeros((len(cohort), 4)))


class Wide(Still):
    """Work whose answers are wider than the state."""

    sent = 7


def test_each_update_has_noise_of_its_own_key():
    mechanism = SiteLevel(law="gaussian", clip=1.0, multiplier=1.0, where="site", reach=1.0, rehearsal=True)
    together = Local().train(Still(), FEDERATION, STATE, list(SIZES), mechanism, KEY)
    assert together.names == tuple(SIZES)
    for name, row in zip(together.names, together.matrix, strict=True):
        assert np.array_equal(row, mechanism.at_site(STATE, KEY / name / "update"))
        assert np.array_equal(
            row, run_at_site(Still(), STATE, FEDERATION.cohort([name]), mechanism, KEY).matrix[0]
        )


def test_a_round_without_sites_is_as_wide_as_ever():
    assert Local().train(Still(), FEDERATION, STATE, [], NoPrivacy(), KEY).matrix.shape == (0, 4)
    wide = Wide()
    assert Local().train(wide, FEDERATION, STATE, [], NoPrivacy(), KEY).matrix.shape == (0, 7)


def test_each_site_tells_one_number_about_how_many_records_it_holds():
    found = Local().train(RecordCountQuery(), FEDERATION, STATE, list(SIZES), NoPrivacy(), KEY)
    assert found.matrix.tolist() == [[5.0], [9.0], [7.0]]
    counts = CountNoise(law="laplace", scale=2.0)
    noisy = RecordLevel(
        law="gaussian", clip=1.0, multiplier=1.0, steps=1, rate=1.0, rehearsal=True, counts=counts
    )
    told = Local().train(RecordCountQuery(), FEDERATION, STATE, list(SIZES), noisy, KEY).matrix
    assert told.shape == (3, 1)
    assert told[:, 0].tolist() == [noisy.noisy_count(size, KEY / name) for name, size in SIZES.items()]
    assert len({value - size for value, size in zip(told[:, 0].tolist(), SIZES.values(), strict=True)}) == 3
