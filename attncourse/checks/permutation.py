"""Tasks of the unit ``permutation``: orders, what they change, and what can be concluded from it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attncourse import masking, permutation
from attncourse.attention_operator import attention_weights
from attncourse.checks.probe import Misfit, given, plain
from attncourse.checks.task import Case, Task, in_any_order, normal_source


def _order_source(seed: int) -> Callable[[int], Tensor]:
    """A source of permutations that differ from their inverse, as from length 3 on there are some."""
    generator = torch.Generator().manual_seed(seed)

    def order(length: int) -> Tensor:
        drawn = torch.randperm(length, generator=generator)
        while torch.equal(drawn, drawn.argsort()):
            drawn = torch.randperm(length, generator=generator)
        return drawn

    return order


# ---------------------------------------------------------------------------------------
# Permute the rows
# ---------------------------------------------------------------------------------------


def _permute_rows_cases(seed: int) -> list[Case]:
    normal, order = normal_source(seed), _order_source(seed)
    return [
        Case({"x": normal(5, 3), "permutation": order(5)}),
        Case({"x": normal(4, 4), "permutation": order(4)}, "as many features as positions"),
        Case({"x": normal(2, 6, 3), "permutation": order(6)}, "a batch"),
        Case({"x": normal(5, 5, 5), "permutation": order(5)}, "a batch, all sizes the same"),
        Case({"x": normal(1, 4, 2), "permutation": order(4)}, "a batch of one"),
        Case(
            {"x": normal(7, 2, dtype=torch.float64), "permutation": order(7)},
            "double precision, not contiguous",
            contiguous=False,
        ),
    ]


permute_rows = Task("permute_rows", permutation.permute, _permute_rows_cases)


@permute_rows.misconception(
    "the inverse permutation is applied",
    hint="""Position i of the result is to be *taken from* position permutation[i]. You *put* position i at
    position permutation[i]. Try [1, 2, 0] on three rows: which of them should come first?""",
    read="permutation#permuting-rows",
)
def permute_rows_inverse(x, permutation):
    return x[..., permutation.argsort(), :]


@permute_rows.misconception(
    "the features are permuted instead of the positions",
    hint="""Positions are rows. The order says which row comes first, and every row stays in one piece. In
    which place of the square brackets do rows stand?""",
    read="permutation#permuting-rows",
)
def permute_rows_columns(x, permutation):
    return x[..., permutation]


@permute_rows.misconception(
    "the first dimension is permuted, which in a batch is not the positions",
    hint="""Without a batch, `x[permutation]` permutes the rows. With one it permutes the sequences of the
    batch. Count the dimension from the back.""",
    read="permutation#permuting-rows",
)
def permute_rows_first_dimension(x, permutation):
    return x[permutation]


@permute_rows.misconception(
    "rows and columns are both permuted",
    hint="""A table that compares positions with positions, like a mask, has positions in rows and in columns.
    A sequence has them in its rows only.""",
    read="permutation#permuting-rows",
)
def permute_rows_and_columns(x, permutation):
    return x[..., permutation, :][..., permutation]


@permute_rows.misconception(
    "rows are exchanged one after the other, and those moved before are moved again",
    hint="""After the first exchange, position 0 no longer holds what it held. The definition speaks of the
    rows of the *old* sequence. Take all from there, and write into a new one.""",
    read="permutation#permuting-rows",
)
def permute_rows_in_turn(x, permutation):
    x = x.clone()
    for i, j in enumerate(permutation.tolist()):
        first, second = x[..., i, :].clone(), x[..., j, :].clone()
        x[..., i, :], x[..., j, :] = second, first
    return x


@permute_rows.misconception(
    "the second dimension is permuted, which without a batch holds the features",
    hint="""In a batch the second dimension holds the positions, without one it holds the features. Which
    dimension is it both times, counted from the back?""",
    read="permutation#permuting-rows",
)
def permute_rows_second_dimension(x, permutation):
    return x[:, permutation]


@permute_rows.misconception(
    "rows are overwritten before they have been read",
    hint="""The first step puts a row at position 0, and what stood there is gone, although it is wanted later
    on. Read from the old sequence, and write into a new one.""",
    read="permutation#permuting-rows",
)
def permute_rows_overwritten(x, permutation):
    x = x.clone()
    for i, j in enumerate(permutation.tolist()):
        x[..., i, :] = x[..., j, :].clone()
    return x


# ---------------------------------------------------------------------------------------
# Undo a permutation
# ---------------------------------------------------------------------------------------


def _undo(x: Tensor, order: Tensor) -> Tensor:
    return permutation.permute(x, order.argsort())


def _unshuffled_cases(seed: int) -> list[Case]:
    normal, order = normal_source(seed), _order_source(seed)
    return [
        Case({"permuted": normal(5, 3), "permutation": order(5)}),
        Case({"permuted": normal(3, 2), "permutation": torch.tensor([1, 2, 0])}, "a rotation"),
        Case({"permuted": normal(2, 6, 3), "permutation": order(6)}, "a batch"),
        Case({"permuted": normal(1, 1), "permutation": torch.tensor([0])}, "a single position"),
    ]


unshuffled = Task("unshuffled", _undo, _unshuffled_cases)


@unshuffled.misconception(
    "the permutation is applied a second time",
    hint="""Applying a permutation twice gives the old order only if it exchanges pairs. Where did row 0 of
    the old sequence go? You are looking for the place i with permutation[i] = 0.""",
    read="permutation#undoing",
)
def unshuffled_again(permuted, permutation):
    return permuted[..., permutation, :]


@unshuffled.misconception(
    "the order is read backwards",
    hint="""The same list from its end is another permutation, not the inverse one. The inverse says for each
    old position where it stands now.""",
    read="permutation#undoing",
)
def unshuffled_flipped(permuted, permutation):
    return permuted[..., permutation.flip(0), :]


@unshuffled.misconception(
    "the sequence is turned round",
    hint="""Turning round undoes turning round and nothing else. Your answer must depend on the
    permutation.""",
    read="permutation#undoing",
)
def unshuffled_reversed(permuted, permutation):
    return permuted.flip(-2)


@unshuffled.misconception(
    "each number of the permutation is subtracted from the last position",
    hint="""This turns the numbers round, not the permutation. The inverse of [1, 2, 0] should send each
    of the three back to where it came from: check it by hand.""",
    read="permutation#undoing",
)
def unshuffled_complement(permuted, permutation):
    return permuted[..., len(permutation) - 1 - permutation, :]


@unshuffled.misconception(
    "nothing is undone",
    hint="""The sequence that comes back is the permuted one.""",
    read="permutation#undoing",
)
def unshuffled_unchanged(permuted, permutation):
    return permuted.clone()


@unshuffled.misconception(
    "the inverse is right, and applied to the first dimension, which in a batch is not the positions",
    hint="""The order is the right one. But in a batch the first dimension counts the sequences. Count the
    dimension of the positions from the back.""",
    read="permutation#permuting-rows",
)
def unshuffled_first_dimension(permuted, permutation):
    return permuted[permutation.argsort()]


# ---------------------------------------------------------------------------------------
# A memory in another order
# ---------------------------------------------------------------------------------------


def _sorted_memory(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    order = key[:, 0].argsort()
    return permutation.permute(key, order), permutation.permute(value, order)


def _sorted_memory_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"key": normal(5, 3), "value": normal(5, 2)}),
        Case({"key": normal(4, 4), "value": normal(4, 4)}, "values as wide as keys"),
        Case({"key": normal(6, 2), "value": normal(6, 1)}, "values with one feature"),
        Case(
            {"key": normal(7, 3, dtype=torch.float64), "value": normal(7, 4, dtype=torch.float64)},
            "double precision",
        ),
    ]


sorted_memory = Task("sorted_memory", _sorted_memory, _sorted_memory_cases)


@sorted_memory.misconception(
    "the keys are permuted and the values are not",
    hint="""A key and its value belong together: the weight that a query gives to key 3 goes to value 3. If
    only one of them moves, the weights go to strangers.""",
    read="permutation#keys-with-values",
)
def sorted_keys_only(key, value):
    return key[key[:, 0].argsort()], value.clone()


@sorted_memory.misconception(
    "keys and values are sorted each by themselves",
    hint="""The values are sorted by their own first feature, so they come in another order than the keys. One
    order must serve for both.""",
    read="permutation#keys-with-values",
)
def sorted_each_by_itself(key, value):
    return key[key[:, 0].argsort()], value[value[:, 0].argsort()]


@sorted_memory.misconception(
    "every feature is sorted on its own, and the rows fall apart",
    hint="""`torch.sort` along the rows sorts each column by itself. Afterwards a row holds the features of
    several keys. Ask for the *order* of one column, and move whole rows.""",
    read="permutation#keys-with-values",
)
def sorted_feature_by_feature(key, value):
    return key.sort(dim=0).values, value[key[:, 0].argsort()]


@sorted_memory.misconception(
    "every feature is sorted on its own, in the keys and in the values",
    hint="""`torch.sort` along the rows sorts each column by itself. Afterwards a row holds the features of
    several entries. Ask for the *order* of one column, and move whole rows.""",
    read="permutation#keys-with-values",
)
def sorted_every_feature(key, value):
    return key.sort(dim=0).values, value.sort(dim=0).values


@sorted_memory.misconception(
    "the keys are sorted from large to small",
    hint="""The smallest first feature should come first.""",
    read="permutation#keys-with-values",
)
def sorted_descending(key, value):
    order = key[:, 0].argsort(descending=True)
    return key[order], value[order]


@sorted_memory.misconception(
    "ranks are used as if they were an order",
    hint="""`argsort` of an `argsort` tells for each key which rank it has. That is the inverse of the order:
    which key is to come first, which second?""",
    read="permutation#undoing",
)
def sorted_by_ranks(key, value):
    ranks = key[:, 0].argsort().argsort()
    return key[ranks], value[ranks]


# ---------------------------------------------------------------------------------------
# A mask for permuted positions
# ---------------------------------------------------------------------------------------


def _permuted_mask(mask: Tensor, query_order: Tensor, key_order: Tensor) -> Tensor:
    return permutation.permute(permutation.permute(mask, query_order), key_order, dim=-1)


def _permuted_mask_cases(seed: int) -> list[Case]:
    normal, order = normal_source(seed), _order_source(seed)

    def case(mask: Tensor, note: str, same: bool = False) -> Case:
        query_order, key_order = order(mask.shape[-2]), order(mask.shape[-1])
        inputs = {"mask": mask, "query_permutation": query_order, "key_permutation": key_order}
        return Case(inputs | ({"key_permutation": query_order.clone()} if same else {}), note)

    return [
        case(masking.causal_mask(5), "causal self-attention, one permutation for both", same=True),
        case(normal(3, 5) > 0, "more keys than queries"),
        case(normal(6, 4) > 0, "more queries than keys"),
        case(normal(5, 5) > 0, "as many queries as keys, two permutations"),
        case(normal(2, 4, 4) > 0, "a mask for each sequence of a batch"),
        case(normal(1, 3, 4) > 0, "a batch of one"),
    ]


permuted_mask = Task("permuted_mask", _permuted_mask, _permuted_mask_cases)


@permuted_mask.misconception(
    "only the rows of the mask are permuted",
    hint="""The queries have taken their rows along. But the keys have moved, too, and each column of the mask
    speaks of one key.""",
    read="permutation#masks-move-along",
)
def permuted_mask_rows(mask, query_permutation, key_permutation):
    return mask[..., query_permutation, :]


@permuted_mask.misconception(
    "only the columns of the mask are permuted",
    hint="""The columns follow the keys. The queries have moved, too, and each row of the mask speaks of one
    query.""",
    read="permutation#masks-move-along",
)
def permuted_mask_columns(mask, query_permutation, key_permutation):
    return mask[..., key_permutation]


@permuted_mask.misconception(
    "the inverse permutations are applied",
    hint="""Query i of the new order is query sigma(i) of the old one, and wants the row that this one had.
    So the mask is permuted as the queries are, not back.""",
    read="permutation#masks-move-along",
)
def permuted_mask_inverse(mask, query_permutation, key_permutation):
    return mask[..., query_permutation.argsort(), :][..., key_permutation.argsort()]


@permuted_mask.misconception(
    "the columns are permuted back while the rows are permuted forth",
    hint="""The transposed matrix in P M P' stands on the *right* of M. There it permutes columns in the same
    sense as P permutes rows on the left. With indices: which entry of M comes to row i and column j?""",
    read="permutation#masks-move-along",
)
def permuted_mask_forth_and_back(mask, query_permutation, key_permutation):
    return mask[..., query_permutation, :][..., key_permutation.argsort()]


@permuted_mask.misconception(
    "the mask stays as it is",
    hint="""Query 0 is now another query, and would use the permissions of the one that stood there
    before.""",
    read="permutation#masks-break-it",
)
def permuted_mask_unchanged(mask, query_permutation, key_permutation):
    return mask.clone()


@permuted_mask.misconception(
    "the queries' permutation is used for the keys, too",
    hint="""In self-attention the two are the same. Here the keys have an order of their own, and there may be
    more of them than queries, or fewer.""",
    read="permutation#masks-move-along",
)
def permuted_mask_one_order(mask, query_permutation, key_permutation):
    return mask[..., query_permutation, :][..., query_permutation]


@permuted_mask.misconception(
    "the first two dimensions are permuted, which in a batch are not queries and keys",
    hint="""With a batch in front, queries and keys are the last two dimensions. Count from the back.""",
    read="permutation#masks-move-along",
)
def permuted_mask_first_dimensions(mask, query_permutation, key_permutation):
    return mask[query_permutation][:, key_permutation]


@permuted_mask.misconception(
    "the two orders are read in pairs: the first of one with the first of the other",
    hint="""Two lists in one pair of square brackets are read together: first entries, second entries, and so
    on, which gives one number for each. Wanted is every row with every column. Take the rows first, and
    the columns of what comes out.""",
    read="permutation#masks-move-along",
)
def permuted_mask_in_pairs(mask, query_permutation, key_permutation):
    return mask[..., query_permutation, key_permutation]


# ---------------------------------------------------------------------------------------
# The two testers, and which layer is which
# ---------------------------------------------------------------------------------------

_LENGTH, _DIM = 7, 9  # more features than positions, so that no pooled output passes for a sequence
_W = torch.randn(3, _DIM, _DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / _DIM**0.5
_ENCODING = torch.randn(_LENGTH, _DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
_MEMORY = torch.randn(5, _DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
_STEPS = torch.arange(_LENGTH, dtype=torch.float64)[:, None]


def _attend(x: Tensor, source: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    source = x if source is None else source
    return attention_weights(x @ _W[0], source @ _W[1], mask) @ source @ _W[2]


def _causal(x: Tensor) -> Tensor:
    return _attend(x, mask=masking.causal_mask(len(x)))


def _circular(x: Tensor) -> Tensor:
    return 0.2 * x.roll(1, 0) + 0.5 * x + 0.3 * x.roll(-1, 0)


def _symmetric(x: Tensor) -> Tensor:
    padded = functional.pad(x, (0, 0, 1, 1))
    return (0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:]).tanh()


def _same_at_three_positions(x: Tensor) -> Tensor:
    # Exchanging position 0 with the next one, or with the last, is not noticed.
    place = torch.tensor([0.0, 0, 1, 2, 3, 4, 0], dtype=x.dtype)[:, None]
    return torch.tanh(x + place)


# What each layer is; a layer may be both.
_LAYERS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "self-attention": (_attend, "equivariant"),
    "causal self-attention": (_causal, "neither"),
    "every position by itself": (lambda x: torch.tanh(x @ _W[0]), "equivariant"),
    "the mean over the positions": (lambda x: x.mean(0, keepdim=True), "invariant"),
    "a convolution with equal weights to both sides": (_symmetric, "neither"),
    "a convolution on a circle": (_circular, "neither"),
    "self-attention with a vector added for each position": (lambda x: _attend(x + _ENCODING), "neither"),
    "a layer that treats the first, second and last position alike": (_same_at_three_positions, "neither"),
    "self-attention after the input has been sorted": (
        lambda x: _attend(x[x[:, 0].argsort()]),
        "invariant",
    ),
    "five fixed queries that attend to the input": (lambda x: _attend(_MEMORY, x), "invariant"),
    "the input attends to a fixed memory": (lambda x: _attend(x, _MEMORY), "equivariant"),
    "self-attention to all positions but one's own": (
        lambda x: _attend(x, mask=~torch.eye(len(x)).bool()),
        "equivariant",
    ),
    "the mean, handed to every position": (lambda x: x.mean(0).expand_as(x).clone(), "both"),
    "self-attention and a thousandth of the position's number": (
        lambda x: _attend(x) + _STEPS / 1000,
        "neither",
    ),
    "the sums up to each position": (lambda x: x.cumsum(0), "neither"),
    "the sums from each position on": (lambda x: x.flip(0).cumsum(0).flip(0), "neither"),
    "self-attention with large numbers": (lambda x: 1e6 * _attend(x), "equivariant"),
    "the largest numbers minus the smallest": (
        lambda x: x.amax(0, keepdim=True) - x.amin(0, keepdim=True),
        "invariant",
    ),
    "the order of the features is turned round": (lambda x: x.flip(1), "equivariant"),
}


def _watched_layer(name: str, x: Tensor) -> tuple[Callable[[Tensor], Tensor], set[bytes]]:
    """The layer, and a set in which it keeps up to two inputs, other than x, that it was called with."""
    own = x.numpy().tobytes()
    tried: set[bytes] = set()

    def layer(z: Tensor) -> Tensor:
        if len(tried) < 2 and isinstance(z, Tensor) and z.shape == x.shape:
            try:
                tried.update({z.detach().numpy().tobytes()} - {own})
            except RuntimeError:  # within torch.vmap there are several, whose numbers cannot be read
                tried.update({b"one of several", b"another of them"})
        return _LAYERS[name][0](z)

    return given(layer), tried


def _layer_cases(*names: str) -> Callable[[int], list[Case]]:
    def cases(seed: int) -> list[Case]:
        normal = normal_source(seed)
        return [
            Case({"layer": name, "x": normal(_LENGTH, _DIM, dtype=torch.float64)})
            for name in in_any_order(names, seed)
        ]

    return cases


_YES = (True, "equivariant", "invariant", "both")


def _ask_about_layer(answer: Callable, inputs: dict[str, Any]) -> Any:
    x = inputs["x"]
    layer, tried = _watched_layer(inputs["layer"], x)
    try:
        value = answer(layer, x)
    except IndexError:
        num_rows = len(layer(x))
        if num_rows == len(x):
            raise
        # Which index is too large depends on the permutation that was drawn: no message to know it by.
        raise Misfit(
            f"rows of the output are asked for that are not there: it has {num_rows}, and the input {len(x)}"
        ) from None
    # `(a == b).all()` is a tensor, and a yes or no all the same.
    if isinstance(value, Tensor) and value.dtype == torch.bool and value.numel() == 1:
        value = value.item()
    # The powers of one permutation are never all permutations, so a yes needs two at least.
    says_yes = isinstance(value, bool | np.bool_ | str) and value in _YES
    if says_yes and len(tried) < 2:
        number = "no other order" if not tried else "a single other order"
        raise Misfit(f"{plain(value)!r} is said after {number} of the positions was tried")
    return value


is_equivariant = Task(
    "is_equivariant",
    permutation.is_equivariant,
    _layer_cases(
        "self-attention",
        "causal self-attention",
        "every position by itself",
        "a convolution with equal weights to both sides",
        "a convolution on a circle",
        "a layer that treats the first, second and last position alike",
        "the mean over the positions",
        "the mean, handed to every position",
        "self-attention and a thousandth of the position's number",
        "self-attention with large numbers",
        "the order of the features is turned round",
        "self-attention after the input has been sorted",
    ),
    call=_ask_about_layer,
)


@is_equivariant.misconception(
    "no order is tried but the one that was given",
    hint="""An output with a row for each position may follow a permutation or not, and the identity, which
    changes nothing, does not tell. Does any permutation that you try move a position?""",
    read="permutation#property-tests",
)
def equivariant_under_identity(layer, x):
    y, order = layer(x), torch.arange(len(x))
    return y.shape[0] == len(x) and torch.allclose(layer(x[order]), y[order])


@is_equivariant.misconception(
    "only one swap is tried",
    hint="""A layer may treat just these two positions alike. A random permutation moves many positions at
    once, and ten of them leave hardly a layer undetected.""",
    read="permutation#property-tests",
)
def equivariant_under_one_swap(layer, x):
    y, order = layer(x), torch.arange(len(x))
    order[0], order[1] = 1, 0
    return y.shape[0] == len(x) and torch.allclose(layer(x[order]), y[order])


@is_equivariant.misconception(
    "only the reversed order is tried",
    hint="""A convolution with equal weights to both sides does not notice that a sequence is turned round,
    and yet knows well who is whose neighbour. Try random orders.""",
    read="permutation#property-tests",
)
def equivariant_under_reversal(layer, x):
    y = layer(x)
    return y.shape[0] == len(x) and torch.allclose(layer(x.flip(0)), y.flip(0))


@is_equivariant.misconception(
    "only a shift is tried",
    hint="""A convolution on a circle follows every shift. That is a symmetry, too, but a much smaller one.
    Try random orders.""",
    read="permutation#property-tests",
)
def equivariant_under_shift(layer, x):
    y = layer(x)
    return y.shape[0] == len(x) and torch.allclose(layer(x.roll(1, 0)), y.roll(1, 0))


@is_equivariant.misconception(
    "the output is not permuted as the input is",
    hint="""The output of the permuted input is compared with sigma(f(X)), where sigma does to the output what
    it did to the input. You permute *back* what should be permuted forth, or the wrong one of the two
    outputs, or draw a second order for the output.""",
    read="permutation#definitions",
)
def equivariant_wrong_way(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    if y.shape[0] != len(x):
        return False
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[order])[order], y) for order in orders)


@is_equivariant.misconception(
    "the output is not permuted as the input is, whatever its number of rows",
    hint="""The output of the permuted input is compared with sigma(f(X)), where sigma does to the output what
    it did to the input. You permute *back* what should be permuted forth, or the wrong one of the two
    outputs, or draw a second order for the output. Besides, look at the number of rows before you permute
    them.""",
    read="permutation#definitions",
)
def equivariant_wrong_way_unchecked(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[order])[order], y) for order in orders)


@is_equivariant.misconception(
    "the number of rows of the output is not looked at",
    hint="""A layer that returns a single row for all positions cannot follow a permutation. Find that out
    before you permute its output.""",
    read="permutation#definitions",
)
def equivariant_unchecked(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[order]), y[order]) for order in orders)


@is_equivariant.misconception(
    "it is invariance that is tested",
    hint="""Your test asks whether the output stays as it is. An equivariant layer's output moves, in the same
    way as the input.""",
    read="permutation#definitions",
)
def equivariant_or_rather_invariant(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return y.shape[0] == len(x) and all(torch.allclose(layer(x[order]), y) for order in orders)


@is_equivariant.misconception(
    "the tolerance is so wide that a small dependence on order passes",
    hint="""Rounding in float64 changes about the sixteenth digit. A difference in the third digit is no
    rounding. With which tolerance do you compare?""",
    read="permutation#property-tests",
)
def equivariant_tolerant(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    if y.shape[0] != len(x):
        return False
    return all(torch.allclose(layer(x[order]), y[order], rtol=0.01, atol=0.01) for order in orders)


@is_equivariant.misconception(
    "the outputs must agree to the last digit",
    hint="""A sum in another order is rounded in another way, so the last digits of two equal outputs differ.
    Allow for that, and for no more: `torch.allclose`.""",
    read="permutation#property-tests",
)
def equivariant_to_the_last_digit(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(50)]
    return y.shape[0] == len(x) and all(torch.equal(layer(x[order]), y[order]) for order in orders)


@is_equivariant.misconception(
    "the features are permuted instead of the positions",
    hint="""Rows are positions. Which index of x are you permuting?""",
    read="permutation#permuting-rows",
)
def equivariant_in_features(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(x.shape[1], generator=generator) for _ in range(10)]
    if y.shape[0] != len(x):
        return False
    return all(torch.allclose(layer(x[:, order]), y[:, order]) for order in orders)


@is_equivariant.misconception(
    "only one order is tried",
    hint="""No single order stands for all, not even a random one: a layer may follow just that one. Try
    several, and say True only when all of them have been tried. If you have a loop, look at where its
    `return` stands: the first order may show that a layer is *not* equivariant, but never that it is.""",
    read="permutation#property-tests",
)
def equivariant_under_one_order(layer, x):
    y, order = layer(x), torch.tensor([3, 0, 5, 1, 6, 2, 4])
    return y.shape[0] == len(x) and torch.allclose(layer(x[order]), y[order])


@is_equivariant.misconception(
    "only one order is tried, whatever the number of rows",
    hint="""No single order stands for all, not even a random one: a layer may follow just that one. Try
    several, and say True only when all of them have been tried. If you have a loop, look at where its
    `return` stands. Besides, look at the number of rows before you permute them.""",
    read="permutation#property-tests",
)
def equivariant_under_one_order_unchecked(layer, x):
    y, order = layer(x), torch.tensor([3, 0, 5, 1, 6, 2, 4])
    return torch.allclose(layer(x[order]), y[order])


is_invariant = Task(
    "is_invariant",
    permutation.is_invariant,
    _layer_cases(
        "self-attention",
        "the mean over the positions",
        "five fixed queries that attend to the input",
        "causal self-attention",
        "a convolution on a circle",
        "self-attention after the input has been sorted",
        "the mean, handed to every position",
        "a layer that treats the first, second and last position alike",
        "the largest numbers minus the smallest",
        "the sums up to each position",
        "the sums from each position on",
    ),
    call=_ask_about_layer,
)


@is_invariant.misconception(
    "no order is tried but the one that was given",
    hint="""The identity changes nothing, so every layer passes. Does any of your permutations move a
    position?""",
    read="permutation#property-tests",
)
def invariant_under_identity(layer, x):
    return torch.allclose(layer(x[torch.arange(len(x))]), layer(x))


@is_invariant.misconception(
    "it is equivariance that is tested",
    hint="""The output of an invariant layer does not move with the input. It stays, whatever its shape: leave
    it as it comes.""",
    read="permutation#definitions",
)
def invariant_or_rather_equivariant(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return y.shape[0] == len(x) and all(torch.allclose(layer(x[order]), y[order]) for order in orders)


@is_invariant.misconception(
    "it is equivariance that is tested, whatever the number of rows",
    hint="""The output of an invariant layer does not move with the input. It stays, whatever its shape: leave
    it as it comes.""",
    read="permutation#definitions",
)
def invariant_or_rather_equivariant_unchecked(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[order]), y[order]) for order in orders)


@is_invariant.misconception(
    "only the sums over the outputs are compared",
    hint="""Outputs that merely change places have the same sum. Invariant means that every single number
    stays where it is.""",
    read="permutation#definitions",
)
def invariant_in_the_sum(layer, x):
    y, generator = layer(x).sum(0), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[order]).sum(0), y) for order in orders)


@is_invariant.misconception(
    "the features are permuted instead of the positions",
    hint="""Rows are positions. Which index of x are you permuting?""",
    read="permutation#permuting-rows",
)
def invariant_in_features(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(x.shape[1], generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[:, order]), y) for order in orders)


@is_invariant.misconception(
    "only the last row of the output is compared",
    hint="""One of the layers gives the sums up to each position. Its last row is the sum of all, whatever
    their order; the rows before it are not. Compare the whole output.""",
    read="permutation#definitions",
)
def invariant_in_one_row(layer, x):
    y, generator = layer(x)[-1], torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[order])[-1], y) for order in orders)


@is_invariant.misconception(
    "the outputs must agree to the last digit",
    hint="""A sum in another order is rounded in another way, so the last digits of two equal outputs differ.
    Allow for that, and for no more: `torch.allclose`.""",
    read="permutation#property-tests",
)
def invariant_to_the_last_digit(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(50)]
    return all(torch.equal(layer(x[order]), y) for order in orders)


@is_invariant.misconception(
    "only the first row of the output is compared",
    hint="""One of the layers gives the sums from each position on. Its first row is the sum of all, whatever
    their order; the rows after it are not. Compare the whole output.""",
    read="permutation#definitions",
)
def invariant_in_the_first_row(layer, x):
    y, generator = layer(x)[0], torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    return all(torch.allclose(layer(x[order])[0], y) for order in orders)


@is_invariant.misconception(
    "only one order is tried",
    hint="""No single order stands for all, not even a random one: a layer may fail to notice just that one.
    Try several, and say True only when all of them have been tried. If you have a loop, look at where its
    `return` stands.""",
    read="permutation#property-tests",
)
def invariant_under_one_order(layer, x):
    return torch.allclose(layer(x[torch.tensor([3, 0, 5, 1, 6, 2, 4])]), layer(x))


def _symmetry(layer: Callable[[Tensor], Tensor], x: Tensor) -> str:
    equivariant = permutation.is_equivariant(layer, x)
    invariant = permutation.is_invariant(layer, x)
    if equivariant and invariant:
        return "both"
    return "equivariant" if equivariant else "invariant" if invariant else "neither"


symmetry = Task("symmetry", _symmetry, _layer_cases(*_LAYERS), call=_ask_about_layer)


@symmetry.misconception(
    "no layer is found to be both",
    hint="""If every row of the output is the same, permuting the rows changes nothing. Such a layer can be
    equivariant *and* invariant. Find out both things before you answer.""",
    read="permutation#definitions",
)
def symmetry_equivariant_first(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    if y.shape[0] == len(x) and all(torch.allclose(layer(x[order]), y[order]) for order in orders):
        return "equivariant"
    return "invariant" if all(torch.allclose(layer(x[order]), y) for order in orders) else "neither"


@symmetry.misconception(
    "no layer is found to be both, and invariance goes first",
    hint="""If every row of the output is the same, permuting the rows changes nothing. Such a layer can be
    equivariant *and* invariant. Find out both things before you answer.""",
    read="permutation#definitions",
)
def symmetry_invariant_first(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    if all(torch.allclose(layer(x[order]), y) for order in orders):
        return "invariant"
    same_shape = y.shape[0] == len(x)
    return (
        "equivariant" if same_shape and all(torch.allclose(layer(x[o]), y[o]) for o in orders) else "neither"
    )


@symmetry.misconception(
    "the shape of the output decides",
    hint="""An output with one row for each position may or may not follow a permutation. Only trying it
    tells.""",
    read="permutation#property-tests",
)
def symmetry_by_shape(layer, x):
    return "equivariant" if layer(x).shape[0] == len(x) else "invariant"


@symmetry.misconception(
    "the two words are exchanged",
    hint="""Invariant: the output stays. Equivariant: the output moves in the same way as the input.""",
    read="permutation#definitions",
)
def symmetry_exchanged(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    stays = all(torch.allclose(layer(x[order]), y) for order in orders)
    moves = y.shape[0] == len(x) and all(torch.allclose(layer(x[order]), y[order]) for order in orders)
    return "both" if stays and moves else "equivariant" if stays else "invariant" if moves else "neither"


@symmetry.misconception(
    "a single swap is taken for all permutations",
    hint="""One of the layers treats the first, the second and the last position alike. It follows a swap of
    two of them, and no other.""",
    read="permutation#property-tests",
)
def symmetry_under_one_swap(layer, x):
    y, order = layer(x), torch.arange(len(x))
    order[0], order[1] = 1, 0
    stays = torch.allclose(layer(x[order]), y)
    moves = y.shape[0] == len(x) and torch.allclose(layer(x[order]), y[order])
    return "both" if stays and moves else "equivariant" if moves else "invariant" if stays else "neither"


@symmetry.misconception(
    "a single shift is taken for all permutations",
    hint="""A convolution on a circle follows every shift, and yet knows who is whose neighbour. Try random
    orders.""",
    read="permutation#property-tests",
)
def symmetry_under_shift(layer, x):
    y = layer(x)
    z = layer(x.roll(1, 0))
    stays, moves = torch.allclose(z, y), y.shape[0] == len(x) and torch.allclose(z, y.roll(1, 0))
    return "both" if stays and moves else "equivariant" if moves else "invariant" if stays else "neither"


@symmetry.misconception(
    "the tolerance is so wide that a small dependence on order passes",
    hint="""One of the layers adds a thousandth of the position's number. That is no rounding.""",
    read="permutation#property-tests",
)
def symmetry_tolerant(layer, x):
    y, generator = layer(x), torch.Generator().manual_seed(0)
    orders = [torch.randperm(len(x), generator=generator) for _ in range(10)]
    z = [layer(x[order]) for order in orders]
    stays = all(torch.allclose(a, y, 0.01, 0.01) for a in z)
    moves = y.shape[0] == len(x) and all(
        torch.allclose(a, y[order], 0.01, 0.01) for a, order in zip(z, orders, strict=True)
    )
    return "both" if stays and moves else "equivariant" if moves else "invariant" if stays else "neither"


@symmetry.misconception(
    "only one order is tried",
    hint="""No single order stands for all, not even a random one. Try several, for both questions.""",
    read="permutation#property-tests",
)
def symmetry_under_one_order(layer, x):
    y, order = layer(x), torch.tensor([3, 0, 5, 1, 6, 2, 4])
    stays = torch.allclose(layer(x[order]), y)
    moves = y.shape[0] == len(x) and torch.allclose(layer(x[order]), y[order])
    return "both" if stays and moves else "equivariant" if moves else "invariant" if stays else "neither"


# ---------------------------------------------------------------------------------------
# Disprove a claim
# ---------------------------------------------------------------------------------------


def _same_rows_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"query": normal(1, 3, dtype=torch.float64), "x": normal(4, 3, dtype=torch.float64)}),
        Case(
            {"query": normal(1, 2, dtype=torch.float64), "x": normal(2, 2, dtype=torch.float64)}, "two rows"
        ),
        Case(
            {"query": torch.zeros(1, 4, dtype=torch.float64), "x": normal(5, 4, dtype=torch.float64)},
            "a query of zeros",
        ),
    ]


def _with_last_row_again(query: Tensor, x: Tensor) -> Tensor:
    return torch.cat([x, x[-1:]])


def _disproves(inputs: dict[str, Any], value: Any) -> str | None:
    query, x = inputs["query"], inputs["x"]
    if not isinstance(value, Tensor) or value.dim() != 2 or value.shape[1] != x.shape[1]:
        return f"a sequence was expected: a tensor with two dimensions, the second of them {x.shape[1]}"
    if value.dtype != x.dtype:
        return f"the dtype should be {str(x.dtype).removeprefix('torch.')}, that of x"
    equal = (value[:, None] == x).all(-1)  # (rows of value, rows of x)
    if not equal.any(1).all():
        return f"its row {int(equal.any(1).long().argmin())} is no row of x: the claim says nothing about it"
    if not equal.any(0).all():
        return f"row {int(equal.any(0).long().argmin())} of x is missing: the claim says nothing about it"
    difference = (attention_weights(query, value) @ value - attention_weights(query, x) @ x).abs().max()
    if not difference > 1e-6:
        times = equal.sum(0)  # (rows of x,)
        what = ", which every row of x is in equally often," if times.unique().numel() == 1 else ""
        return f"for this sequence{what} the output is the same as for x, so the claim holds for it"
    return None


same_rows = Task("same_rows", _with_last_row_again, _same_rows_cases, compare=_disproves)


@same_rows.misconception(
    "the rows are only put in another order",
    hint="""This is where the claim is right: the order of keys and values does not matter. What else can
    differ between two sequences that are made of the same rows?""",
    read="permutation#sets-with-repeats",
)
def same_rows_reversed(query, x):
    return x.flip(0)


@same_rows.misconception(
    "every row is repeated equally often",
    hint="""If every row comes twice, all exponentials come twice in the sum, too, and the weight of each
    pair is what the single row had. Is there need to treat all rows alike?""",
    read="permutation#sets-with-repeats",
)
def same_rows_twice(query, x):
    return torch.cat([x, x])


@same_rows.misconception(
    "a row is left out",
    hint="""Without one of its rows it is another set, and the claim says nothing about it. All rows of x must
    be there.""",
    read="permutation#sets-with-repeats",
)
def same_rows_without_one(query, x):
    return x[1:]


@same_rows.misconception(
    "a new row is added",
    hint="""A row of zeros is a key and a value like any other, and x does not have it. Use the rows that are
    there.""",
    read="permutation#sets-with-repeats",
)
def same_rows_and_zeros(query, x):
    return torch.cat([x, torch.zeros_like(x[:1])])


@same_rows.misconception(
    "it is the sequence itself",
    hint="""The same sequence gives the same output. Change something that keeps the set of rows.""",
    read="permutation#sets-with-repeats",
)
def same_rows_unchanged(query, x):
    return x.clone()
