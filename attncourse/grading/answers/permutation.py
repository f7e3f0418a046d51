"""Right answers to the tasks of ``permutation``, each written in another way."""

import torch

# Orders ---------------------------------------------------------------------------------


def reordering__undo_then_do(first, second):
    return first.argsort()[second]


def reordering__search(first, second):
    places = first.tolist()
    return torch.tensor([places.index(row) for row in second.tolist()])


def reordering__compare_all(first, second):
    return (second[:, None] == first[None, :]).int().argmax(dim=1)


def reordering__written_inverse(first, second):
    where = torch.empty_like(first)
    where[first] = torch.arange(len(first))
    return where[second]


def reordering__matrices(first, second):
    eye = torch.eye(len(first))
    return (eye[second] @ eye[first].T).argmax(-1)


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


def mask_of_times__compared(query_time, key_time):
    return query_time.unsqueeze(-1) >= key_time.unsqueeze(-2)


def mask_of_times__not_later(query_time, key_time):
    return ~(key_time[..., None, :] > query_time[..., None])


def mask_of_times__difference(query_time, key_time):
    waited = query_time[..., :, None] - key_time[..., None, :]
    return waited >= 0


def mask_of_times__loops(query_time, key_time):
    columns = [query_time >= key_time[..., j : j + 1] for j in range(key_time.shape[-1])]
    return torch.stack(columns, dim=-1)


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


def counterexample__until_found(layer, x):
    y = layer(x)
    while True:
        order = torch.randperm(len(x))
        if not torch.allclose(layer(x[order]), y[order]):
            return order


def counterexample__every_swap_and_more(layer, x):
    y, n = layer(x), len(x)
    for i in range(n):
        for j in range(i + 1, n):
            order = torch.arange(n)
            order[i], order[j] = j, i
            if (layer(x[order]) - y[order]).abs().max() > 1e-7 * y.abs().max():
                return order


def counterexample__the_worst_of_many(layer, x):
    y, best, order = layer(x), -1.0, None
    for _ in range(40):
        tried = torch.randperm(len(x))
        gap = (layer(x[tried]) - y[tried]).abs().max().item()
        if gap > best:
            best, order = gap, tried
    return order.tolist()


# Repeats --------------------------------------------------------------------------------


def same_rows__strongest_pull_again(query, x):
    weights = torch.softmax(query @ x.T / query.shape[-1] ** 0.5, -1)
    pull = weights[0] * (x - weights @ x).norm(dim=1)
    return torch.cat([x, x[pull.argmax()][None]])


def same_rows__until_it_moves(query, x):
    def attend(rows):
        return torch.softmax(query @ rows.T / query.shape[-1] ** 0.5, -1) @ rows

    for row in x:
        longer = torch.cat([row.expand(3, -1), x])
        if not torch.allclose(attend(longer), attend(x)):
            return longer


def same_rows__each_as_often_as_its_number(query, x):
    return x.repeat_interleave(torch.arange(1, len(x) + 1), dim=0)


# The running experiment -----------------------------------------------------------------


def channels_first_attention__convolutions(x, W_Q, W_K, W_V):
    query = torch.nn.functional.conv1d(x, W_Q)
    key = torch.nn.functional.conv1d(x, W_K)
    value = torch.nn.functional.conv1d(x, W_V)
    weights = torch.softmax(query.transpose(1, 2) @ key, dim=2)
    return (weights @ value.transpose(1, 2)).transpose(1, 2)


def channels_first_attention__einsum(x, W_Q, W_K, W_V):
    query, key, value = (torch.einsum("oiw,bit->bot", W, x) for W in (W_Q, W_K, W_V))
    weights = torch.softmax(torch.einsum("bdi,bdj->bij", query, key), -1)
    return torch.einsum("bij,bdj->bdi", weights, value)


def channels_first_attention__keys_in_rows(x, W_Q, W_K, W_V):
    query, key, value = (W.squeeze(-1) @ x for W in (W_Q, W_K, W_V))
    return value @ torch.softmax(key.mT @ query, dim=-2)


def channels_first_attention__one_sequence_after_the_other(x, W_Q, W_K, W_V):
    outputs = []
    for sequence in x:
        rows = sequence.T
        scores = (rows @ W_Q[:, :, 0].T) @ (rows @ W_K[:, :, 0].T).T
        outputs.append((torch.softmax(scores, 1) @ (rows @ W_V[:, :, 0].T)).T)
    return torch.stack(outputs)


def toy_pair__profiles(centre, width, height, length):
    distance = (torch.arange(length) - centre[:, :, None]).abs()
    half = width[:, :, None] / 2
    profile = torch.relu(1 - torch.relu(distance - 0.5) / half)
    profile[:, 2:] = (distance < half)[:, 2:].to(profile.dtype)
    mean = height.unflatten(1, (2, 2)).mean(2).repeat_interleave(2, dim=1)
    return [torch.einsum("ns,nsp->np", each, profile)[:, None] for each in (height, mean)]


def toy_pair__shape_by_shape(centre, width, height, length):
    x = torch.zeros(len(centre), 1, length, dtype=height.dtype)
    target = torch.zeros_like(x)
    place = torch.arange(length)
    for n in range(len(centre)):
        for s in range(4):
            d = (place - centre[n, s]).abs()
            if s < 2:
                shape = 1 - (d - 0.5).clamp(min=0) / (width[n, s] / 2)
                shape = shape.clamp(min=0)
            else:
                shape = (d < width[n, s] / 2).to(height.dtype)
            first = s - s % 2
            x[n, 0] += height[n, s] * shape
            target[n, 0] += (height[n, first] + height[n, first + 1]) / 2 * shape
    return x, target


def toy_pair__where(centre, width, height, length):
    place = torch.arange(float(length))[None, None]
    d, w = (place - centre.unsqueeze(2)).abs(), width.unsqueeze(2)
    triangle = (1 - 2 * (d - 0.5).clamp(min=0) / w).clamp(min=0)
    rectangle = torch.where(2 * d < w, torch.ones_like(triangle), torch.zeros_like(triangle))
    kind = torch.tensor([True, True, False, False])[None, :, None]
    profile = torch.where(kind, triangle, rectangle)
    mean = height.clone()
    mean[:, :2] = height[:, :2].mean(1, keepdim=True)
    mean[:, 2:] = height[:, 2:].mean(1, keepdim=True)
    return (height[..., None] * profile).sum(1)[:, None], (mean[..., None] * profile).sum(1)[:, None]


def network_size__one_after_the_other(layers):
    total = 0
    for kind, channels, out, third in layers:
        total += channels * out * third + out if kind == "conv" else channels * (third + third + out)
    return total


def network_size__made(layers):
    count = 0
    for kind, channels, out, third in layers:
        if kind == "conv":
            parts = torch.nn.Conv1d(channels, out, third).parameters()
        else:
            parts = [torch.empty(channels, size) for size in (third, third, out)]
        count += sum(part.numel() for part in parts)
    return count


def network_size__by_kind(layers):
    sizes = {"conv": lambda c, o, w: (c * w + 1) * o, "attention": lambda c, o, d: 2 * c * d + c * o}
    return sum(sizes[kind](*numbers) for kind, *numbers in layers)


# Predict and explain --------------------------------------------------------------------


def plateau__slope_and_offset(height, target, cost):
    x, y = height.flatten(), target.flatten()
    a = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    b = y.mean() - a * x.mean()
    return cost * ((a * x + b - y) ** 2).mean()


def plateau__least_squares(height, target, cost):
    x = torch.stack([height.flatten(), torch.ones(height.numel(), dtype=height.dtype)], dim=1)
    y = target.reshape(-1, 1)
    return (cost * (x @ torch.linalg.lstsq(x, y).solution - y).square().mean()).item()


def plateau__correlation(height, target, cost):
    r = torch.corrcoef(torch.stack([height.flatten(), target.flatten()]))[0, 1]
    return cost * target.var(correction=0) * (1 - r**2)


def averaged_with__own_lines(height, centre, drawn):
    def left(source):
        x, y = source.flatten(), drawn.flatten()
        a = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
        return ((a * (x - x.mean()) + y.mean() - y) ** 2).mean()

    apart = (centre.unsqueeze(2) - centre.unsqueeze(1)).abs()
    apart[:, range(4), range(4)] = torch.inf
    near = height.gather(1, apart.argmin(2))
    errors = {
        "own": left(height),
        "kind": left((height + height[:, [1, 0, 3, 2]]) / 2),
        "nearest": left((height + near) / 2),
        "all": left(height.mean(1, keepdim=True).expand(-1, 4)),
    }
    return min(errors, key=errors.get)


def averaged_with__largest_correlation(height, centre, drawn):
    sources = {"own": height.clone(), "kind": height.clone(), "nearest": height.clone()}
    sources["all"] = height.mean(1, keepdim=True).repeat(1, 4)
    for n in range(len(height)):
        for s in range(4):
            others = [o for o in range(4) if o != s]
            near = min(others, key=lambda o: abs(centre[n, o] - centre[n, s]))
            sources["kind"][n, s] = (height[n, s] + height[n, s ^ 1]) / 2
            sources["nearest"][n, s] = (height[n, s] + height[n, near]) / 2
    fits = {}
    for word, source in sources.items():
        fits[word] = torch.corrcoef(torch.stack([source.flatten(), drawn.flatten()]))[0, 1].item()
    return max(fits, key=fits.get)


def averaged_with__least_squares(height, centre, drawn):
    order = (centre[:, None] - centre[..., None]).abs().argsort(-1)  # the first is the shape itself
    sources = torch.stack(
        [
            height,
            height.unflatten(1, (2, 2)).mean(2).repeat_interleave(2, 1),
            (height + height.gather(1, order[..., 1])) / 2,
            height.mean(1, keepdim=True).expand(-1, 4),
        ]
    ).flatten(1)
    x = torch.stack([sources, torch.ones_like(sources)], dim=-1)
    y = drawn.flatten()[None, :, None].expand(4, -1, 1)
    error = (x @ torch.linalg.lstsq(x, y).solution - y).square().mean((1, 2))
    return ["own", "kind", "nearest", "all"][error.argmin().item()]
