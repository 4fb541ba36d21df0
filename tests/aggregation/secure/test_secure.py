"""Sums in secret: exact for whoever stays, nothing where too few do, and nothing but the sum to anybody."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parties import CITIES, Parties, added, read, session_of, vectors_of
from scipy import stats

from tacit.aggregation import secure
from tacit.aggregation.secure import Identity, Session, secure_sum
from tacit.aggregation.secure.sealing import (
    STAGES,
    KeyExchange,
    Masked,
    Revealed,
    derive_key,
    frame_parts,
    mask,
    mask_sign,
)
from tacit.aggregation.secure.shamir import Reconstructor
from tacit.errors import InvalidValue, Refused, SecureAggregationFailed
from tacit.privacy.mechanisms.lattice import Lattice
from tacit.privacy.mechanisms.secure_sum import threshold


def survivors_of(session: Session, dropped) -> tuple[str, ...] | None:
    """Return the sites in the sum; None if there is no sum."""
    left = set(session.names)
    in_the_sum: set[str] = set()
    for stage in STAGES:
        left -= {name for name, when in dropped.items() if when == stage}
        if len(left) < session.threshold:
            return None
        if stage == "mask":
            in_the_sum = set(left)
    return tuple(sorted(in_the_sum))


# --- the sum ---------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=40)
def test_the_sum_is_exact_for_whoever_stays_or_there_is_none(data: st.DataObject):
    sites, width = data.draw(st.integers(3, 10)), data.draw(st.integers(1, 5))
    session = session_of(sites, width)
    numbers = st.lists(st.integers(0, 2**32 - 1), min_size=width, max_size=width)
    vectors = {name: np.array(data.draw(numbers), dtype=np.uint32) for name in session.names}
    dropped = data.draw(st.dictionaries(st.sampled_from(session.names), st.sampled_from(STAGES), max_size=4))
    expected = survivors_of(session, dropped)
    if expected is None:
        with pytest.raises(SecureAggregationFailed, match="Nothing was unmasked"):
            secure_sum(vectors, session=session, dropped=dropped)
    else:
        summed = secure_sum(vectors, session=session, dropped=dropped)
        assert summed.survivors == expected
        assert summed.faults == ()
        assert summed.total.dtype == np.uint32
        assert (summed.total == added(vectors, expected)).all()


@pytest.mark.parametrize("stage", STAGES)
def test_a_site_may_drop_out_in_any_stage(stage):  # fault 41
    session = session_of(5)
    vectors = vectors_of(session)
    summed = secure_sum(vectors, session=session, dropped={"oslo": stage})
    # Whoever has sent its vector is in the sum, even if nothing is heard of it afterwards.
    expected = session.names if stage in ("agree", "reveal") else set(session.names) - {"oslo"}
    assert set(summed.survivors) == set(expected)
    assert (summed.total == added(vectors, expected)).all()


@pytest.mark.parametrize("stage", STAGES)
def test_with_fewer_than_the_threshold_nothing_is_unmasked(stage):  # faults 41, 42
    parties = Parties(session_of(5))
    play = {
        "offer": parties.offers,
        "share": parties.envelopes,
        "mask": parties.survivors,
        "agree": parties.agreements,
        "reveal": parties.summed,
    }
    if stage != "offer":
        # Everybody is there until the stage, then two of five fall silent.
        earlier = {"share": "offers", "mask": "envelopes", "agree": "survivors", "reveal": "agreements"}[
            stage
        ]
        answers = getattr(parties, earlier)()
        setattr(parties, earlier, lambda: answers)
    parties.silent = {"oslo", "bergen"}
    reason = f"3 of 5 sites are left after the stage '{stage}', and 4 are needed .without bergen, oslo."
    with pytest.raises(SecureAggregationFailed, match=reason):
        play[stage]()
    assert parties.server._total.size == 0
    with pytest.raises(SecureAggregationFailed, match="the session is over"):
        parties.server.unmask({})


@pytest.mark.parametrize("sites", [3, 40])
def test_small_and_large_sessions_work(sites: int):
    names = tuple(f"site {number:03}" for number in range(sites))
    session = Session(run="trial", round=0, names=names, width=4)
    vectors = vectors_of(session)
    dropped = dict.fromkeys(names[: sites - threshold(sites)], "mask")
    summed = secure_sum(vectors, session=session, dropped=dropped)
    assert (summed.total == added(vectors, names[len(dropped) :])).all()


def test_vectors_and_the_order_of_sites_are_left_alone():
    session = session_of(4)
    vectors = vectors_of(session)
    before = {name: vector.copy() for name, vector in vectors.items()}
    backwards = dict(reversed(vectors.items()))
    first, second = (secure_sum(given, session=session) for given in (vectors, backwards))
    assert (first.total == second.total).all()
    assert all((vectors[name] == before[name]).all() for name in vectors)


def test_a_wide_vector_spans_several_blocks_of_the_mask():
    session = session_of(4, width=70_001)
    vectors = vectors_of(session)
    summed = secure_sum(vectors, session=session, dropped={"oslo": "mask"})
    assert (summed.total == added(vectors, summed.survivors)).all()


def test_sums_at_the_bounds_of_the_lattice_do_not_overflow():  # fault 45
    lattice = Lattice.fit(clip=1.0, width=4, sites=10, multiplier=1.0, honest=6)
    session = session_of(10, width=4)
    longest = int(lattice.sensitivity)
    for sign in (1, -1):
        steps = np.array([sign * longest, 0, 0, 0], dtype=np.int64)
        vectors = {name: lattice.encode(steps) for name in session.names}
        total = lattice.decode(secure_sum(vectors, session=session).total)
        assert (total * lattice.scale == 10 * steps).all()
    with pytest.raises(InvalidValue, match=r"below 2\^31"):
        Lattice(scale=2.0**31, clip=1.0, width=4, sites=10)


def test_noise_suffices_without_the_shares_of_those_who_dropped_out_or_collude():  # fault 46
    session = session_of(10, width=20_000, colluders=2)
    deviation, draws = 1000.0, np.random.default_rng(1)
    share = deviation / np.sqrt(session.honest)
    noise = {name: np.rint(draws.normal(0, share, session.width)).astype(np.int64) for name in session.names}
    dropped = dict.fromkeys(session.names[: 10 - session.threshold], "mask")
    summed = secure_sum(
        {name: steps.astype(np.uint32) for name, steps in noise.items()}, session=session, dropped=dropped
    )
    colluders = summed.survivors[: session.colluders]
    left = summed.total.view(np.int32).astype(np.int64) - sum(noise[name] for name in colluders)
    # Chi-square: what is left has the variance that was promised, and no less.
    statistic = (left**2).sum() / deviation**2
    assert 1e-4 < stats.chi2.cdf(statistic, session.width) < 1 - 1e-4


# --- what it is told before ------------------------------------------------------------------------------


def test_more_than_two_thirds_must_stay():
    assert [threshold(sites) for sites in (3, 4, 5, 6, 10, 50, 100)] == [3, 3, 4, 5, 7, 34, 67]
    for sites in range(3, 101):
        assert 2 * threshold(sites) > sites + 1
    for sites in (2, 101):
        with pytest.raises(InvalidValue, match=f"sites = {sites} is not allowed: it must be from 3 to 100"):
            threshold(sites)


@pytest.mark.parametrize("sites", [3, 4, 7, 10])
def test_too_many_colluders_are_refused_and_the_message_says_how_many_are_not(sites: int):
    bearable = [
        colluders
        for colluders in range(1, sites)
        if 2 * threshold(sites) > sites + colluders and threshold(sites) - colluders >= 2
    ]
    for colluders in range(1, sites):
        if colluders in bearable:
            assert session_of(sites, colluders=colluders).honest == threshold(sites) - colluders
        else:
            with pytest.raises(Refused, match=f"At most {max(bearable)} can be tolerated"):
                session_of(sites, colluders=colluders)


def test_the_widest_session_has_2_to_the_28_numbers():
    assert session_of(5, width=2**28).width == 2**28


def test_a_threshold_of_ones_own_is_held_to_the_same_rule():
    assert session_of(5, least=5, colluders=3).threshold == 5
    with pytest.raises(Refused, match="let at least 4 stay"):
        session_of(5, least=3)
    with pytest.raises(Refused, match="take more sites"):
        session_of(3, colluders=2)
    with pytest.raises(InvalidValue, match="least = 6 is not allowed"):
        session_of(5, least=6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"run": ""}, "run = ''"),
        ({"run": "a\nb"}, "printable"),
        ({"round": -1}, "round = -1"),
        ({"round": True}, "round = True"),
        ({"width": 0}, "width = 0"),
        ({"width": 2**28 + 1}, "width = "),
        ({"colluders": 0}, "colluders = 0"),
        ({"names": ("oslo", "bergen")}, "names = '2 sites'.*know each other's"),
        ({"names": tuple(map(str, range(101)))}, "names = '101 sites'.*too slow"),
        ({"names": ("oslo", "oslo", "bergen")}, "different"),
        ({"names": ("oslo", "", "bergen")}, "names = ''"),
        ({"names": ("oslo", "\ud800", "bergen")}, "printable"),
    ],
)
def test_a_session_that_makes_no_sense_is_refused(options, reason):
    with pytest.raises(InvalidValue, match=reason):
        session_of(4, **options)


def test_the_digest_binds_everything():
    one = session_of(5)
    others = [
        replace(one, run="other"),
        replace(one, round=2),
        replace(one, names=CITIES[1:6]),
        replace(one, width=9),
        replace(one, colluders=2),
        replace(one, least=5),
    ]
    assert len({session.digest for session in (one, *others)}) == 1 + len(others)
    assert one.digest == replace(one, names=tuple(reversed(one.names))).digest
    assert frame_parts("ab", "c") != frame_parts("a", "bc")


def test_what_does_not_fit_the_session_is_refused_before_anything_is_sent():
    session = session_of(3)
    vectors = vectors_of(session)
    with pytest.raises(InvalidValue, match="vectors = "):
        secure_sum({"oslo": vectors["oslo"]}, session=session)
    with pytest.raises(InvalidValue, match="dropped = "):
        secure_sum(vectors, session=session, dropped={"nobody": "mask"})
    with pytest.raises(InvalidValue, match=r'dropped\.oslo = .*did you mean "mask"'):
        secure_sum(vectors, session=session, dropped={"oslo": "masks"})
    for wrong in (np.zeros(8), np.zeros(7, dtype=np.uint32), np.zeros((8, 1), dtype=np.uint32)):
        with pytest.raises(InvalidValue, match="vector = "):
            secure_sum({**vectors, "oslo": wrong}, session=session)


def test_the_package_names_what_it_exports():
    assert all(getattr(secure, name) for name in secure.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = secure.nonsense


# --- what is learned --------------------------------------------------------------------------------------


def masked_by(parties: Parties, name: str) -> np.ndarray:
    return np.frombuffer(read(parties.said["mask"][name], Masked).vector, dtype="<u4")


def test_what_a_site_sends_is_uniform_and_unrelated_to_its_vector():
    session = session_of(3, width=100_000)
    plain = np.arange(session.width, dtype=np.uint32)
    parties = Parties(session, dict.fromkeys(session.names, plain))
    parties.survivors()
    for name in session.names:
        hidden = masked_by(parties, name)
        counts = np.bincount(np.frombuffer(hidden.tobytes(), dtype=np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6
        assert stats.kstest(hidden / 2**32, "uniform").pvalue > 1e-6
        assert abs(np.corrcoef(plain, hidden)[0, 1]) < 5 / np.sqrt(session.width)


def left_to_know(parties: Parties, target: str, colluders: set[str]) -> np.ndarray:
    """The target's message without every mask that the server and the colluders can take off."""
    session, left = parties.session, masked_by(parties, target).copy()
    offers = parties.server._offers
    for colluder in colluders:
        exchange = parties.members[colluder]._masking
        key = exchange.key(offers[target].mask, session.between(target, colluder))
        mask(left, key, mask_sign(colluder, target))
    # The server has the shares of the target's seed once they are revealed.
    shares = {session.points[n]: read(m, Revealed).shares[target] for n, m in parties.said["reveal"].items()}
    seed = (
        Reconstructor(session.threshold)
        .reconstruct(shares, lambda secret: parties.server._fits(target, secret))
        .secret
    )
    assert seed is not None
    mask(left, derive_key(seed, session.context("own mask", target)), -1)
    return left


def test_server_and_colluders_learn_the_sum_of_the_honest_and_nothing_else():
    session = session_of(7, width=50_000, colluders=2)
    colluders, honest = set(session.names[:2]), session.names[2:]
    small = {name: np.arange(session.width, dtype=np.uint32) for name in session.names}
    # Two honest sites with other vectors, and the same sum.
    moved = dict(small)
    moved[honest[0]], moved[honest[1]] = small[honest[0]] + 12345, small[honest[1]] - np.uint32(12345)
    views = []
    for vectors in (small, moved):
        parties = Parties(session, vectors)
        total = parties.summed().total
        left = {name: left_to_know(parties, name, colluders) for name in honest}
        # All that is known of the honest together is their sum...
        assert (added(left, honest) == added(vectors, honest)).all()
        assert (total - added(vectors, colluders) == added(vectors, honest)).all()
        # ... and of each, or of all but one of them together, nothing: the masks between them remain.
        for name in honest:
            assert stats.kstest(left[name] / 2**32, "uniform").pvalue > 1e-6
            rest = added(left, set(honest) - {name})
            assert stats.kstest(rest / 2**32, "uniform").pvalue > 1e-6
            assert abs(np.corrcoef(vectors[name], left[name])[0, 1]) < 5 / np.sqrt(session.width)
        views.append(left)
    for name in honest:
        assert stats.ks_2samp(views[0][name], views[1][name]).pvalue > 1e-6


def test_below_the_threshold_server_and_sites_cannot_join_a_secret():
    session = session_of(7, colluders=2)
    parties = Parties(session)
    parties.survivors()
    target = session.names[-1]
    # Even all but one of the threshold, who tell everything they hold before anybody has revealed.
    traitors = session.names[: session.threshold - 1]
    offer = parties.server._offers[target]
    fits = (
        lambda secret: parties.server._fits(target, secret),
        lambda secret: KeyExchange(secret).public == offer.mask,
    )
    for which, right in enumerate(fits):
        held = {session.points[name]: parties.members[name]._held[target][which] for name in traitors}
        own = parties.members[target]._held[target][which]
        assert Reconstructor(session.threshold).reconstruct(held, right).secret is None
        # One share that is guessed leads elsewhere; the one that is missing would lead there.
        guess = {**held, session.points[target]: bytes(33)}
        assert Reconstructor(session.threshold).reconstruct(guess, right).secret is None
        assert (
            Reconstructor(session.threshold).reconstruct({**held, session.points[target]: own}, right).secret
        )


def test_of_each_site_one_kind_of_secret_is_revealed():
    session = session_of(5)
    parties = Parties(session)
    answers = parties.envelopes()
    parties.envelopes = lambda: answers
    parties.silent = {"oslo"}
    agreements = parties.agreements()
    parties.agreements = lambda: agreements
    held = {name: dict(member._held) for name, member in parties.members.items()}
    for name, message in parties.revealed().items():
        shares = read(message, Revealed).shares
        assert shares == {owner: pair[owner == "oslo"] for owner, pair in held[name].items()}
        assert shares.keys() == set(session.names)


def test_masks_are_fresh_even_for_the_same_sites_round_and_vectors():
    session, identities = session_of(3), {name: Identity.fresh() for name in CITIES[:3]}
    runs = [Parties(session, identities=identities) for _ in range(2)]
    for parties in runs:
        parties.survivors()
    first, second = (masked_by(parties, "oslo") for parties in runs)
    assert (first != second).any()


def test_a_round_has_one_set_of_survivors_whatever_the_server_tries():
    # Two sums of the same vectors that differ in a site would give its vector away.
    session, identities = session_of(5), {name: Identity.fresh() for name in CITIES[:5]}
    vectors = vectors_of(session)
    secure_sum(vectors, session=session, identities=identities)
    with pytest.raises(
        SecureAggregationFailed, match="another set of survivors was signed for this run and round"
    ):
        secure_sum(vectors, session=session, identities=identities, dropped={"oslo": "mask"})
    fewer = replace(session, names=tuple(set(session.names) - {"oslo"}))
    with pytest.raises(SecureAggregationFailed, match="another set of survivors"):
        secure_sum(
            {name: vectors[name] for name in fewer.names},
            session=fewer,
            identities=identities,
        )
    again = secure_sum(vectors, session=replace(session, round=2), identities=identities)
    assert (again.total == added(vectors, session.names)).all()
