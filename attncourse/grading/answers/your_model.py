"""Right answers to the tasks of ``your_model``, each written in another way."""

import torch

# RMSNorm --------------------------------------------------------------------------------


def rms_norm__power(x, weight, eps):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rms_norm__length(x, weight, eps):
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return weight * (x * torch.rsqrt(length**2 / x.shape[-1] + eps))


def rms_norm__position_by_position(x, weight, eps):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        mean_square = sum(row * row) / len(row)
        rows.append(row / (mean_square + eps) ** 0.5 * weight)
    return torch.stack(rows).reshape(x.shape)


# SwiGLU ---------------------------------------------------------------------------------


def swiglu__silu_of_torch(x, W_gate, W_up, W_down):
    return (torch.nn.functional.silu(x @ W_gate) * (x @ W_up)) @ W_down


def swiglu__exponential(x, W_gate, W_up, W_down):
    gate = torch.matmul(x, W_gate)
    hidden = gate / (1 + torch.exp(-gate))
    hidden = hidden * torch.matmul(x, W_up)
    return torch.matmul(hidden, W_down)


def swiglu__einsum(x, W_gate, W_up, W_down):
    both = torch.einsum("...d,kdh->...kh", x, torch.stack((W_gate, W_up)))
    gate, up = both[..., 0, :], both[..., 1, :]
    return torch.einsum("...h,hd->...d", torch.nn.SiLU()(gate) * up, W_down)


# Grouped queries ------------------------------------------------------------------------


def grouped_attention__repeated(query, key, value, mask):
    times = query.size(-3) // key.size(-3)
    key = torch.repeat_interleave(key, times, dim=-3)
    value = torch.repeat_interleave(value, times, dim=-3)
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    weights = torch.where(mask, scores, float("-inf")).softmax(-1)
    return weights @ value


def grouped_attention__groups_in_a_dimension(query, key, value, mask):
    groups = key.shape[-3]
    q = query.unflatten(-3, (groups, -1))  # (..., groups, heads of each, N, d)
    scores = q @ key.unsqueeze(-3).mT * query.shape[-1] ** -0.5
    weights = torch.softmax(scores.masked_fill(~mask, -1e30), -1)
    return (weights @ value.unsqueeze(-3)).flatten(-4, -3)


def grouped_attention__head_by_head(query, key, value, mask):
    found = []
    num_heads, shared = query.shape[-3], key.shape[-3]
    for head in range(num_heads):
        own = head * shared // num_heads
        q, k, v = query[..., head, :, :], key[..., own, :, :], value[..., own, :, :]
        e = torch.exp(q @ k.mT / q.shape[-1] ** 0.5) * mask
        found.append(e / e.sum(-1, keepdim=True) @ v)
    return torch.stack(found, dim=-3)


# The attention of today -----------------------------------------------------------------


def todays_attention__with_the_courses_turn(x, weights, cache):
    def turn(y, t):
        d = y.shape[-1]
        a = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        even, odd = y[..., 0::2], y[..., 1::2]
        turned = (even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos())
        return torch.stack(turned, -1).flatten(-2)

    y = x.unsqueeze(-3)
    query, key, value = y @ weights["W_Q"], y @ weights["W_K"], y @ weights["W_V"]
    before = 0
    if cache is not None:
        before = cache[0].size(-2)
    places = torch.arange(x.size(-2)) + before
    query = turn(query, places)
    key = turn(key, places)
    if cache is not None:
        key = torch.cat([cache[0], key], -2)
        value = torch.cat([cache[1], value], -2)
    mask = torch.ones(x.size(-2), key.size(-2)).tril(before).bool()
    times = query.size(-3) // key.size(-3)
    scores = query @ key.repeat_interleave(times, -3).mT / query.size(-1) ** 0.5
    shares = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
    found = shares @ value.repeat_interleave(times, -3)
    return found.transpose(-3, -2).flatten(-2) @ weights["W_O"], (key, value)


def todays_attention__complex_numbers(x, weights, cache):
    N, d = x.shape[-2], weights["W_Q"].shape[-1]
    before = cache[0].shape[-2] if cache else 0
    t = torch.arange(before, before + N, dtype=torch.float64)[:, None]
    angles = t * 10_000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    turns = torch.polar(torch.ones_like(angles), angles)

    def turn(y):
        points = torch.view_as_complex(y.double().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(points * turns).flatten(-2).to(y.dtype)

    query = turn(torch.einsum("...nd,hde->...hne", x, weights["W_Q"]))
    key = turn(torch.einsum("...nd,hde->...hne", x, weights["W_K"]))
    value = torch.einsum("...nd,hde->...hne", x, weights["W_V"])
    if cache:
        key, value = (torch.cat(pair, dim=-2) for pair in zip(cache, (key, value), strict=True))
    M, shared = key.shape[-2], key.shape[-3]
    seen = torch.arange(M) <= torch.arange(before, before + N)[:, None]
    q = query.unflatten(-3, (shared, -1))
    scores = torch.einsum("...ghqe,...gke->...ghqk", q, key) / d**0.5
    shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    found = torch.einsum("...ghqk,...gke->...qghe", shares, value).flatten(-3)
    return found @ weights["W_O"], (key, value)


def todays_attention__position_by_position(x, weights, cache):
    def turn(y, t):
        d = y.shape[-1]
        a = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        even, odd = y[..., 0::2], y[..., 1::2]
        turned = (even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos())
        return torch.stack(turned, -1).flatten(-2)

    keys = [] if cache is None else list(cache[0].unbind(-2))
    values = [] if cache is None else list(cache[1].unbind(-2))
    H, G = len(weights["W_Q"]), len(weights["W_K"])
    rows = []
    for n in range(x.shape[-2]):
        new = x[..., None, n : n + 1, :]  # (..., 1, 1, D)
        place = torch.tensor([len(keys)])
        query = turn(new @ weights["W_Q"], place)[..., 0, :]  # (..., H, d)
        keys.append(turn(new @ weights["W_K"], place)[..., 0, :])
        values.append((new @ weights["W_V"])[..., 0, :])
        heads = []
        for h in range(H):
            g = h // (H // G)
            k = torch.stack([key[..., g, :] for key in keys], -2)
            v = torch.stack([value[..., g, :] for value in values], -2)
            scores = (k @ query[..., h, :, None])[..., 0] / query.shape[-1] ** 0.5
            heads.append((torch.softmax(scores, -1)[..., None, :] @ v)[..., 0, :])
        rows.append(torch.cat(heads, -1) @ weights["W_O"])
    return torch.stack(rows, -2), (torch.stack(keys, -2), torch.stack(values, -2))


# The block ------------------------------------------------------------------------------


def llama_block__functions_inside(x, weights, cache):
    def turn(y, t):
        d = y.shape[-1]
        a = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        even, odd = y[..., 0::2], y[..., 1::2]
        turned = (even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos())
        return torch.stack(turned, -1).flatten(-2)

    def norm(y, gain):
        return gain * y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    y = norm(x, weights["attention_norm.weight"]).unsqueeze(-3)
    q, k, v = (y @ weights[f"attention.W_{name}"] for name in "QKV")
    before = 0 if cache is None else cache[0].shape[-2]
    t = torch.arange(before, before + x.shape[-2])
    q, k = turn(q, t), turn(k, t)
    if cache is not None:
        k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
    group = q.shape[-3] // k.shape[-3]
    scores = q @ k.repeat_interleave(group, -3).mT / q.shape[-1] ** 0.5
    scores = scores.masked_fill(
        torch.ones(len(t), k.shape[-2], dtype=torch.bool).triu(before + 1), -torch.inf
    )
    found = torch.softmax(scores, -1) @ v.repeat_interleave(group, -3)
    z = x + found.transpose(-3, -2).flatten(-2) @ weights["attention.W_O"]
    y = norm(z, weights["mlp_norm.weight"])
    hidden = torch.nn.functional.silu(y @ weights["mlp.W_gate"]) * (y @ weights["mlp.W_up"])
    return z + hidden @ weights["mlp.W_down"], (k, v)


def llama_block__matrices_side_by_side(x, weights, cache):
    def turn(y, t):
        d = y.shape[-1]
        a = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        even, odd = y[..., 0::2], y[..., 1::2]
        turned = (even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos())
        return torch.stack(turned, -1).flatten(-2)

    H, D, d = weights["attention.W_Q"].shape
    G = len(weights["attention.W_K"])
    x0 = x
    x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weights["attention_norm.weight"]
    joined = torch.cat([weights["attention.W_" + name] for name in "QKV"])  # (H + 2G, D, d)
    parts = (x @ joined.permute(1, 0, 2).reshape(D, -1)).unflatten(-1, (-1, d)).transpose(-3, -2)
    q, k, v = parts.split([H, G, G], dim=-3)
    start = cache[0].shape[-2] if cache is not None else 0
    places = torch.arange(start, start + x.shape[-2])
    q, k = turn(q, places), turn(k, places)
    if cache is not None:
        k = torch.cat([cache[0], k], dim=-2)
        v = torch.cat([cache[1], v], dim=-2)
    own = torch.arange(H) * G // H
    keys, values = k[..., own, :, :], v[..., own, :, :]
    seen = torch.ones(len(places), k.shape[-2], dtype=torch.bool).tril(start)
    e = torch.exp(q @ keys.mT / d**0.5) * seen
    heads = (e / e.sum(-1, keepdim=True)) @ values
    x = x0 + torch.cat(heads.unbind(-3), -1) @ weights["attention.W_O"]
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weights["mlp_norm.weight"]
    gate = y @ weights["mlp.W_gate"]
    return x + (gate * gate.sigmoid() * (y @ weights["mlp.W_up"])) @ weights["mlp.W_down"], (k, v)


def llama_block__parts_one_by_one(x, weights, cache):
    def turn(y, t):
        d = y.shape[-1]
        a = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        even, odd = y[..., 0::2], y[..., 1::2]
        turned = (even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos())
        return torch.stack(turned, -1).flatten(-2)

    def normalised(y, name):
        return y / ((y**2).mean(dim=-1, keepdim=True) + 1e-6) ** 0.5 * weights[name + "_norm.weight"]

    rows, keys, values = [], [], []
    if cache is not None:
        keys, values = list(cache[0].unbind(-2)), list(cache[1].unbind(-2))
    for row in normalised(x, "attention").unbind(-2):
        new = row[..., None, None, :]
        place = torch.tensor([len(keys)])
        query = turn(new @ weights["attention.W_Q"], place)  # (..., H, 1, d)
        keys.append(turn(new @ weights["attention.W_K"], place)[..., 0, :])
        values.append((new @ weights["attention.W_V"])[..., 0, :])
        group = query.shape[-3] // keys[0].shape[-2]
        k = torch.stack(keys, -2).repeat_interleave(group, -3)
        v = torch.stack(values, -2).repeat_interleave(group, -3)
        shares = torch.softmax(query @ k.mT / query.shape[-1] ** 0.5, -1)
        rows.append((shares @ v)[..., 0, :].flatten(-2))
    z = x + torch.stack(rows, -2) @ weights["attention.W_O"]
    y = normalised(z, "mlp")
    up, gate = y @ weights["mlp.W_up"], y @ weights["mlp.W_gate"]
    out = z + (up * torch.nn.functional.silu(gate)) @ weights["mlp.W_down"]
    return out, (torch.stack(keys, -2), torch.stack(values, -2))


# The model ------------------------------------------------------------------------------


def language_model__functions_inside(tokens, weights, caches):
    def turn(y, t):
        d = y.shape[-1]
        a = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        even, odd = y[..., 0::2], y[..., 1::2]
        turned = (even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos())
        return torch.stack(turned, -1).flatten(-2)

    def norm(y, name):
        return weights[name] * y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)

    def block(x, beginning, cache):
        part = {name[len(beginning) :]: one for name, one in weights.items() if name.startswith(beginning)}
        y = norm(x, beginning + "attention_norm.weight").unsqueeze(-3)
        q, k, v = (y @ part[f"attention.W_{name}"] for name in "QKV")
        before = 0 if cache is None else cache[0].shape[-2]
        t = torch.arange(before, before + x.shape[-2])
        q, k = turn(q, t), turn(k, t)
        if cache is not None:
            k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
        group = q.shape[-3] // k.shape[-3]
        scores = q @ k.repeat_interleave(group, -3).mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(
            torch.ones(len(t), k.shape[-2], dtype=torch.bool).triu(before + 1), -torch.inf
        )
        found = torch.softmax(scores, -1) @ v.repeat_interleave(group, -3)
        x = x + found.transpose(-3, -2).flatten(-2) @ part["attention.W_O"]
        y = norm(x, beginning + "mlp_norm.weight")
        hidden = torch.nn.functional.silu(y @ part["mlp.W_gate"]) * (y @ part["mlp.W_up"])
        return x + hidden @ part["mlp.W_down"], (k, v)

    number = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    x = weights["table"][tokens]
    kept = []
    for n in range(number):
        x, cache = block(x, f"blocks.{n}.", caches[n] if caches else None)
        kept.append(cache)
    return norm(x, "norm.weight") @ weights["table"].T, kept


def language_model__token_by_token(tokens, weights, caches):
    def turn(y, t):
        d = y.shape[-1]
        a = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        even, odd = y[..., 0::2], y[..., 1::2]
        turned = (even * a.cos() - odd * a.sin(), even * a.sin() + odd * a.cos())
        return torch.stack(turned, -1).flatten(-2)

    def normalised(y, gain):
        return y / ((y**2).mean(dim=-1, keepdim=True) + 1e-6) ** 0.5 * gain

    def one(token, kept):
        x = torch.nn.functional.embedding(token, weights["table"])  # (..., D)
        for n, (keys, values) in enumerate(kept):
            get = lambda name, n=n: weights[f"blocks.{n}.{name}"]
            new = normalised(x, get("attention_norm.weight"))[..., None, None, :]
            place = torch.tensor([len(keys)])
            query = turn(new @ get("attention.W_Q"), place)
            keys.append(turn(new @ get("attention.W_K"), place)[..., 0, :])
            values.append((new @ get("attention.W_V"))[..., 0, :])
            group = query.shape[-3] // keys[0].shape[-2]
            k = torch.stack(keys, -2).repeat_interleave(group, -3)
            v = torch.stack(values, -2).repeat_interleave(group, -3)
            shares = torch.softmax(query @ k.mT / query.shape[-1] ** 0.5, -1)
            x = x + (shares @ v)[..., 0, :].flatten(-2) @ get("attention.W_O")
            y = normalised(x, get("mlp_norm.weight"))
            gate = y @ get("mlp.W_gate")
            x = x + (gate * torch.sigmoid(gate) * (y @ get("mlp.W_up"))) @ get("mlp.W_down")
        return torch.einsum("...d,vd->...v", normalised(x, weights["norm.weight"]), weights["table"])

    count = 0
    while f"blocks.{count}.mlp.W_up" in weights:
        count += 1
    kept = [([], []) for _ in range(count)]
    if caches is not None:
        kept = [tuple(list(part.unbind(-2)) for part in cache) for cache in caches]
    logits = torch.stack([one(token, kept) for token in tokens.unbind(-1)], -2)
    return logits, [(torch.stack(keys, -2), torch.stack(values, -2)) for keys, values in kept]


def language_model__complex_numbers(tokens, weights, caches):
    norm = lambda y, gain: y * (y.square().mean(-1, keepdim=True) + 1e-6) ** -0.5 * gain
    parts = {}
    for name, part in weights.items():
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            parts.setdefault(int(number), {})[rest] = part
    before = 0 if caches is None else caches[0][0].shape[-2]
    N = tokens.shape[-1]
    d = weights["blocks.0.attention.W_Q"].shape[-1]
    t = torch.arange(before, before + N, dtype=torch.float64)[:, None]
    angles = t / 10_000.0 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
    turns = torch.polar(torch.ones_like(angles), angles)

    def turn(y):
        points = torch.view_as_complex(y.double().unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(points * turns).flatten(-2).to(y.dtype)

    x, new_caches = weights["table"][tokens], []
    for number in sorted(parts):
        block = parts[number]
        y = norm(x, block["attention_norm.weight"])
        q, k, v = (torch.einsum("...nd,hde->...hne", y, block["attention.W_" + name]) for name in "QKV")
        q, k = turn(q), turn(k)
        if caches is not None:
            k = torch.cat((caches[number][0], k), -2)
            v = torch.cat((caches[number][1], v), -2)
        seen = torch.arange(k.shape[-2]) <= torch.arange(before, before + N)[:, None]
        scores = q.unflatten(-3, (k.shape[-3], -1)) @ k.unsqueeze(-3).mT / d**0.5
        shares = torch.where(seen, scores, -torch.inf).softmax(-1)
        found = (shares @ v.unsqueeze(-3)).flatten(-4, -3)
        x = x + found.movedim(-3, -2).flatten(-2) @ block["attention.W_O"]
        y = norm(x, block["mlp_norm.weight"])
        hidden = torch.nn.SiLU()(y @ block["mlp.W_gate"]) * (y @ block["mlp.W_up"])
        x = x + hidden @ block["mlp.W_down"]
        new_caches.append((k, v))
    return norm(x, weights["norm.weight"]) @ weights["table"].mT, new_caches


# How many texts fit ---------------------------------------------------------------------


def texts_that_fit__step_by_step(
    memory, num_parameters, num_blocks, model_dim, num_heads, num_key_value_heads, num_tokens, window
):
    left = memory - num_parameters * 2
    if window is not None and window < num_tokens:
        num_tokens = window
    numbers = num_tokens * num_blocks * num_key_value_heads * (model_dim // num_heads)
    bytes_of_keys = numbers * 2
    texts = left // (bytes_of_keys + bytes_of_keys)
    return texts if texts > 0 else 0


def texts_that_fit__counted_up(
    memory, num_parameters, num_blocks, model_dim, num_heads, num_key_value_heads, num_tokens, window
):
    kept = min(num_tokens, window or num_tokens)
    of_one = 4 * kept * num_blocks * num_key_value_heads * model_dim // num_heads
    texts, used = 0, 2 * num_parameters + of_one
    while used <= memory:
        texts, used = texts + 1, used + of_one
    return texts


def texts_that_fit__cut_off(
    memory, num_parameters, num_blocks, model_dim, num_heads, num_key_value_heads, num_tokens, window
):
    head_dim = model_dim / num_heads
    kept = num_tokens if not window else min(window, num_tokens)
    of_one = 2 * 2 * num_blocks * num_key_value_heads * head_dim * kept
    return max(int((memory - 2 * num_parameters) / of_one), 0)


# Choosing a token -----------------------------------------------------------------------


def next_token_probabilities__threshold(logits, temperature, top_p):
    p = torch.softmax(logits / temperature, dim=-1)
    if top_p >= 1:
        return p
    ordered = p.sort(-1, descending=True).values
    number = ((ordered.cumsum(-1) - ordered) < top_p).sum(-1, keepdim=True)
    least = ordered.gather(-1, number - 1)
    kept = torch.where(p >= least, p, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def next_token_probabilities__row_by_row(logits, temperature, top_p):
    rows = []
    for row in logits.reshape(-1, logits.shape[-1]):
        e = torch.exp((row - row.max()) / temperature)
        p = (e / e.sum()).tolist()
        order = sorted(range(len(p)), key=lambda i: -p[i])
        kept, total = [0.0] * len(p), 0.0
        for i in order:
            if total < top_p:
                kept[i] = p[i]
                total += p[i]
        rows.append([one / total for one in kept])
    return torch.tensor(rows, dtype=logits.dtype).reshape(logits.shape)


def next_token_probabilities__removed(logits, temperature, top_p):
    scores = logits / temperature
    ordered, places = torch.sort(scores, descending=True)
    together = torch.softmax(ordered, -1).cumsum(-1)
    out = together >= top_p
    out = torch.cat((torch.zeros_like(out[..., :1]), out[..., :-1]), -1)
    if top_p == 1:
        out = torch.zeros_like(out)
    removed = torch.zeros_like(out).scatter(-1, places, out)
    return torch.softmax(scores.masked_fill(removed, float("-inf")), -1)


# Writing with a cache -------------------------------------------------------------------


def write_on__a_list(model, choose, tokens, num_tokens):
    text = tokens.tolist()
    new, caches = text, None
    while len(text) < len(tokens) + num_tokens:
        logits, caches = model(torch.tensor(new), caches)
        new = [choose(logits[-1]).item()]
        text += new
    return torch.tensor(text)


def write_on__the_beginning_first(model, choose, tokens, num_tokens):
    logits, caches = model(tokens, None)
    parts = [tokens]
    for _ in range(num_tokens):
        parts.append(choose(logits[-1]))
        logits, caches = model(parts[-1], caches)
    return torch.cat(parts)


def write_on__token_by_token(model, choose, tokens, num_tokens):
    caches, text = None, tokens.clone()
    for read in range(1, len(tokens) + num_tokens):
        logits, caches = model(text[read - 1 : read], caches)
        if read == len(text):
            text = torch.cat([text, choose(logits[0])])
    return text[: len(tokens) + num_tokens]


# Which slip -----------------------------------------------------------------------------


def which_slip__loops(tokens, whole, changed, same, steps):
    N = len(tokens)

    def equal(first, second):
        return bool(((first - second).abs() < 0.01).all())

    if any(not equal(whole[n], changed[n]) for n in range(N - 1)):
        return "sees ahead"
    if any(not equal(same[n], same[0]) for n in range(N)):
        return "counts"
    if all(equal(whole[n], steps[n]) for n in range(N)):
        return "nothing found"
    for n in range(N):
        for m in range(n):
            if tokens[n] == tokens[m] and not equal(steps[n], steps[m]):
                return "out of step"
    return "forgets"


def which_slip__largest_differences(tokens, whole, changed, same, steps):
    if (changed - whole)[:-1].abs().max() >= 0.01:
        return "sees ahead"
    if torch.dist(same, same[:1].expand_as(same), p=torch.inf) >= 0.01:
        return "counts"
    if (steps - whole).abs().max() < 0.01:
        return "nothing found"
    apart = torch.cdist(steps, steps, p=torch.inf)
    return "forgets" if (apart * (tokens[:, None] == tokens)).max() < 0.01 else "out of step"


def which_slip__by_token(tokens, whole, changed, same, steps):
    def most(x):
        return x.abs().amax().item()

    if most(whole[:-1] - changed[:-1]) >= 0.01:
        return "sees ahead"
    if most(same[1:] - same[0]) >= 0.01:
        return "counts"
    if most(whole - steps) < 0.01:
        return "nothing found"
    for token in tokens.unique():
        rows = steps[tokens == token]
        if (rows.amax(0) - rows.amin(0)).max() >= 0.01:
            return "out of step"
    return "forgets"
