"""The encodings of positions against other ways to make them, and by their properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from attncourse import binary_encoding


@given(length=st.integers(1, 300), spare=st.integers(0, 3))
def test_a_row_is_its_position_in_binary(length, spare):
    num_bits = max(1, len(f"{length - 1:b}")) + spare
    expected = [[float(bit) for bit in reversed(f"{t:0{num_bits}b}")] for t in range(length)]
    assert_close(binary_encoding(length, num_bits), torch.tensor(expected))


@given(length=st.integers(1, 300))
def test_as_few_bits_as_tell_all_positions_apart(length):
    encoding = binary_encoding(length)
    assert len(encoding.unique(dim=0)) == length
    if encoding.shape[1] > 1:
        assert len(encoding[:, :-1].unique(dim=0)) < length


@pytest.mark.parametrize(
    ("length", "num_bits"), [(1, 1), (2, 1), (3, 2), (20, 5), (64, 6), (65, 7), (100, 7), (128, 7)]
)
def test_the_number_of_bits(length, num_bits):
    assert binary_encoding(length).shape == (length, num_bits)


def test_it_has_the_default_type():
    assert binary_encoding(4).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "length is 0"),
        ((-3,), ValueError, "length is -3"),
        ((2.0,), TypeError, "length is a float"),
        ((5, 2), ValueError, "num_bits is 2: expected at least 3"),
        ((8, 0), ValueError, "num_bits is 0"),
        ((1, 0), ValueError, "num_bits is 0"),
        ((8, 3.0), TypeError, "num_bits is a float"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        binary_encoding(*arguments)
