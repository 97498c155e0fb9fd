"""What is proved of a launch: right results pass, wrong ones are named, whatever stood in the array before."""

from __future__ import annotations

import numpy as np
import pytest

from ptxkit import Ptr, TensorMap, kernel
from ptxkit.measure.device import Cpu
from ptxkit.measure.proved import TOLERANCES, CheckGivenError, Proof
from ptxkit.types import f32

pytestmark = pytest.mark.pure
DTYPES = ("float64", "float32", "float16", "bfloat16", "int32", "uint8")


@kernel(block=32)
def taken(x: Ptr[f32], y: Ptr[f32]) -> None:
    """Two arrays."""


def proof(before, check, tolerance=None):
    x = np.arange(before.size).reshape(before.shape).astype(before.dtype)
    place = Cpu()
    made = Proof(taken, place, (x, before), check, tolerance)
    own = place.copied((x, before))
    made.prepare(own)
    return made, own


def typed(name):
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("name", DTYPES)
def test_right_results_pass_and_a_wrong_element_is_seen(name):
    wanted = np.arange(1, 65).reshape(8, 8).astype(typed(name))
    for before in (np.zeros((8, 8), typed(name)), wanted):
        made, own = proof(before, {"y": wanted})
        assert made.fault(own) is not None                      # nothing was launched
        own[1][...] = wanted
        assert made.fault(own) is None
        own[1][3, 5] = wanted[3, 5] * 2
        assert made.fault(own).startswith("`y` differs from its reference by")
        if name not in ("int32", "uint8"):
            own[1][3, 5] = np.nan
            assert "inf" in made.fault(own)


def test_rounding_passes_as_far_as_the_type_says():
    wanted = np.random.default_rng(0).standard_normal(1000)
    for name, word in (("float64", "f64"), ("float32", "f32"), ("float16", "f16"), ("bfloat16", "bf16")):
        made, own = proof(np.zeros(1000, typed(name)), {"y": wanted})
        own[1][...] = wanted.astype(typed(name))
        assert made.fault(own) is None
        own[1][...] = (wanted * (1 + 3 * TOLERANCES[word])).astype(typed(name))
        assert made.fault(own) is not None
    made, own = proof(np.zeros(1000, np.float32), {"y": wanted}, tolerance=0.1)
    own[1][...] = wanted * 1.05
    assert made.fault(own) is None


def test_infinities_and_nan_of_a_reference_are_wanted_too():
    wanted = np.array([1, np.inf, -np.inf, np.nan], np.float32)
    made, own = proof(np.zeros(4, np.float32), {"y": wanted})
    own[1][...] = wanted
    assert made.fault(own) is None
    for place in (1, 2, 3):
        own[1][...] = wanted
        own[1][place] = 7
        assert "inf" in made.fault(own)
    with pytest.raises(CheckGivenError, match="the reference of `y` has no finite number"):
        proof(np.zeros(4, np.float32), {"y": np.full(4, np.nan, np.float32)})


def test_references_may_be_made_of_the_arguments_and_of_maps():
    y = np.zeros(16, np.float32)
    made, own = proof(y, {"y": lambda x, y: x + 1})
    own[1][...] = own[0] + 1
    assert made.fault(own) is None
    made = Proof(taken, Cpu(), (y, TensorMap(y, box=(4,))), {"y": np.ones(16)})
    assert made.fault((y, TensorMap(np.ones(16, np.float32), box=(4,)))) is None


@pytest.mark.parametrize(("said", "sentence"), [(None, None), (True, None), (False, "the check says no"), ("no good", "no good"),
                                                (np.bool_(True), None), (np.bool_(False), "the check says no")])
def test_what_a_check_may_say(said, sentence):
    made, own = proof(np.zeros(4, np.float32), lambda x, y: said)
    assert made.fault(own) == sentence


def test_an_assertion_is_a_fault_and_another_error_is_the_users():
    def asserts(x, y):
        np.testing.assert_allclose(y, x)

    made, own = proof(np.ones(4, np.float32), asserts)
    assert made.fault(own) == "Not equal to tolerance rtol=1e-07, atol=0"
    made, own = proof(np.ones(4, np.float32), lambda x, y: x / y.nothing)
    with pytest.raises(AttributeError):
        made.fault(own)


def test_a_check_that_cannot_be_made():
    for check, sentence in (({"z": 1.0}, "names `z`"), ({"y": np.zeros(3)}, r"shape \(3,\), the argument \(4,\)")):
        with pytest.raises(CheckGivenError, match=sentence):
            proof(np.zeros(4, np.float32), check)
    with pytest.raises(CheckGivenError, match="a reference is for an array"):
        Proof(taken, Cpu(), (np.zeros(4), 5), {"y": 1.0})
