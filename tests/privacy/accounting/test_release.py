"""Fields of a release, its meaning under another relation, and the subjects whose cost it adds to."""

import math
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidValue, TacitError
from tacit.privacy.accounting.release import Release, by_subject, from_dict

PLAIN = {"scale": 1.0, "sensitivity": 1.0}
NOT_POSITIVE = [0, 0.0, -1.0, -1e-300, math.nan, math.inf, -math.inf, True, "1", None]


def release(**fields) -> Release:
    return Release(**{**PLAIN, **fields})


def about(subject: str, **fields) -> Release:
    return release(subject=subject, unit="site" if subject.startswith("sites") else "record", **fields)


@st.composite
def releases(draw) -> Release:
    unit, subject = draw(
        st.sampled_from(
            [("record", "records"), ("record", "records@oslo"), ("site", "sites"), ("site", "sites@oslo")]
        )
    )
    sensitivity = draw(st.floats(1e-9, 1e9))
    return Release(
        law=draw(st.sampled_from(["gaussian", "laplace", "selection"])),
        scale=draw(st.floats(1e-9, 1e9)),
        sensitivity=sensitivity,
        bound=sensitivity / 2,
        relation=draw(st.sampled_from(["add-remove", "replace"])),
        rate=draw(st.floats(1e-12, 1.0)),
        sampled=draw(st.sampled_from(["unit", "group"])),
        count=draw(st.integers(1, 10**12)),
        unit=unit,
        subject=subject,
        view=draw(st.sampled_from(["server", "sites", "public"])),
        party=draw(st.text(max_size=5)),
        purpose=draw(st.text(max_size=5)),
        rehearsal=draw(st.booleans()),
    )


@pytest.mark.parametrize("field", ["scale", "sensitivity"])
@pytest.mark.parametrize("value", NOT_POSITIVE, ids=repr)
def test_noise_and_sensitivity_must_be_positive_and_finite(field, value):
    with pytest.raises(InvalidValue, match=re.escape(f"{field} = {value!r} is not allowed")):
        release(**{field: value})


@pytest.mark.parametrize("field", ["scale", "sensitivity"])
def test_a_number_too_large_for_a_float_is_refused_like_infinity(field):
    with pytest.raises(InvalidValue, match=field):
        release(**{field: 10**400})


@pytest.mark.parametrize(("scale", "sensitivity"), [(1e-300, 1e300), (1e300, 1e-300)])
def test_a_multiplier_that_overflows_is_refused(scale, sensitivity):
    with pytest.raises(InvalidValue, match="scale / sensitivity"):
        Release(scale=scale, sensitivity=sensitivity)


def test_discrete_noise_has_from_16_to_2_to_the_60_steps():
    for scale in (16.0, 2.0**60):
        assert release(law="discrete", scale=scale).count == 1
    for scale in (math.nextafter(16.0, 0.0), math.nextafter(2.0**60, math.inf)):
        with pytest.raises(InvalidValue, match="from 16 to 2\\^60 steps of a lattice"):
            release(law="discrete", scale=scale)
        assert release(scale=scale).count == 1


@pytest.mark.parametrize(
    "value", [0, 0.0, -0.1, math.nextafter(1, 2), 2, math.nan, math.inf, True, "0.1"], ids=repr
)
def test_a_rate_must_be_a_probability_above_zero(value):
    with pytest.raises(InvalidValue, match=re.escape(f"rate = {value!r} is not allowed")):
        release(rate=value)


@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, True, math.nan, "3", None], ids=repr)
def test_a_count_must_be_a_whole_number_of_at_least_one(value):
    with pytest.raises(InvalidValue, match=re.escape(f"count = {value!r} is not allowed")):
        release(count=value)


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("law", "gausian", "gaussian"),
        ("law", "Laplace", "laplace"),
        ("relation", "add_remove", "add-remove"),
        ("relation", "replacement", "replace"),
        ("sampled", "groups", "group"),
        ("unit", "records", "record"),
        ("view", "site", "sites"),
    ],
)
def test_a_misspelt_word_is_refused_with_the_nearest_one(field, value, meant):
    expected = rf'{field} = {value!r} is not allowed.*did you mean "{meant}"\?'
    with pytest.raises(InvalidValue, match=expected):
        release(**{field: value})


def test_a_word_that_is_near_nothing_is_refused_without_a_guess():
    with pytest.raises(InvalidValue, match="law = 'xyz' is not allowed") as refusal:
        release(law="xyz")
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize(
    ("unit", "subject"),
    [
        ("record", "sites"),
        ("record", "sites@oslo"),
        ("site", "records"),
        ("site", "records@oslo"),
        ("site", ""),
    ],
)
def test_the_subject_must_fit_the_unit(unit, subject):
    with pytest.raises(InvalidValue, match=re.escape(f"subject = {subject!r} is not allowed")):
        release(unit=unit, subject=subject)


def test_a_release_is_about_somebody():
    with pytest.raises(InvalidValue, match="subject = '' is not allowed"):
        release(subject="")


@pytest.mark.parametrize("subject", [None, 3, b"records"], ids=repr)
def test_a_subject_that_is_no_text_is_refused(subject):
    with pytest.raises(InvalidValue, match="subject"):
        release(subject=subject)


def test_a_mistake_is_both_ours_and_a_value_error():
    with pytest.raises(TacitError):
        release(scale=-1)
    with pytest.raises(ValueError, match="scale"):
        release(scale=-1)


def test_a_release_cannot_be_changed():
    with pytest.raises(AttributeError):
        release().scale = 2.0


def test_the_multiplier_is_noise_in_units_of_the_sensitivity():
    assert release(scale=6.0, sensitivity=4.0).multiplier == 1.5


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"relation": "replace"}, False),
        ({"sampled": "group"}, False),
        ({"rate": 0.1}, False),
        ({"rate": 0.1, "relation": "replace"}, True),
        ({"rate": 0.1, "sampled": "group"}, True),
        ({"rate": 0.1, "sampled": "group", "relation": "replace"}, True),
    ],
)
def test_only_a_drawn_exchange_is_two_sided(fields, expected):
    assert release(bound=0.5, **fields).two_sided is expected


@pytest.mark.parametrize("fields", [{"relation": "replace"}, {"sampled": "group"}])
@pytest.mark.parametrize("bound", [None, 0.0, 0.51, math.nan])
def test_a_drawn_exchange_needs_contributions_around_zero(fields, bound):
    # A count in [0, 1] moves by 1 when exchanged, yet its draw is that of a unit that is there or not.
    with pytest.raises(InvalidValue, match="bound"):
        release(rate=0.1, bound=bound, **fields)


@pytest.mark.parametrize(
    "subject", ["records@oslo ", " records", "records@", "records@oslo@ward", "@oslo", ""]
)
def test_two_spellings_of_a_subject_are_not_two_people(subject):
    with pytest.raises(InvalidValue, match="subject"):
        release(subject=subject)


@given(releases())
@settings(max_examples=50, deadline=None)
def test_replacement_doubles_what_was_add_or_remove_and_leaves_the_rest(release):
    replaced = release.under_replacement()
    assert replaced.relation == "replace"
    assert replaced.under_replacement() is replaced
    if release.relation == "replace":
        assert replaced is release
    else:
        assert replaced.sensitivity == 2 * release.sensitivity
        assert replaced.scale == release.scale
        assert replaced.rate == (1.0 if release.sampled == "group" else release.rate)
        assert (replaced.law, replaced.count, replaced.subject) == (
            release.law,
            release.count,
            release.subject,
        )


def test_a_unit_that_leaves_one_drawn_group_and_joins_another_counts_on_no_draw():
    moved = release(rate=0.01, sampled="group", bound=0.5).under_replacement()
    assert (moved.rate, moved.sensitivity, moved.two_sided) == (1.0, 2.0, False)


@given(releases())
@settings(max_examples=100, deadline=None)
def test_a_release_survives_plain_data(release):
    assert from_dict(release.as_dict()) == release
    assert from_dict(msgspec.json.decode(msgspec.json.encode(release.as_dict()))) == release


def test_plain_data_keeps_the_order_of_the_fields():
    assert list(release().as_dict())[:4] == ["law", "scale", "sensitivity", "relation"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"law": "gausian"},
        {"scale": -1.0},
        {"scale": "1"},
        {"scale": None},
        {"count": 0},
        {"count": 2.5},
        {"count": "2"},
        {"rate": 0.0},
        {"rehearsal": "no"},
        {"subject": 3},
        {"subject": "sites"},
    ],
    ids=repr,
)
def test_plain_data_with_a_wrong_field_is_refused(wrong):
    with pytest.raises((InvalidValue, msgspec.ValidationError)):
        from_dict({**PLAIN, **wrong})


@pytest.mark.parametrize("missing", ["scale", "sensitivity"])
def test_plain_data_without_noise_or_sensitivity_is_refused(missing):
    with pytest.raises((InvalidValue, msgspec.ValidationError)):
        from_dict({field: value for field, value in PLAIN.items() if field != missing})


def test_an_unknown_field_is_refused_because_the_one_that_was_meant_may_cost_more():
    with pytest.raises((InvalidValue, msgspec.ValidationError)):
        from_dict({**PLAIN, "cuont": 1000})


def test_nothing_concerns_nobody():
    assert by_subject([]) == {}


def test_releases_of_disjoint_sites_stay_apart():
    oslo, bergen = about("records@oslo"), about("records@bergen")
    assert by_subject([oslo, bergen]) == {"records@oslo": [oslo], "records@bergen": [bergen]}


def test_alike_releases_are_all_kept():
    one = about("records@oslo")
    assert by_subject([one, one]) == {"records@oslo": [one, one]}


@pytest.mark.parametrize("whole", ["records", "sites", "sites@oslo"])
def test_what_is_let_out_about_a_whole_concerns_its_parts(whole):
    part, other = about("records@oslo", scale=3.0), about("records@bergen", scale=4.0)
    groups = by_subject([part, other, about(whole, scale=5.0)])
    assert sorted(release.scale for release in groups["records@oslo"]) == [3.0, 5.0]


def test_all_wholes_together_concern_the_part():
    wholes = [about("records", scale=4.0), about("sites", scale=5.0), about("sites@oslo", scale=6.0)]
    groups = by_subject([about("records@oslo", scale=3.0), *wholes])
    assert sorted(release.scale for release in groups["records@oslo"]) == [3.0, 4.0, 5.0, 6.0]


def test_what_concerns_all_sites_concerns_each_and_all_records():
    groups = by_subject(
        [about("sites", scale=3.0), about("sites@oslo", scale=4.0), about("records", scale=5.0)]
    )
    assert sorted(release.scale for release in groups["sites@oslo"]) == [3.0, 4.0]
    assert sorted(release.scale for release in groups["records"]) == [3.0, 5.0]


def test_what_is_let_out_about_another_site_does_not_concern_this_one():
    groups = by_subject([about("records@oslo"), about("sites@bergen"), about("records@bergen")])
    assert [release.subject for release in groups["records@oslo"]] == ["records@oslo"]
    assert {release.subject for release in groups["records@bergen"]} == {"records@bergen", "sites@bergen"}


def test_a_part_does_not_add_to_the_cost_of_the_whole():
    groups = by_subject([about("records"), about("records@oslo")])
    assert [release.subject for release in groups["records"]] == ["records"]


def test_one_relation_and_unit_is_left_as_it_is():
    rows = [about("records@oslo", rate=0.1), about("records", scale=2.0)]
    assert by_subject(rows)["records@oslo"] == rows


def test_mixed_relations_are_brought_to_replacement():
    added, exchanged = about("records", rate=0.1), about("records", sensitivity=2.0, relation="replace")
    assert by_subject([added, exchanged])["records"] == [added.under_replacement(), exchanged]


def test_mixed_units_are_brought_to_replacement():
    record, site = about("records@oslo"), about("sites")
    groups = by_subject([record, site])
    assert groups["records@oslo"] == [record.under_replacement(), site.under_replacement()]
    assert groups["sites"] == [site]


@given(st.lists(releases(), max_size=6))
@settings(max_examples=50, deadline=None)
def test_every_release_counts_for_its_own_subject_under_one_relation(rows):
    groups = by_subject(rows)
    assert set(groups) == {release.subject for release in rows}
    for subject, group in groups.items():
        own = [release for release in rows if release.subject == subject]
        assert sum(release.subject == subject for release in group) == len(own)
        assert len({(release.relation, release.unit) for release in group}) == 1 or {
            release.relation for release in group
        } == {"replace"}


@pytest.mark.parametrize("subject", ["records", "records@oslo"])
def test_a_release_about_whole_sites_alone_costs_a_record_the_exchange_of_its_site(subject):
    """A record that joins a site moves the clipped update of the site by up to twice the clip bound."""
    site, drawn = about("sites", scale=3.0), about("sites", rate=0.1)
    groups = by_subject([site, drawn], also=[subject])
    assert groups["sites"] == [site, drawn]
    assert groups[subject] == [site.under_replacement(), drawn.under_replacement()]
    assert groups[subject][0].sensitivity == 2 * site.sensitivity


def test_a_release_about_whole_sites_stays_as_it_is_for_a_site():
    site = about("sites", scale=3.0)
    assert by_subject([site], also=["sites@oslo"])["sites@oslo"] == [site]
