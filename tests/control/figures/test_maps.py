"""Maps of weights: near models stay near, the same key gives the same map, and no site is its own witness."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from tacit.control.figures import maps
from tacit.errors import InvalidValue
from tacit.runtime.keys import Key

WORLDS = ("moon", "earth", "mars")


def models(sites=6, rounds=4, coordinates=40, apart=3.0, own=0.0):
    """Weights of sites that go the same way, apart by world and by site, after the shared ones."""
    draws = np.random.default_rng(0)
    homes, habits = draws.normal(size=(3, coordinates)), draws.normal(size=(sites, coordinates))
    way = draws.normal(size=coordinates)
    weights, worlds, steps, names = [], [], [], []
    for number in range(rounds):
        weights.append(number * way)
        for site in range(sites):
            moved = number * way + apart * homes[site % 3] + own * habits[site]
            weights.append(moved + 0.3 * draws.normal(size=coordinates))
        worlds += ["", *(WORLDS[site % 3] for site in range(sites))]
        names += ["global", *(f"site {site}" for site in range(sites))]
        steps += [1000 * number] * (sites + 1)
    return np.array(weights), worlds, steps, names


@pytest.fixture(scope="module")
def figure():
    return maps.weight_map(*models(), key=Key(3), provenance="public: simulated")


def title(figure):
    return figure._suptitle.get_text().replace("\n", " ")


def test_each_world_has_a_shape_and_each_model_a_shade_of_its_steps(figure):
    axes, bar = figure.axes
    assert len(axes.collections) == 3
    assert len({str(dots.get_paths()[0].vertices.tolist()) for dots in axes.collections}) == 3
    for dots in axes.collections:
        assert sorted(dots.get_array().tolist()) == [0, 0, 1000, 1000, 2000, 2000, 3000, 3000]
    assert bar.get_ylabel() == "Environment steps per site"
    note = figure._supxlabel.get_text().replace("\n", " ")
    assert note.startswith("public: simulated. Circles: moon. Squares: earth. Triangles: mars.")


def test_models_of_a_site_are_joined_in_their_order_and_the_shared_path_is_black(figure):
    axes = figure.axes[0]
    weights, worlds, _, names = models()
    places = maps.embed(weights, key=Key(3))
    joined = [line for line in axes.lines if line.get_linestyle() == "-"]
    assert len(joined) == 7
    for line, site in zip(joined, dict.fromkeys(names), strict=True):
        np.testing.assert_array_equal(line.get_xydata(), places[np.array(names) == site])
    assert [to_hex(line.get_color()) == "#000000" for line in joined] == [True] + [False] * 6
    for dots, world in zip(axes.collections, WORLDS, strict=True):
        np.testing.assert_array_equal(dots.get_offsets(), places[np.array(worlds) == world])
    assert {text.get_text() for text in axes.texts} == {*WORLDS, "global"}


def test_the_title_says_how_often_weights_give_their_world_away(figure):
    told = "Weights give the world of a site away in 100 % of cases (guessing: 33 %)"
    assert title(figure) == told
    one_each = maps.weight_map(*models(sites=3), key=Key(3))
    assert title(one_each) == "12 models of 3 sites by t-SNE"


def test_the_same_key_gives_the_same_map_and_near_models_stay_near():
    weights, worlds, _, names = models()
    places = maps.embed(weights, key=Key(3))
    np.testing.assert_array_equal(places, maps.embed(weights, key=Key(3)))
    assert maps.silo_identifiability(places, worlds, names, neighbours=1) > 0.8


@pytest.mark.slow
def test_umap_places_models_too_and_repeats(tmp_path):
    weights, worlds, steps, names = models()
    path = tmp_path / "map.png"
    figure = maps.weight_map(weights, worlds, steps, names, method="umap", key=Key(3), path=path)
    assert "Places: UMAP of the weights" in " ".join(text.get_text() for text in figure.texts).replace(
        "\n", " "
    )
    assert path.read_bytes().startswith(b"\x89PNG")
    places = maps.embed(weights, method="umap", key=Key(3))
    np.testing.assert_array_equal(places, maps.embed(weights, method="umap", key=Key(3)))
    assert maps.silo_identifiability(places, worlds, names, neighbours=3) > 0.5


def test_umap_is_asked_for_a_map_that_repeats(monkeypatch):
    asked = {}

    class Fake:
        def __init__(self, **options):
            asked.update(options)

        def fit_transform(self, rows):
            asked["rows"] = rows
            return rows[:, :2].astype(np.float32)

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Fake))
    weights, worlds, steps, names = models(coordinates=90, rounds=9)
    figure = maps.weight_map(weights, worlds, steps, names, method="umap", key=Key(3))
    assert "Places: UMAP of the weights" in " ".join(text.get_text() for text in figure.texts).replace(
        "\n", " "
    )
    assert asked["rows"].shape == (63, 50)
    assert asked["init"].shape == (63, 2)
    assert asked["n_neighbors"] == 60
    first = asked["random_state"]
    maps.embed(weights[:20], method="umap", key=Key(3))
    assert asked["n_neighbors"] == 19
    assert asked["random_state"] == first
    maps.embed(weights[:20], method="umap", key=Key(4))
    assert asked["random_state"] != first


@pytest.mark.parametrize(("method", "package"), [("umap", "umap"), ("t-sne", "sklearn.manifold")])
def test_a_missing_library_is_named_with_the_way_to_get_it(monkeypatch, method, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidValue, match=r"pip install tacit\[maps\]"):
        maps.embed(models()[0], method=method, key=Key(3))


@pytest.mark.parametrize("shape", [(30, 200), (200, 30), (12, 12)])
def test_main_axes_are_those_of_scikit_learn(shape):
    rows = np.random.default_rng(1).normal(size=shape) * np.linspace(3, 1, shape[1])
    most = min(10, *shape) - 1
    found, known = maps.principal_components(rows, most), PCA(most, svd_solver="full").fit_transform(rows)
    np.testing.assert_allclose(np.abs(found), np.abs(known), atol=1e-8)
    peaks = np.abs(found).argmax(axis=0)
    assert (found[peaks, range(most)] > 0).all()


def test_few_models_and_models_that_are_all_the_same_can_be_placed():
    assert np.isfinite(maps.embed(models()[0][:5], key=Key(3))).all()
    assert maps.embed(np.ones((6, 1)), key=Key(3)).shape == (6, 2)


def test_worlds_are_told_by_the_models_of_other_sites():
    weights, worlds, _, names = models(sites=9, own=1.0)
    kept = np.array([name != "global" for name in names])
    rows, homes, sites = weights[kept], np.array(worlds)[kept], np.array(names)[kept]
    right = 0
    for site in dict.fromkeys(sites.tolist()):
        vote = KNeighborsClassifier(1).fit(rows[sites != site], homes[sites != site])
        right += int((vote.predict(rows[sites == site]) == homes[sites == site]).sum())
    found = maps.silo_identifiability(weights, worlds, names, neighbours=1)
    assert found == right / len(rows)


def test_no_site_is_its_own_witness():
    # Sites differ, worlds do not: whoever looks at other models of the same site is always right.
    weights, worlds, _, names = models(sites=30, apart=0.0, own=5.0)
    kept = np.array([name != "global" for name in names])
    leaky = KNeighborsClassifier(2).fit(weights[kept], np.array(worlds)[kept])
    assert leaky.score(weights[kept], np.array(worlds)[kept]) > 0.9
    assert maps.silo_identifiability(weights, worlds, names) < 0.6


@pytest.mark.parametrize("apart", [0.0, 3.0])
def test_identifiability_needs_a_difference(apart):
    weights, worlds, _, names = models(sites=30, rounds=2, apart=apart)
    found = maps.silo_identifiability(weights, worlds, names)
    assert found == 1 if apart else found < 0.6


def test_a_tie_goes_to_the_nearest():
    rows, worlds = [[0.0], [1.0], [-1.5], [10.0], [12.0]], ["a", "a", "b", "b", "b"]
    # The first row sees a at 1 and b at 1.5; only the third one, beside two of the other world, is misjudged.
    assert maps.silo_identifiability(rows, worlds, list("vwxyz"), neighbours=2) == 4 / 5


@pytest.mark.parametrize(
    ("draw", "match"),
    [
        (lambda: maps.embed(models()[0], method="mds", key=Key(3)), "method = 'mds'"),
        (lambda: maps.embed(models()[0][:4], key=Key(3)), "at least 5 rows"),
        (lambda: maps.embed(models()[0] * np.nan, key=Key(3)), "finite"),
        (lambda: maps.weight_map(models()[0], ["moon"], [0], ["a"], key=Key(3)), "worlds = '1 of them'"),
        (lambda: maps.weight_map(models()[0], models()[1], [0], models()[3], key=Key(3)), "steps"),
        (lambda: maps.weight_map(*models(sites=0, rounds=6), key=Key(3)), "global alone"),
        (
            lambda: maps.silo_identifiability(models()[0], models()[1], models()[3], neighbours=0),
            "neighbours",
        ),
        (lambda: maps.silo_identifiability(np.eye(3), ["a", "a", "b"], ["x", "y", "z"]), "two sites"),
    ],
)
def test_what_cannot_be_mapped_is_refused_by_name(draw, match):
    with pytest.raises(InvalidValue, match=match):
        draw()
