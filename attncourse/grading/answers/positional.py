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


# Positions that share a code ------------------------------------------------------------


def colliding__two_loops(encode, num_positions):
    codes = encode(torch.arange(num_positions))
    for s in range(num_positions):
        for t in range(s + 1, num_positions):
            if torch.allclose(codes[s], codes[t], rtol=0, atol=1e-8):
                return s, t
    return None


def colliding__all_at_once(encode, num_positions):
    codes = encode(torch.arange(num_positions))
    apart = (codes[:, None] - codes).abs().amax(dim=-1)
    pairs = (apart < 1e-6).triu(1).nonzero()
    return tuple(pairs[0].tolist()) if len(pairs) else None


def colliding__position_by_position(encode, num_positions):
    known = []
    for t in range(num_positions):
        code = encode(torch.tensor([t]))[0].tolist()
        for s, other in enumerate(known):
            if all(math.isclose(a, b, abs_tol=1e-9) for a, b in zip(code, other, strict=True)):
                return [t, s]
        known.append(code)


def colliding__distances(encode, num_positions):
    codes = encode(torch.arange(num_positions))
    distance = (codes[:, None] - codes).square().sum(-1).sqrt()
    distance.fill_diagonal_(math.inf)
    place = distance.argmin()
    if distance.flatten()[place] < 1e-6:
        return torch.tensor([place // num_positions, place % num_positions])


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


def add_positions__where(x, table, num_padding):
    position = torch.arange(x.shape[1]) - num_padding[:, None]
    is_word = (position >= 0)[..., None]
    return torch.where(is_word, x + table[position.clamp(min=0)], x)


def add_positions__sequence_by_sequence(x, table, num_padding):
    output = x.clone()
    for b, p in enumerate(num_padding.tolist()):
        output[b, p:] += table[: x.shape[1] - p]
    return output


def add_positions__a_table_with_zeros_in_front(x, table, num_padding):
    length = x.shape[1]
    longer = torch.cat((torch.zeros_like(table[:1]).expand(length, -1), table))
    rows = length + torch.arange(length) - num_padding.unsqueeze(1)
    return x + longer[rows]


def add_positions__parts(x, table, num_padding):
    rows = []
    for sequence, p in zip(x, num_padding, strict=True):
        rows.append(torch.cat((sequence[:p], sequence[p:] + table[: len(sequence) - p])))
    return torch.stack(rows)


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


# What the scores see --------------------------------------------------------------------


def what_scores_see__every_shift(scores, x):
    n = len(x)
    here = torch.arange(n)
    base = scores(x, here)
    for shift in range(1, 25 - n + 1):
        if not torch.allclose(scores(x, here + shift), base):
            return "position"
    if not torch.allclose(scores(x, here.flip(0)), base):
        return "offset"
    if not torch.allclose(scores(x, torch.zeros_like(here)), base):
        return "distance"
    return "nothing"


def what_scores_see__nothing_first(scores, x):
    n, generator = len(x), torch.Generator().manual_seed(0)

    def differ(one, other):
        return (scores(x, one) - scores(x, other)).abs().max() > 1e-8

    here = torch.arange(n)
    anywhere = [torch.randint(0, 25, (n,), generator=generator) for _ in range(40)]
    if not any(differ(here, other) for other in anywhere):
        return "nothing"
    if any(differ(here, here + s) for s in range(26 - n)):
        return "position"
    return "offset" if differ(here, n - 1 - here) else "distance"


def what_scores_see__tables(scores, x):
    n = len(x)
    tables = [scores(x, torch.arange(start, start + n)) for start in range(25 - n + 1)]
    if any((table - tables[0]).norm() > 1e-7 for table in tables):
        return "position"
    if (scores(x, torch.arange(n - 1, -1, -1)) - tables[0]).norm() > 1e-7:
        return "offset"
    together = scores(x, torch.full((n,), 7))
    return "nothing" if (together - tables[0]).norm() < 1e-7 else "distance"


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


# Before the experiment, and after it ----------------------------------------------------


def blind_error__mean_of_the_others(height, partner):
    others = (height.sum(1, keepdim=True) - height) / (height.shape[1] - 1)
    guess = (height + others) / 2
    target = (height + height[:, partner]) / 2
    return torch.nn.functional.mse_loss(guess, target).item()


def blind_error__only_the_other_half(height, partner):
    n = height.shape[1]
    others = (n * height.mean(-1, keepdim=True) - height) / (n - 1)
    return float(((height[:, partner] - others) ** 2).mean() / 4)


def blind_error__loops(height, partner):
    rows = height.double().tolist()
    errors = []
    for row in rows:
        for t, own in enumerate(row):
            others = [h for s, h in enumerate(row) if s != t]
            guess = (own + sum(others) / len(others)) / 2
            errors.append((guess - (own + row[partner[t]]) / 2) ** 2)
    return sum(errors) / len(errors)


def blind_error__a_matrix_of_means(height, partner):
    n = height.shape[1]
    mixing = torch.full((n, n), 0.5 / (n - 1), dtype=height.dtype)
    mixing.fill_diagonal_(0.5)
    right = torch.eye(n, dtype=height.dtype)
    right = (right + right[partner]) / 2
    return (height @ (mixing - right).T).square().mean()


def explain_run__in_order(loss, blind, alike):
    def same(a, b):
        return torch.allclose(a, b, rtol=0, atol=1e-6)

    batch, length = alike.shape
    if same(alike, alike[0, 0].expand(batch, length)):
        return "not told"
    if same(alike, alike[:, :1].expand(batch, length)):
        return "items numbered"
    for s in range(length):
        for t in range(s):
            if any(same(row[s], row[t]) for row in alike):
                return "positions confused"
    if loss[-(len(loss) // 4) :].mean() < blind / 2:
        return "used"
    return "not used"


def explain_run__spreads(loss, blind, alike):
    def spread(x, dim):
        return (x.amax(dim) - x.amin(dim)).max().item()

    if alike.max() - alike.min() < 1e-6:
        return "not told"
    if spread(alike, 1) < 1e-6:
        return "items numbered"
    ordered = alike.sort(1).values
    if (ordered[:, 1:] - ordered[:, :-1]).min() < 1e-6:
        return "positions confused"
    quarter = len(loss) // 4
    return ["not used", "used"][int(loss[len(loss) - quarter :].sum() < quarter * blind / 2)]


def explain_run__rounded(loss, blind, alike):
    rows = [[round(number, 7) for number in row] for row in alike.tolist()]
    if len({number for row in rows for number in row}) == 1:
        return "not told"
    if all(len(set(row)) == 1 for row in rows):
        return "items numbered"
    if any(len(set(row)) < len(row) for row in rows):
        return "positions confused"
    ending = loss.tolist()[-(len(loss) // 4) :]
    return "used" if sum(ending) / len(ending) < 0.5 * blind else "not used"
