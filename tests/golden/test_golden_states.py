"""Final states of rehearsals: equal up to rounding, and to the bit on the machine that recorded them."""

import capture
import numpy as np
import pytest


@pytest.mark.parametrize("name", capture.RUNS)
def test_a_final_state_is_the_same(train, name):
    found, golden = capture.describe_state(train(name)), capture.load(f"states/{name}")
    assert list(found) == list(golden)
    for array in golden:
        assert found[array]["shape"] == golden[array]["shape"]
        np.testing.assert_allclose(found[array]["values"], golden[array]["values"], rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(
    capture.describe_machine() != capture.load("states_of"),
    reason="another processor, or other numeric packages, than those that recorded the bits",
)
@pytest.mark.parametrize("name", capture.RUNS)
def test_a_final_state_is_the_same_to_the_bit(train, name):
    found, golden = capture.describe_state(train(name)), capture.load(f"states/{name}")
    assert {key: found[key]["sha256"] for key in found} == {key: golden[key]["sha256"] for key in golden}
