"""Right answers to the tasks of ``multihead``, each written in another way."""

import math

import torch

# Split into heads -----------------------------------------------------------------------


def split_heads__reshape_and_transpose(x, num_heads):
    head_dim = x.shape[-1] // num_heads
    return x.reshape(*x.shape[:-1], num_heads, head_dim).transpose(-3, -2)


def split_heads__stacked_slices(x, num_heads):
    d = x.size(-1) // num_heads
    return torch.stack([x[..., h * d : (h + 1) * d] for h in range(num_heads)], dim=-3)


def split_heads__chunks(x, num_heads):
    return torch.cat([part.unsqueeze(-3) for part in x.chunk(num_heads, dim=-1)], dim=-3)


def split_heads__loops(x, num_heads):
    *batch, positions, features = x.shape
    d = features // num_heads
    out = torch.empty(*batch, num_heads, positions, d, dtype=x.dtype)
    for h in range(num_heads):
        for i in range(d):
            out[..., h, :, i] = x[..., h * d + i]
    return out


# Merge the heads ------------------------------------------------------------------------


def merge_heads__transpose_and_reshape(x):
    *batch, heads, positions, d = x.shape
    return x.transpose(-3, -2).reshape(*batch, positions, heads * d)


def merge_heads__contiguous_view(x):
    x = x.transpose(-2, -3).contiguous()
    return x.view(*x.shape[:-2], -1)


def merge_heads__concatenated(x):
    return torch.cat([x[..., h, :, :] for h in range(x.shape[-3])], dim=-1)


# Shapes ---------------------------------------------------------------------------------


def layer_shapes__literal(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": (batch, num_queries, model_dim),
    }


def layer_shapes__from_tensors(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    x = torch.zeros(batch, 1, num_queries, model_dim)
    memory = torch.zeros(batch, 1, num_keys, model_dim)
    query = x @ torch.zeros(num_heads, model_dim, key_dim)
    key = memory @ torch.zeros(num_heads, model_dim, key_dim)
    value = memory @ torch.zeros(num_heads, model_dim, value_dim)
    weights = query @ key.mT
    merged = (weights @ value).transpose(1, 2).flatten(2)
    output = merged @ torch.zeros(num_heads * value_dim, model_dim)
    return {
        "query": query.shape,
        "key": key.shape,
        "value": value.shape,
        "weights": tuple(weights.shape),
        "merged": tuple(merged.shape),
        "output": tuple(output.shape),
    }


def layer_shapes__lists(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    def in_heads(rows, columns):
        return [batch, num_heads, rows, columns]

    shapes = {"query": in_heads(num_queries, key_dim), "key": in_heads(num_keys, key_dim)}
    shapes["value"] = in_heads(num_keys, value_dim)
    shapes["weights"] = in_heads(num_queries, num_keys)
    shapes["merged"] = [batch, num_queries, value_dim * num_heads]
    shapes["output"] = [batch, num_queries, model_dim]
    return shapes


# Self-attention with several heads ------------------------------------------------------


def multihead_attention__head_after_head(x, W_Q, W_K, W_V, W_O):
    heads = []
    for h in range(len(W_Q)):
        q, k, v = x @ W_Q[h], x @ W_K[h], x @ W_V[h]
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        heads.append(weights @ v)
    return torch.cat(heads, dim=-1) @ W_O


def multihead_attention__broadcast(x, W_Q, W_K, W_V, W_O):
    x = x[..., None, :, :]
    q, k, v = x @ W_Q, x @ W_K, x @ W_V
    y = (q @ k.mT * W_Q.shape[-1] ** -0.5).softmax(-1) @ v
    return y.transpose(-3, -2).flatten(-2) @ W_O


def multihead_attention__einsum(x, W_Q, W_K, W_V, W_O):
    q = torch.einsum("...nd,hde->...hne", x, W_Q)
    k = torch.einsum("...nd,hde->...hne", x, W_K)
    v = torch.einsum("...nd,hde->...hne", x, W_V)
    weights = torch.einsum("...hqe,...hke->...hqk", q, k).div(math.sqrt(q.size(-1))).softmax(-1)
    W = W_O.reshape(W_V.shape[0], W_V.shape[2], -1)
    return torch.einsum("...hqk,...hkv,hvd->...qd", weights, v, W)


def multihead_attention__sum_of_contributions(x, W_Q, W_K, W_V, W_O):
    value_dim = W_V.shape[-1]
    output = torch.zeros(*x.shape[:-1], W_O.shape[1], dtype=x.dtype)
    for h, (A, B, C) in enumerate(zip(W_Q, W_K, W_V, strict=True)):
        scores = x @ A @ (x @ B).mT / A.shape[1] ** 0.5
        output += torch.softmax(scores, -1) @ (x @ C) @ W_O[h * value_dim : (h + 1) * value_dim]
    return output


# Cross-attention ------------------------------------------------------------------------


def cross_attention__split_and_merge(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    def split(y):
        return y.reshape(*y.shape[:-1], num_heads, y.shape[-1] // num_heads).transpose(-3, -2)

    q, k, v = split(x @ W_Q), split(memory @ W_K), split(memory @ W_V)
    heads = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v
    return heads.transpose(-3, -2).reshape(*x.shape[:-1], -1) @ W_O + b_O


def cross_attention__chunks(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    outputs = []
    for A, B, C in zip(*(W.chunk(num_heads, dim=1) for W in (W_Q, W_K, W_V)), strict=True):
        weights = torch.softmax((x @ A) @ (memory @ B).mT / A.shape[1] ** 0.5, -1)
        outputs.append(weights @ (memory @ C))
    return torch.cat(outputs, -1) @ W_O + b_O


def cross_attention__sum_of_heads(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    parts = [W.chunk(num_heads, dim=1) for W in (W_Q, W_K, W_V)] + [W_O.chunk(num_heads, dim=0)]
    output = b_O
    for A, B, C, D in zip(*parts, strict=True):
        scores = torch.einsum("...qd,...kd->...qk", x @ A, memory @ B) / math.sqrt(B.size(1))
        output = output + scores.softmax(-1) @ memory @ C @ D
    return output


# The layer as a class -------------------------------------------------------------------


class MultiHeadAttention__loop_over_heads(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        d = model_dim // num_heads
        self.num_heads = num_heads
        self.W_Q = torch.nn.Parameter(torch.randn(num_heads, model_dim, d) / math.sqrt(model_dim))
        self.W_K = torch.nn.Parameter(torch.randn(num_heads, model_dim, d) / math.sqrt(model_dim))
        self.W_V = torch.nn.Parameter(torch.randn(num_heads, model_dim, d) / math.sqrt(model_dim))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim) / math.sqrt(model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        if key is None:
            key = query
        if value is None:
            value = key
        outputs = []
        for h in range(self.num_heads):
            q, k, v = query @ self.W_Q[h], key @ self.W_K[h], value @ self.W_V[h]
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            weights = torch.softmax(scores, -1)
            if mask is not None:
                weights = weights.masked_fill(~mask, 0.0)  # NaN, where nothing may be seen
            outputs.append(weights @ v)
        return torch.cat(outputs, -1) @ self.W_O


class MultiHeadAttention__einsum(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        self.head_dim = model_dim // num_heads
        for name in ("W_Q", "W_K", "W_V"):
            weight = torch.nn.Parameter(torch.empty(num_heads, model_dim, self.head_dim))
            torch.nn.init.xavier_uniform_(weight)
            self.register_parameter(name, weight)
        self.W_O = torch.nn.Parameter(torch.nn.init.xavier_normal_(torch.empty(model_dim, model_dim)))

    def forward(self, x_query, x_key=None, x_value=None, mask=None):
        x_key = x_query if x_key is None else x_key
        x_value = x_key if x_value is None else x_value
        q = torch.einsum("...nd,hde->...hne", x_query, self.W_Q)
        k = torch.einsum("...nd,hde->...hne", x_key, self.W_K)
        v = torch.einsum("...nd,hde->...hne", x_value, self.W_V)
        scores = q @ k.mT * self.head_dim**-0.5
        if mask is not None:
            allowed = mask.expand(*x_query.shape[:-2], x_query.shape[-2], x_key.shape[-2])
            scores = torch.where(allowed[..., None, :, :], scores, -torch.inf)
        y = scores.softmax(-1).nan_to_num(0.0) @ v
        return torch.cat(y.unbind(-3), -1) @ self.W_O


class MultiHeadAttention__with_helpers(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        self.W_Q = self.new_weight(num_heads, model_dim, model_dim // num_heads)
        self.W_K = self.new_weight(num_heads, model_dim, model_dim // num_heads)
        self.W_V = self.new_weight(num_heads, model_dim, model_dim // num_heads)
        self.W_O = self.new_weight(model_dim, model_dim)

    @staticmethod
    def new_weight(*shape):
        return torch.nn.Parameter(torch.rand(*shape) - 0.5)

    def attend(self, q, k, v, mask):
        scores = q @ k.transpose(-1, -2) / math.sqrt(k.shape[-1])
        if mask is not None:
            if mask.dim() > 2:
                mask = mask.unsqueeze(-3)
            scores = scores + torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)
        return torch.softmax(scores, -1).nan_to_num() @ v

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = (
            query[..., None, :, :] @ self.W_Q,
            key[..., None, :, :] @ self.W_K,
            value[..., None, :, :] @ self.W_V,
        )
        y = self.attend(q, k, v, mask)
        return y.transpose(-3, -2).reshape(query.shape) @ self.W_O


# PyTorch's weights ----------------------------------------------------------------------


def heads_to_torch__merged(W_Q, W_K, W_V, W_O):
    three = [W.permute(1, 0, 2).flatten(1).T for W in (W_Q, W_K, W_V)]
    return torch.cat(three), W_O.T


def heads_to_torch__rows_of_all_heads(W_Q, W_K, W_V, W_O):
    rows = [W[h].t() for W in (W_Q, W_K, W_V) for h in range(len(W))]
    return [torch.cat(rows, dim=0), W_O.t().clone()]


def heads_to_torch__stacked(W_Q, W_K, W_V, W_O):
    D = W_O.shape[1]
    return torch.stack([W_Q, W_K, W_V]).transpose(-2, -1).reshape(3 * D, D), W_O.transpose(0, 1)


def heads_to_torch__einsum(W_Q, W_K, W_V, W_O):
    packed = [torch.einsum("hij->hji", W).flatten(0, 1) for W in (W_Q, W_K, W_V)]
    return torch.vstack(packed), torch.einsum("ij->ji", W_O)


# Which heads matter ---------------------------------------------------------------------


def importance_by_ablation__loop(loss, num_heads):
    importance = torch.zeros(num_heads)
    for h in range(num_heads):
        head_mask = torch.ones(num_heads)
        head_mask[h] = 0
        importance[h] = loss(head_mask) - loss(torch.ones(num_heads))
    return importance


def importance_by_ablation__rows_of_a_matrix(loss, num_heads):
    masks = torch.ones(num_heads, num_heads) - torch.eye(num_heads)
    return torch.stack([loss(mask) for mask in masks]) - loss(torch.ones(num_heads))


def importance_by_ablation__given_back(loss, num_heads):
    mask = torch.ones(num_heads)
    before = float(loss(mask))
    rises = []
    for h in range(num_heads):
        mask[h] = 0
        rises.append(float(loss(mask)) - before)
        mask[h] = 1
    return torch.tensor(rises)


def importance_by_ablation__boolean_masks(loss, num_heads):
    heads = torch.arange(num_heads)
    whole = loss(heads >= 0)
    return torch.tensor([loss(heads != h) - whole for h in range(num_heads)])


# Pruning --------------------------------------------------------------------------------


def pruned_weights__stacked(W_Q, W_K, W_V, W_O, heads):
    d = W_V.shape[-1]
    rows = torch.cat([W_O[h * d : (h + 1) * d] for h in heads])
    return torch.stack([W_Q[h] for h in heads]), W_K[heads], W_V[heads], rows


def pruned_weights__row_numbers(W_Q, W_K, W_V, W_O, heads):
    d = W_V.shape[2]
    rows = [h * d + i for h in heads for i in range(d)]
    return W_Q[heads], W_K[heads], W_V[heads], W_O[rows]


def pruned_weights__index_select(W_Q, W_K, W_V, W_O, heads):
    kept = torch.tensor(heads)
    blocks = W_O.view(W_V.shape[0], W_V.shape[2], W_O.shape[1]).index_select(0, kept)
    return *(W.index_select(0, kept) for W in (W_Q, W_K, W_V)), blocks.reshape(-1, W_O.shape[1])


# Find the slip --------------------------------------------------------------------------


def seen_neighbour__one_row_after_the_other(layer, x, memory):
    before = layer(x, memory)
    for i in range(len(x)):
        other = x.clone()
        other[i] = other[i] + 1
        moved = (layer(other, memory) - before).abs().amax(dim=-1) > 1e-8
        moved[i] = False
        if moved.any():
            return other


def seen_neighbour__the_row_that_is_seen_most(layer, x, memory):
    before, changes = layer(x, memory), []
    for i in range(len(x)):
        other = x.clone()
        other[i] = torch.flip(x[i], (0,)) * 2 - 3
        difference = (layer(other, memory) - before).abs().sum(-1)
        difference[i] = 0
        changes.append((difference.sum().item(), i, other))
    return max(changes)[2]


def seen_neighbour__by_derivatives(layer, x, memory):
    jacobian = torch.autograd.functional.jacobian(lambda z: layer(z, memory), x)
    reach = jacobian.abs().sum((1, 3))  # (outputs, inputs)
    reach.fill_diagonal_(0)
    other = x.clone()
    other[reach.sum(0).argmax()] += 0.5
    return other


# Predict and explain --------------------------------------------------------------------


def least_loss__numbers_left(num_heads, num_looks, variance):
    if num_heads >= num_looks:
        return 0.0
    return variance * (num_looks - num_heads) / num_looks


def least_loss__share(num_heads, num_looks, variance):
    return max(0.0, 1 - num_heads / num_looks) * variance


def least_loss__each_number(num_heads, num_looks, variance):
    errors = [0.0 if look < num_heads else variance for look in range(num_looks)]
    return torch.tensor(errors, dtype=torch.float64).mean()


def what_heads_find__gather(weights, wanted):
    share = torch.stack([head.gather(1, wanted).mean(0) for head in weights])
    best = share.max(dim=0).values
    if (best > 0.5).all():
        return "apart"
    if (best > 0.5).any():
        return "one-sided"
    return "shared" if share.sum(dim=1).max() > 0.5 else "lost"


def what_heads_find__one_hot(weights, wanted):
    hits = torch.nn.functional.one_hot(wanted, weights.shape[-1]).to(weights.dtype)
    share = torch.einsum("hqk,qlk->hl", weights, hits) / len(wanted)
    number = sum(bool((share[:, look] > 0.5).any()) for look in range(share.shape[1]))
    if number == share.shape[1]:
        return "apart"
    if number:
        return "one-sided"
    return "shared" if any(head.sum() > 0.5 for head in share) else "lost"


def what_heads_find__loops(weights, wanted):
    heads, queries, _ = weights.shape
    looks = wanted.shape[1]
    found, together = set(), False
    for h in range(heads):
        shares = []
        for look in range(looks):
            given = [weights[h, q, wanted[q, look]].item() for q in range(queries)]
            shares.append(sum(given) / queries)
        found |= {look for look in range(looks) if shares[look] > 0.5}
        together = together or sum(shares) > 0.5
    if len(found) == looks:
        return "apart"
    return "one-sided" if found else "shared" if together else "lost"
