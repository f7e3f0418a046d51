"""Right answers to the tasks of ``positional``, each written in another way."""

import math

import torch

# Binary ---------------------------------------------------------------------------------


def binary_encoding__division(length):
    num_bits = (length - 1).bit_length()
    return (torch.arange(length)[:, None] // 2 ** torch.arange(num_bits) % 2).float()


def binary_encoding__shifts(length):
    num_bits = math.ceil(math.log2(length))
    return (torch.arange(length).unsqueeze(1) >> torch.arange(num_bits) & 1).to(torch.float32)


def binary_encoding__words(length):
    num_bits = len(f"{length - 1:b}")
    return torch.tensor([[float(bit) for bit in f"{t:0{num_bits}b}"[::-1]] for t in range(length)])


def binary_encoding__loops(n):
    columns, step = [], 1
    while step < n:
        columns.append([float(t // step % 2 == 1) for t in range(n)])
        step *= 2
    return torch.tensor(columns).T


def same_code__comparison(encoding):
    same = (encoding[:, None] == encoding[None]).all(dim=-1)
    return same & ~torch.eye(len(encoding), dtype=torch.bool)


def same_code__loops(encoding):
    length = len(encoding)
    result = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(length):
            result[i, j] = i != j and torch.equal(encoding[i], encoding[j])
    return result


def same_code__distinct_rows(encoding):
    _, which = encoding.unique(dim=0, return_inverse=True)
    return (which[:, None] == which).fill_diagonal_(False)


def same_code__largest_difference(codes):
    difference = (codes.unsqueeze(0) - codes.unsqueeze(1)).abs().amax(-1)
    difference.fill_diagonal_(1.0)
    return difference == 0


def same_code__within_rounding(encoding):
    same = torch.isclose(encoding[:, None], encoding[None]).all(-1)
    same.fill_diagonal_(False)
    return same


def same_code__distances(encoding):
    length = len(encoding)
    distance = (encoding[:, None] - encoding).square().sum(-1).sqrt()
    return (distance < 1e-6) & (torch.arange(length)[:, None] != torch.arange(length))


# Concatenated and added -----------------------------------------------------------------


def concatenate_positions__expand(x, encoding):
    return torch.cat((x, encoding.T.expand(x.shape[0], -1, -1)), dim=1)


def concatenate_positions__repeat(x, encoding):
    return torch.cat([x, encoding.t().unsqueeze(0).repeat(len(x), 1, 1)], 1)


def concatenate_positions__filled(x, encoding):
    batch, channels, length = x.shape
    output = x.new_empty(batch, channels + encoding.shape[1], length)
    output[:, :channels] = x
    output[:, channels:] = encoding.mT
    return output


def concatenate_positions__item_by_item(x, encoding):
    return torch.stack([torch.vstack((item, encoding.T)) for item in x])


def add_positions__slice(x, table):
    return x + table[: x.shape[-2]]


def add_positions__look_up(x, table):
    return torch.nn.functional.embedding(torch.arange(x.size(-2)), table) + x


def add_positions__loop(x, table):
    output = x.clone()
    for t in range(x.shape[-2]):
        output[..., t, :] += table[t]
    return output


# Sinusoidal -----------------------------------------------------------------------------


def sinusoidal_encoding__columns(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    encoding = torch.zeros(length, dim)
    encoding[:, 0::2] = torch.sin(angles)
    encoding[:, 1::2] = torch.cos(angles[:, : dim // 2])
    return encoding


def sinusoidal_encoding__exp_of_log(length, dim):
    rates = torch.exp(-math.log(10_000.0) * torch.arange(0, dim, 2) / dim)
    angles = torch.outer(torch.arange(length).float(), rates)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).reshape(length, -1)[:, :dim]


def sinusoidal_encoding__loops(length, dim):
    rows = []
    for t in range(length):
        row = []
        for column in range(dim):
            angle = t / 10_000 ** ((column - column % 2) / dim)
            row.append(math.cos(angle) if column % 2 else math.sin(angle))
        rows.append(row)
    return torch.tensor(rows)


def sinusoidal_encoding__shifted_sine(length, dim):
    column = torch.arange(dim)
    angles = torch.arange(length)[:, None] * 10_000 ** (-2 * (column // 2) / dim)
    return torch.sin(angles + column % 2 * math.pi / 2)


# Equivariance is gone -------------------------------------------------------------------


def telling_permutation__neighbours(layer, x):
    for t in range(len(x) - 1):
        order = list(range(len(x)))
        order[t], order[t + 1] = order[t + 1], order[t]
        if not torch.allclose(layer(x[order]), layer(x)[order]):
            return order


def telling_permutation__random(layer, x):
    generator = torch.Generator().manual_seed(0)
    while True:
        order = torch.randperm(len(x), generator=generator)
        if (layer(x[order]) - layer(x)[order]).abs().max() > 1e-3:
            return order


def telling_permutation__random_as_a_list(layer, x):
    generator = torch.Generator().manual_seed(1)
    while True:
        order = torch.randperm(len(x), generator=generator)
        if not torch.allclose(layer(x[order]), layer(x)[order]):
            return list(order)


def telling_permutation__all_swaps_most_telling(layer, x):
    best, largest = None, -1.0
    for i in range(len(x)):
        for j in range(i):
            order = torch.arange(len(x))
            order[[i, j]] = order[[j, i]]
            difference = (layer(x[order]) - layer(x)[order]).norm().item()
            if difference > largest:
                best, largest = order, difference
    return best


def telling_permutation__first_with_every_other(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        order = list(range(len(x)))
        order[0], order[i] = i, 0
        if not torch.allclose(layer(x[order]), before[order]):
            return tuple(order)


def telling_permutation__a_hundred_tries(layer, x):
    for _ in range(100):
        order = torch.randperm(len(x))
        if not torch.allclose(layer(x[order]), layer(x)[order], atol=1e-6):
            return order


# Rotary ---------------------------------------------------------------------------------


def rotary__even_and_odd(x, positions):
    dim = x.shape[-1]
    angles = positions[:, None] / 10_000 ** (torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    cos, sin = torch.cos(angles), torch.sin(angles)
    output = torch.empty_like(x)
    output[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    output[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return output


def rotary__complex_numbers(x, positions):
    pairs = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))
    rates = 10_000 ** (-torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1])
    angles = positions.to(x.dtype)[:, None] * rates
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def rotary__matrices(x, positions):
    dim = x.shape[-1]
    rows = []
    for row, position in enumerate(positions.tolist()):
        rotation = torch.zeros(dim, dim, dtype=x.dtype)
        for i in range(0, dim, 2):
            angle = position / 10_000 ** (i / dim)
            rotation[i, i] = rotation[i + 1, i + 1] = math.cos(angle)
            rotation[i + 1, i], rotation[i, i + 1] = math.sin(angle), -math.sin(angle)
        rows.append(x[..., row, :] @ rotation.T)
    return torch.stack(rows, dim=-2)


def rotary__turned_copy(x, positions):
    dim = x.shape[-1]
    angles = positions[:, None] / 10_000 ** (torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    angles = angles.repeat_interleave(2, -1)
    turned = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return x * angles.cos() + turned * angles.sin()


# ALiBi ----------------------------------------------------------------------------------


def alibi_slopes__two_parts(num_heads):
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = 2.0 ** (-8 * torch.arange(1, power + 1) / power)
    between = 2.0 ** (-8 * torch.arange(1, 2 * power + 1, 2) / (2 * power))
    return torch.cat((slopes, between[: num_heads - power]))


def alibi_slopes__recursion(num_heads):
    def slopes(number):
        if math.log2(number).is_integer():
            start = 2 ** (-8 / number)
            return [start * start**i for i in range(number)]
        closest = 2 ** math.floor(math.log2(number))
        return slopes(closest) + slopes(2 * closest)[0::2][: number - closest]

    return torch.tensor(slopes(num_heads))


def alibi_slopes__exponents(heads):
    power = 1
    while 2 * power <= heads:
        power *= 2
    exponents = [8 * h / power for h in range(1, power + 1)]
    exponents += [8 * (h + 0.5) / power for h in range(heads - power)]
    return torch.pow(0.5, torch.tensor(exponents))


def alibi_bias__broadcast(slopes, num_queries, num_keys):
    own = torch.arange(num_keys - num_queries, num_keys)[:, None]
    return -slopes[:, None, None] * (own - torch.arange(num_keys)).abs()


def alibi_bias__last_rows_of_a_square(slopes, num_queries, num_keys):
    position = torch.arange(num_keys).to(slopes.dtype)
    distance = torch.cdist(position[:, None], position[:, None])
    return torch.einsum("h,qk->hqk", -slopes, distance)[:, num_keys - num_queries :]


def alibi_bias__loops(slopes, num_queries, num_keys):
    bias = torch.zeros(len(slopes), num_queries, num_keys, dtype=slopes.dtype)
    for h, slope in enumerate(slopes):
        for q in range(num_queries):
            for k in range(num_keys):
                bias[h, q, k] = -slope * abs(q + num_keys - num_queries - k)
    return bias
