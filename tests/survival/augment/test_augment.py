"""Synthetic records: who gets them, what they look like, what they cost, and who is left out."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tacit import Federation, Key, Ledger, Open, Privacy
from tacit.errors import InvalidValue, Refused
from tacit.privacy import accounting
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import ROUNDED, NoPrivacy, RecordLevel
from tacit.privacy.policy import Provenance
from tacit.sites.table import Table, from_arrays
from tacit.survival.augment import AUGMENTATIONS, MVAEC, MVAES, Augmentation, AugmentedFederation

KEY = Key(5, rehearsal=True)
OPEN = Open()
PRIVATE = Privacy(unit="record", epsilon=4.0, delta=1e-5, clip=1.0, rehearsal=True)
SITES = Privacy(unit="site", epsilon=4.0, delta=1e-5, clip=1.0, rehearsal=True)
QUICK = {"steps": 10, "hidden": 8, "latent": 2}
PAID = {**QUICK, "epsilon": 1.5, "span": (0.05, 5.0)}


def patients(records: int, seed: int, *, shift: float = 0.0, censored: float = 0.4) -> Table:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(records, 3)) + shift
    time = np.exp(0.5 * x[:, 0]) * generator.exponential(size=records) + 1e-6
    event = (generator.uniform(size=records) > censored).astype(float)
    return from_arrays(x, time=time, event=event)


def federation(**options: object) -> Federation:
    sizes = {"oslo": 60, "bergen": 90, "bodo": 40}
    tables = {name: patients(size, seed, shift=seed) for seed, (name, size) in enumerate(sizes.items())}
    return Federation(tables, **options)


def events(table: Table) -> int:
    return int(table.targets["event"].sum())


def augment(
    how: Augmentation, where: Federation, privacy: Privacy | Open = OPEN, key: Key = KEY
) -> tuple[AugmentedFederation, Provenance]:
    provenance = Provenance(privacy, public=where.public)
    return how.augment(where, privacy, provenance, key), provenance


def same(one: Table, other: Table) -> bool:
    return one.digest() == other.digest()


@pytest.mark.parametrize("kind", [MVAEC, MVAES])
@pytest.mark.parametrize("privacy", [Open(), PRIVATE])
def test_real_records_stay_and_synthetic_ones_follow_with_an_event_and_a_time(kind, privacy):
    where = federation()
    options = QUICK if privacy == Open() else PAID
    made, _ = augment(kind(**options), where, privacy)
    assert list(made) == list(where)
    for name in where:
        own, added = where.records_of(name), made.synthetic[name]
        assert same(made.records_of(name).take(slice(0, len(own))), own)
        assert same(made.records_of(name).take(slice(len(own), None)), added)
        assert (added.targets["event"] == 1).all()
        assert (added.targets["time"] > 0).all()
        assert np.isfinite(added.features).all()
        assert added.columns == own.columns


@pytest.mark.parametrize("k", [0.25, 0.5, 1.0, 2.0])
def test_there_are_k_synthetic_records_for_each_event(k):
    where = federation(records=190)
    made, _ = augment(MVAEC(k=k, **QUICK), where)
    for name in where:
        assert len(made.synthetic[name]) == round(k * events(where.records_of(name)))
    assert made.records == 190 + sum(len(table) for table in made.synthetic.values())
    assert made.mean_site_size == made.records / 3


def test_everything_else_about_the_federation_stays():
    where = federation(held_out=patients(9, 9), reference=patients(9, 8), public=True, origin={"data": {}})
    made, _ = augment(MVAEC(**QUICK), where)
    assert made.held_out is where.held_out
    assert made.reference is where.reference
    assert made.public
    assert made.origin == where.origin
    assert made.records is None
    assert made.fingerprint != where.fingerprint
    assert made.with_record_count(7).records == 7
    training, apart = made.split(np.arange(len(made.store)) % 2 == 0, 0.5)
    assert len(training.store) + len(apart.store) == len(made.store)


def test_the_same_key_draws_the_same_records_in_whatever_order_sites_come():
    where = federation()
    turned = Federation({name: where.records_of(name) for name in reversed(list(where))})
    for how in (MVAEC(**QUICK), MVAES(**QUICK)):
        first, again, other = (augment(how, place)[0] for place in (where, where, turned))
        different, _ = augment(how, where, key=Key(6, rehearsal=True))
        for name in where:
            assert same(first.synthetic[name], again.synthetic[name])
            np.testing.assert_allclose(
                first.synthetic[name].features, other.synthetic[name].features, atol=1e-9
            )
            assert not same(first.synthetic[name], different.synthetic[name])


def test_records_stay_at_their_site_with_mvaec_whatever_others_hold():
    where = federation()
    changed = {name: where.records_of(name) for name in where} | {"bodo": patients(40, 77, shift=-50.0)}
    for privacy, options in ((Open(), QUICK), (PRIVATE, PAID)):
        one, other = (augment(MVAEC(**options), place, privacy)[0] for place in (where, Federation(changed)))
        for name in ("oslo", "bergen"):
            np.testing.assert_allclose(
                one.synthetic[name].features, other.synthetic[name].features, atol=1e-8
            )
            np.testing.assert_allclose(
                one.synthetic[name].targets["time"], other.synthetic[name].targets["time"], rtol=1e-8
            )
        assert not same(one.synthetic["bodo"], other.synthetic["bodo"])


def test_mvaes_deals_out_every_record_once_and_mixes_the_sites():
    where = federation()
    own, dealt = (augment(kind(**QUICK), where)[0] for kind in (MVAEC, MVAES))
    pools = [
        np.concatenate([made.synthetic[name].features for name in where]).tolist() for made in (own, dealt)
    ]
    assert sorted(pools[0]) == sorted(pools[1])
    for name in where:
        assert len(own.synthetic[name]) == len(dealt.synthetic[name])
        mine = own.synthetic[name].features.tolist()
        assert any(row not in mine for row in dealt.synthetic[name].features.tolist())


def test_synthetic_records_resemble_those_of_their_own_site():
    where = federation()
    made, _ = augment(MVAEC(k=5.0, steps=200), where)
    for name in where:
        own = where.records_of(name)
        own = own.take(own.targets["event"] == 1)
        shift = (made.synthetic[name].features.mean(axis=0) - own.features.mean(axis=0)).round(2)
        np.testing.assert_allclose(shift, 0.0, atol=0.35)
        ratio = made.synthetic[name].features.std(axis=0) / own.features.std(axis=0)
        np.testing.assert_allclose(ratio, 1.0, atol=0.25)
        # The method it follows is at .19/.78 here.
        logs, real = np.log(made.synthetic[name].targets["time"]), np.log(own.targets["time"])
        assert 0.7 < logs.std() / real.std() < 1.3


def test_a_site_too_small_is_told_so_and_keeps_its_own_records():
    few = {"tiny": patients(9, 1), "calm": patients(30, 2, censored=1.1), "oslo": patients(50, 3)}
    single = patients(30, 4, censored=1.1)
    single.targets["event"][3] = 1.0
    where = Federation({**few, "single": single})
    made, provenance = augment(MVAES(k=1.0, **QUICK), where)
    assert set(made.synthetic) == {"oslo"}
    for name in ("tiny", "calm", "single"):
        assert same(made.records_of(name), where.records_of(name))
    assert len(made.notes) == 3
    assert made.notes[0].startswith("site tiny is left out of augmentation: it has 9 records and ")
    assert "site calm is left out of augmentation: it has 30 records and 0 events" in made.notes[1]
    assert any("too small" in what for what in provenance.bare)


def test_nobody_is_augmented_where_all_are_too_small():
    where = Federation({"tiny": patients(9, 1), "small": patients(5, 2)})
    for kind in (MVAEC, MVAES):
        made, _ = augment(kind(**QUICK), where)
        assert made.synthetic == {}
        assert len(made.store) == 14


def test_an_open_run_says_that_dealt_records_are_bare():
    assert augment(MVAEC(**QUICK), federation())[1].bare == []
    bare = augment(MVAES(**QUICK), federation())[1].bare
    assert len(bare) == 1
    assert "synthetic records" in bare[0]
    assert augment(MVAES(**QUICK), federation(public=True))[1].bare == []
    assert augment(MVAES(**PAID), federation(), PRIVATE)[1].bare == []


def test_the_price_is_that_of_what_is_trained(monkeypatch):
    how = MVAEC(**{**PAID, "sample": 0.5, "clip": 0.3})
    mechanism = how.mechanism(PRIVATE)
    prices = how.release(PRIVATE, ["oslo", "bergen"])
    counts = [price for price in prices if "number" in price.purpose]
    steps = [price for price in prices if "autoencoder" in price.purpose]
    assert [price.subject for price in counts] == ["records@oslo", "records@bergen"]
    assert {price.scale for price in counts} == {1 / (0.1 * 1.5)}
    assert len(steps) == 2
    for price in steps:
        assert (price.count, price.rate, price.bound, price.sensitivity) == (10, 0.5, 0.3, 0.3)
        assert price.scale == mechanism.multiplier * 0.3
        assert (price.law, price.relation, price.rehearsal) == ("gaussian", "add-remove", True)
    seen: list[tuple[str, float]] = []
    for law in ("gaussian", "laplace"):
        # All sites of a step get their noise in one call, each with a key of its own.
        add = partial(_noted, getattr(noise, law), law, seen)
        monkeypatch.setattr(noise, law, add)
    where = federation()
    _ = augment(how, where, PRIVATE)
    assert seen.count(("laplace", counts[0].scale)) == len(where)
    # Sums carry a little more noise than is charged, for their rounding.
    assert seen.count(("gaussian", steps[0].scale * (1 + ROUNDED))) == 10 * len(where)
    assert len(seen) == 11 * len(where)


def _noted(add, law, seen, values, scale, *keys):
    seen.extend([(law, scale)] * len(keys))
    return add(values, scale, *keys)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("stated", ["epsilon", "noise_multiplier"])
def test_augmentation_costs_no_more_than_its_part_and_leaves_the_rest(law, stated):
    delta = 1e-5 if law == "gaussian" else 0.0
    privacy = Privacy(unit="record", delta=delta, clip=1.0, mechanism=law, rehearsal=True, **{stated: 4.0})
    how = MVAES(**PAID)
    rest = how.reserve(privacy)
    prices = how.release(privacy, ["oslo"])
    assert rest.unit == "record"
    if stated == "noise_multiplier":
        assert rest == privacy
        assert accounting.epsilon(prices, delta) <= 1.5
        return
    assert rest.epsilon == pytest.approx(2.5)
    assert rest.delta == pytest.approx(delta * 2.5 / 4.0)
    assert accounting.epsilon(prices, delta * 1.5 / 4.0) <= 1.5
    assert all(price.view == "sites" for price in prices)


def test_the_ledger_bears_augmentation_and_training_together():
    how = MVAEC(**PAID)
    rest = how.reserve(PRIVATE)
    multiplier = accounting.calibrate(epsilon=rest.epsilon, delta=rest.delta, steps=20, rate=0.2)
    training = RecordLevel(law="gaussian", clip=1.0, multiplier=multiplier, steps=20, rate=0.2)
    with Ledger(None) as ledger:
        ledger.allow(epsilon=4.0, delta=1e-5)
        ledger.charge([*how.release(PRIVATE, ["oslo"]), *training.release(1, ["oslo"])])
        assert ledger.spent(1e-5) <= 4.0


def test_nothing_is_charged_or_noised_in_open_runs_and_at_site_level():
    for privacy in (Open(), SITES):
        how = MVAEC(**QUICK)
        assert how.reserve(privacy) is privacy
        assert how.release(privacy, ["oslo"]) == ()
        assert isinstance(how.mechanism(privacy), NoPrivacy)
    assert MVAES(**QUICK).reserve(Open()) == Open()


def test_what_cannot_be_promised_is_refused():
    with pytest.raises(Refused, match="epsilon is missing"):
        _ = MVAEC().reserve(PRIVATE)
    with pytest.raises(Refused, match="Remove it"):
        _ = MVAEC(epsilon=1.0).reserve(Open())
    with pytest.raises(Refused, match="Remove it"):
        _ = MVAEC(epsilon=1.0).reserve(SITES)
    with pytest.raises(Refused, match="Use MVAEC"):
        _ = MVAES().reserve(SITES)
    with pytest.raises(InvalidValue, match="below that of the promise"):
        _ = MVAEC(epsilon=4.0).reserve(PRIVATE)
    # Whoever forgets to ask is refused all the same.
    with pytest.raises(Refused, match="Use MVAEC"):
        _ = augment(MVAES(**QUICK), federation(), SITES)
    with pytest.raises(Refused, match="epsilon is missing"):
        _ = augment(MVAEC(**QUICK), federation(), PRIVATE)


def test_a_private_run_standardises_by_public_numbers_alone():
    private = replace(PRIVATE, rehearsal=False)
    key, without = Key(5), {**PAID, "span": None}
    with pytest.raises(Refused, match="public `span`"):
        _ = augment(MVAEC(**without), federation(), private, key)
    with pytest.raises(Refused, match="public `span`"):
        MVAEC(**without).check(federation(), private, Provenance(private, public=False))
    made, _ = augment(MVAEC(**without), federation(reference=patients(200, 50)), private, key)
    assert made.synthetic
    _, provenance = augment(MVAEC(**without), federation(), PRIVATE)
    assert any("span of event times" in what for what in provenance.bare)


def test_a_key_that_repeats_is_refused_where_no_rehearsal_was_declared():
    private = replace(PRIVATE, rehearsal=False)
    with pytest.raises(Refused, match="rehearsal"):
        _ = augment(MVAEC(**PAID), federation(), private, KEY)
    # Noisy counts of events decide which sites take part: these leave some in nearly always.
    paid = MVAEC(**{**PAID, "epsilon": 3.5})
    first, again = (augment(paid, federation(), private, Key(5))[0].synthetic for _ in range(2))
    assert first.keys() != again.keys() or not any(same(first[name], again[name]) for name in first)


def test_private_synthetic_times_stay_inside_the_public_span():
    made, _ = augment(MVAEC(**{**PAID, "span": (0.5, 2.0)}), federation(), PRIVATE)
    times = np.concatenate([table.targets["time"] for table in made.synthetic.values()])
    assert 0.5 * (1 - 1e-12) <= times.min() <= times.max() <= 2.0 * (1 + 1e-12)


def test_how_many_there_are_and_who_is_left_out_follows_noisy_counts(monkeypatch):
    monkeypatch.setattr(noise, "laplace", lambda values, scale, key: values * 0 + 24.4)
    made, _ = augment(MVAEC(**PAID), federation(), PRIVATE)
    assert {len(table) for table in made.synthetic.values()} == {12}
    monkeypatch.setattr(noise, "laplace", lambda values, scale, key: values * 0 + 9.4)
    made, provenance = augment(MVAEC(**PAID), federation(), PRIVATE)
    assert made.synthetic == {}
    assert "by its noisy count it has about 9 events" in made.notes[0]
    assert provenance.bare == []
    monkeypatch.setattr(noise, "laplace", lambda values, scale, key: values * 0 + 1e6)
    made, _ = augment(MVAEC(**PAID), federation(records=190), PRIVATE)
    assert {len(table) for table in made.synthetic.values()} == {95}


def test_a_censored_record_more_or_less_changes_no_sum_that_is_noised(monkeypatch):
    """With the draws of the autoencoder fixed, sums move by what the one record adds: here, nothing."""
    sums: list[np.ndarray] = []
    monkeypatch.setattr(noise, "gaussian", lambda values, scale, key: sums.append(values.copy()) or values)
    own = patients(40, 1)
    own = own.take(np.argsort(-own.targets["event"], kind="stable"))
    for table in (own, own.take(slice(0, 39))):
        _ = augment(MVAEC(**{**PAID, "steps": 2}), Federation({"oslo": table}), PRIVATE)
    for one, other in zip(sums[:2], sums[2:], strict=True):
        # What sums are divided by follows the noisy count, so the second step may differ a little.
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_one_record_more_or_less_moves_a_sum_by_at_most_the_clip(monkeypatch):
    sums: list[np.ndarray] = []
    monkeypatch.setattr(noise, "gaussian", lambda values, scale, key: sums.append(values.copy()) or values)
    own = patients(40, 1, censored=0.0)
    own.features[-1] = 1e6
    own.targets["time"][-1] = 1e-5
    for table in (own, own.take(slice(0, 39))):
        _ = augment(MVAEC(**{**PAID, "steps": 1, "clip": 0.7}), Federation({"oslo": table}), PRIVATE)
    assert 0.1 < np.linalg.norm(sums[0] - sums[1]) <= 0.7 * (1 + 1e-9)


def test_at_site_level_nobody_hears_how_many_records_there_are_or_who_is_small():
    where = Federation({"tiny": patients(9, 1), "oslo": patients(50, 3)}, records=59)
    private = replace(SITES, rehearsal=False)
    made, provenance = augment(MVAEC(**QUICK), where, private, Key(1))
    assert len(made.synthetic["oslo"]) > 0
    assert made.notes == ()
    assert made.records == 59
    assert provenance.bare == []


def test_weights_count_in_training_and_synthetic_records_weigh_one():
    where = federation()
    weighted, plain = (
        Federation(
            {
                name: from_arrays(
                    where.records_of(name).features,
                    weight=np.where(np.arange(len(where.records_of(name))) < 10, heavy, 1.0),
                    **where.records_of(name).targets,
                )
                for name in where
            }
        )
        for heavy in (20.0, 1.0)
    )
    one, other = (augment(MVAEC(**QUICK), place)[0] for place in (weighted, plain))
    assert (one.synthetic["oslo"].targets["weight"] == 1).all()
    assert not same(one.synthetic["oslo"], other.synthetic["oslo"])


def test_records_that_it_cannot_stand_for_are_refused():
    own = patients(30, 1)
    for targets, field in (
        ({"time": own.targets["time"]}, "event"),
        ({**own.targets, "entry": own.targets["time"] / 2}, "entry"),
        ({**own.targets, "event": own.targets["event"] * 2}, "event"),
        ({**own.targets, "time": own.targets["time"] - own.targets["time"].min()}, "time"),
    ):
        with pytest.raises(InvalidValue, match=field):
            _ = augment(MVAEC(**QUICK), Federation({"oslo": from_arrays(own.features, **targets)}))


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("latent", 0),
        ("hidden", 1.5),
        ("alpha", 0.0),
        ("beta", -1.0),
        ("k", 0.0),
        ("steps", 0),
        ("sample", 1.1),
        ("lr", 0.0),
        ("epsilon", -1.0),
        ("clip", 0.0),
        ("span", (2.0, 1.0)),
        ("span", (1.0,)),
        ("residuals", "some"),
    ],
)
def test_bad_choices_are_refused_by_name(field, given):
    with pytest.raises(InvalidValue, match=field):
        _ = MVAEC(**{field: given})


def test_both_kinds_are_known_by_name():
    assert dict(AUGMENTATIONS) == {"mvaec": MVAEC, "mvaes": MVAES}
