"""Right answers to the tasks of ``permutation``, each written in another way."""

import torch

# Orders ---------------------------------------------------------------------------------


def permute_rows__index(x, permutation):
    return x[..., permutation, :]


def permute_rows__index_select(x, permutation):
    return x.index_select(x.dim() - 2, permutation)


def permute_rows__stacked(x, permutation):
    return torch.stack([x[..., i, :] for i in permutation.tolist()], dim=-2)


def permute_rows__permutation_matrix(x, permutation):
    return torch.eye(len(permutation), dtype=x.dtype)[permutation] @ x


def permute_rows__written_into_a_new_one(sequence, order):
    result = torch.empty_like(sequence)
    for i, source in enumerate(order):
        result[..., i, :] = sequence[..., source, :]
    return result


def unshuffled__inverse(permuted, permutation):
    return permuted[..., permutation.argsort(), :]


def unshuffled__put_back(permuted, permutation):
    x = torch.empty_like(permuted)
    x[..., permutation, :] = permuted
    return x


def unshuffled__search(permuted, permutation):
    places = permutation.tolist()
    return torch.stack([permuted[..., places.index(i), :] for i in range(len(places))], dim=-2)


def unshuffled__transposed_matrix(permuted, permutation):
    matrix = torch.nn.functional.one_hot(permutation, len(permutation)).to(permuted.dtype)
    return matrix.mT @ permuted


# Attention under permutations -----------------------------------------------------------


def sorted_memory__argsort(key, value):
    order = torch.argsort(key[:, 0])
    return key[order], value[order]


def sorted_memory__side_by_side(key, value):
    both = torch.cat([key, value], dim=1)
    both = both[both[:, 0].sort().indices]
    return both[:, : key.shape[1]], both[:, key.shape[1] :]


def sorted_memory__sorted_pairs(key, value):
    pairs = sorted(zip(key, value, strict=True), key=lambda pair: pair[0][0].item())
    return [torch.stack(rows) for rows in zip(*pairs, strict=True)]


def permuted_mask__rows_then_columns(mask, query_permutation, key_permutation):
    return mask[..., query_permutation, :][..., key_permutation]


def permuted_mask__both_at_once(mask, query_permutation, key_permutation):
    return mask[..., query_permutation[:, None], key_permutation]


def permuted_mask__matrices(mask, query_permutation, key_permutation):
    P = torch.eye(len(query_permutation))[query_permutation]
    P_keys = torch.eye(len(key_permutation))[key_permutation]
    return P @ mask.float() @ P_keys.T > 0.5


def permuted_mask__loops(mask, query_permutation, key_permutation):
    result = torch.zeros_like(mask)
    for i, q in enumerate(query_permutation.tolist()):
        for j, k in enumerate(key_permutation.tolist()):
            result[..., i, j] = mask[..., q, k]
    return result


# Testers --------------------------------------------------------------------------------


def is_equivariant__random_permutations(layer, x):
    y = layer(x)
    if y.shape[0] != x.shape[0]:
        return False
    for _ in range(20):
        order = torch.randperm(len(x))
        if not torch.allclose(layer(x[order]), y[order]):
            return False
    return True


def is_equivariant__permuted_back(layer, x):
    y = layer(x)
    orders = [torch.randperm(len(x)) for _ in range(10)]
    return y.shape[0] == len(x) and all(
        (layer(x[order])[order.argsort()] - y).abs().max() < 1e-9 * y.abs().max() for order in orders
    )


def is_equivariant__two_that_make_all(layer, x):
    y, swap = layer(x), torch.arange(len(x))
    swap[:2] = torch.tensor([1, 0])
    orders = [swap, torch.arange(len(x)).roll(1)]
    return len(y) == len(x) and all(torch.allclose(layer(x[order]), y[order]) for order in orders)


def is_equivariant__all_orders_at_once(layer, x):
    y = layer(x)
    if len(y) != len(x):
        return False
    orders = torch.stack([torch.randperm(len(x)) for _ in range(10)])
    return torch.allclose(torch.vmap(layer)(x[orders]), y[orders])


def is_equivariant__every_swap(layer, x):
    y, n = layer(x), len(x)
    if len(y) != n:
        return False
    for i in range(n):
        for j in range(i):
            order = list(range(n))
            order[i], order[j] = j, i
            if not torch.allclose(layer(x[order]), y[order]):
                return False
    return True


def is_invariant__random_permutations(layer, x):
    y = layer(x)
    return all(torch.allclose(layer(x[torch.randperm(len(x))]), y) for _ in range(20))


def is_invariant__largest_difference(layer, x):
    y = layer(x)
    worst = max((layer(x[torch.randperm(len(x))]) - y).abs().max() for _ in range(12))
    return worst.item() < 1e-8


def is_invariant__two_that_make_all(layer, x):
    y, swap = layer(x), torch.arange(len(x))
    swap[:2] = torch.tensor([1, 0])
    return torch.allclose(layer(x[swap]), y) and torch.allclose(layer(x.roll(1, 0)), y)


def is_invariant__every_swap_with_the_first(layer, x):
    y = layer(x)
    for i in range(1, len(x)):
        order = torch.arange(len(x))
        order[0], order[i] = i, 0
        if not torch.allclose(y, layer(x[order])):
            return False
    return True


def symmetry__two_questions(layer, x):
    y = layer(x)
    orders = [torch.randperm(len(x)) for _ in range(15)]
    invariant = all(torch.allclose(layer(x[order]), y) for order in orders)
    equivariant = len(y) == len(x) and all(torch.allclose(layer(x[order]), y[order]) for order in orders)
    if invariant and equivariant:
        return "both"
    if invariant:
        return "invariant"
    return "equivariant" if equivariant else "neither"


def symmetry__table(layer, x):
    y, follows, stays = layer(x), len(layer(x)) == len(x), True
    for _ in range(12):
        order = torch.randperm(len(x))
        z = layer(x[order])
        stays = stays and torch.allclose(z, y)
        follows = follows and torch.allclose(z, y[order])
    words = {(True, True): "both", (True, False): "equivariant", (False, True): "invariant"}
    return words.get((follows, stays), "neither")


def symmetry__every_swap(layer, x):
    y, kinds = layer(x), {"equivariant", "invariant"}
    for i in range(len(x) - 1):
        order = torch.arange(len(x))
        order[[i, i + 1]] = order[[i + 1, i]]
        z = layer(x[order])
        if not torch.allclose(z, y):
            kinds.discard("invariant")
        if len(y) != len(x) or not torch.allclose(z, y[order]):
            kinds.discard("equivariant")
    return "both" if len(kinds) == 2 else kinds.pop() if kinds else "neither"


# Repeats --------------------------------------------------------------------------------


def same_rows__first_again(query, x):
    return torch.cat([x, x[:1]])


def same_rows__one_many_times(query, x):
    return torch.cat([x[-1:].expand(9, -1), x])


def same_rows__each_as_often_as_its_number(query, x):
    return x.repeat_interleave(torch.arange(1, len(x) + 1), dim=0)
