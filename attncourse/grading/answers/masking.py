"""Right answers to the tasks of ``masking``, each written in another way."""

import math

import torch

# Find the leak --------------------------------------------------------------------------


def mended_attention__minus_infinity(query, key, value, padding):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(padding.unsqueeze(1), -math.inf), dim=-1) @ value


def mended_attention__times_mask_after_exp(query, key, value, padding):
    allowed = torch.where(padding[:, None], -math.inf, query @ key.mT / math.sqrt(query.shape[-1]))
    exponentials = torch.exp(allowed - allowed.amax(-1, keepdim=True)) * ~padding[:, None]
    return exponentials / exponentials.sum(-1, keepdim=True) @ value


def mended_attention__cut_off(query, key, value, padding):
    outputs = []
    for q, k, v, filled_up in zip(query, key, value, padding, strict=True):
        k, v = k[~filled_up], v[~filled_up]
        outputs.append(torch.softmax(q @ k.T / math.sqrt(q.shape[1]), 1) @ v)
    return torch.stack(outputs)


def mended_attention__minus_a_billion(query, key, value, padding):
    # Without an empty row, a billion below the others is as good as infinitely far.
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores - 1e9 * padding[:, None].to(scores.dtype), -1) @ value


def mended_attention__added(query, key, value, padding):
    added = torch.zeros(padding.shape, dtype=query.dtype)
    added[padding] = -torch.inf
    scores = torch.einsum("bqd,bkd->bqk", query, key) / query.shape[2] ** 0.5 + added[:, None, :]
    return scores.softmax(2) @ value


# Masks ----------------------------------------------------------------------------------


def causal_mask__triangle(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)


def causal_mask__last_rows_of_a_square(num_queries, num_keys):
    return torch.tril(torch.ones(num_keys, num_keys)).bool()[num_keys - num_queries :]


def causal_mask__comparison(num_queries, num_keys):
    queries = torch.arange(num_keys - num_queries, num_keys).unsqueeze(1)
    return torch.arange(num_keys) <= queries


def causal_mask__loops(num_queries, num_keys):
    mask = torch.zeros(num_queries, num_keys, dtype=torch.bool)
    for i in range(num_queries):
        for j in range(num_keys):
            mask[i, j] = j <= i + num_keys - num_queries
    return mask


def causal_mask__everything_but_the_future(num_queries, num_keys):
    return torch.triu(torch.ones(num_queries, num_keys), diagonal=num_keys - num_queries + 1) == 0


def local_mask__distance(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + (num_keys - num_queries)
    return (own - torch.arange(num_keys)).abs() <= radius


def local_mask__two_triangles(num_queries, num_keys, radius):
    offset = num_keys - num_queries
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return ones.tril(offset + radius) & ones.triu(offset - radius)


def local_mask__slices(num_queries, num_keys, radius):
    mask = torch.zeros(num_queries, num_keys, dtype=torch.bool)
    for i in range(num_queries):
        own = i + num_keys - num_queries
        mask[i, max(0, own - radius) : own + radius + 1] = True
    return mask


def padding_mask__comparison(lengths, num_keys):
    return torch.arange(num_keys) < lengths[:, None, None]


def padding_mask__loop(lengths, num_keys):
    mask = torch.zeros(len(lengths), 1, num_keys, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        mask[b, :, :length] = True
    return mask


def padding_mask__not_the_padding(sizes, n):
    is_padding = torch.arange(n).repeat(len(sizes), 1) >= sizes.unsqueeze(1)
    return is_padding.logical_not().unsqueeze(1)


def packed_mask__and(document):
    length = document.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return causal & (document[:, :, None] == document[:, None, :])


def packed_mask__product(document):
    same = (document.unsqueeze(2) == document.unsqueeze(1)).float()
    position = torch.arange(document.shape[1])
    causal = (position[:, None] >= position).float()
    return torch.einsum("bqk,qk->bqk", same, causal) > 0


def packed_mask__loops(document):
    batch, length = document.shape
    mask = torch.zeros(batch, length, length, dtype=torch.bool)
    for b in range(batch):
        for q in range(length):
            for k in range(q + 1):
                mask[b, q, k] = bool(document[b, q] == document[b, k])
    return mask


def packed_mask__triangle_of_the_same(document):
    return (document[..., None] - document[..., None, :] == 0).tril()


# Masked attention -----------------------------------------------------------------------


def masked_attention__multiplied_after_exp(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    largest = scores.amax(-1, keepdim=True)
    largest = torch.where(largest.isinf(), 0.0, largest)
    exponentials = torch.exp(scores - largest)
    total = exponentials.sum(-1, keepdim=True)
    return exponentials / torch.where(total == 0, 1.0, total) @ value


def masked_attention__empty_rows_opened_and_erased(query, key, value, mask):
    empty = ~mask.any(-1, keepdim=True)
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = torch.softmax(scores.masked_fill(~(mask | empty), -math.inf), -1)
    return weights.masked_fill(empty, 0.0) @ value


def masked_attention__minus_a_billion_times_mask(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -1e9), -1) * mask @ value


def masked_attention__row_by_row(query, key, value, mask):
    mask = mask.expand(*query.shape[:-1], key.shape[-2])
    if query.dim() > 2:
        parts = zip(query, key, value, mask, strict=True)
        return torch.stack([masked_attention__row_by_row(*part) for part in parts])
    outputs = []
    for q, may in zip(query, mask, strict=True):
        if may.any():
            weights = torch.softmax(key[may] @ q / math.sqrt(len(q)), 0)
            outputs.append(weights @ value[may])
        else:
            outputs.append(torch.zeros_like(value[0]))
    return torch.stack(outputs)


def masked_attention__an_extra_key_that_counts_for_nothing(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    empty = ~mask.any(-1, keepdim=True)
    # Only in an empty row does the extra key take part, and its value is zero.
    extra = torch.zeros_like(scores[..., :1]).masked_fill(~empty, -math.inf)
    weights = torch.softmax(torch.cat([scores, extra], -1), -1)
    return weights[..., :-1] @ value


# Conventions ----------------------------------------------------------------------------


def multihead_mask__repeat_interleave(mask, num_heads):
    return (~mask).repeat_interleave(num_heads, dim=0)


def multihead_mask__expanded_and_flattened(mask, num_heads):
    return mask.logical_not().unsqueeze(1).expand(-1, num_heads, -1, -1).flatten(0, 1)


def multihead_mask__list(mask, num_heads):
    return torch.stack([~of_sequence for of_sequence in mask for _ in range(num_heads)])


# Who depends on whom --------------------------------------------------------------------


def dependencies__any(jacobian):
    return (jacobian != 0).any(3).any(1)


def dependencies__largest(jacobian):
    return jacobian.abs().amax(dim=(1, 3)) > 0


def dependencies__loops(jacobian):
    found = torch.zeros(jacobian.shape[0], jacobian.shape[2], dtype=torch.bool)
    for i in range(jacobian.shape[0]):
        for j in range(jacobian.shape[2]):
            found[i, j] = jacobian[i, :, j, :].count_nonzero() > 0
    return found


def dependencies__count(jacobian):
    return torch.count_nonzero(jacobian, dim=(1, 3)) != 0


def is_causal__jacobian(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    pattern = (jacobian != 0).any(3).any(1)
    return not pattern.triu(1).any()


def is_causal__one_output_at_a_time(layer, x):
    for i in range(len(x)):
        inputs = x.clone().requires_grad_()
        output = layer(inputs)[i]
        for number in output:
            (gradient,) = torch.autograd.grad(number, inputs, retain_graph=True)
            if gradient[i + 1 :].abs().sum() > 0:
                return False
    return True


def is_causal__another_future(layer, x):
    before = layer(x)
    for i in range(len(x) - 1):
        other = x.clone()
        other[i + 1 :] = torch.cos(1 + 5 * other[i + 1 :])
        if not torch.allclose(layer(other)[: i + 1], before[: i + 1], rtol=0, atol=1e-10):
            return False
    return True


def is_causal__future_erased(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        erased = x.clone()
        erased[i:] = 0
        if (layer(erased)[:i] - before[:i]).abs().max() > 1e-9:
            return False
    return True


def is_causal__future_shifted(layer, x):
    before = layer(x)
    other = x.roll(1, 1) + torch.arange(x.shape[1])
    shifted = [layer(torch.cat([x[:i], other[i:]]))[:i] for i in range(1, len(x))]
    return all(torch.allclose(part, before[: len(part)], atol=1e-10) for part in shifted)


def is_causal__cut_off(layer, x):
    # A causal layer gives the same for the beginning of a sequence, whatever follows.
    whole = layer(x)
    parts = torch.stack([layer(x[: i + 1])[i] for i in range(len(x))])
    return (whole - parts).abs().max() < 1e-9


# A change that shows a leak -------------------------------------------------------------


def leaking_change__both_signs(layer, query, key, value, mask):
    before = layer(query, key, value, mask)
    for sign in (1.0, -1.0):
        new_key, new_value = sign * 1e5 * query[0], torch.full_like(value[-1], 1e10)
        other_key = torch.cat([key[:-1], new_key[None]])
        other_value = torch.cat([value[:-1], new_value[None]])
        after = layer(query, other_key, other_value, mask)
        if not torch.allclose(after, before):
            return new_key, new_value
    return None


def leaking_change__many_draws(layer, query, key, value, mask):
    generator = torch.Generator().manual_seed(0)
    before = layer(query, key, value, mask)
    for power in range(1, 9):
        for _ in range(4):
            k, v = key.clone(), value.clone()
            k[-1] = 10.0**power * torch.randn(k.shape[1], generator=generator, dtype=k.dtype)
            v[-1] = 10.0**power * torch.randn(v.shape[1], generator=generator, dtype=v.dtype)
            off = (layer(query, k, v, mask) - before).abs()
            if off.isnan().any() or off.max() > 1e-4:
                return [k[-1], v[-1]]


def leaking_change__key_then_value(layer, query, key, value, mask):
    before = layer(query, key, value, mask)
    keys = [key[-1], 1e6 * query.mean(0), -1e6 * query.mean(0), 1e6 * query[1]]
    values = [value[-1], value[-1] + 1e11]
    for new_key in keys:
        for new_value in values:
            k, v = key.clone(), value.clone()
            k[-1], v[-1] = new_key, new_value
            if not bool(((layer(query, k, v, mask) - before).abs() < 1e-5).all()):
                return new_key, new_value
    return None


# The experiment -------------------------------------------------------------------------


def best_loss__loops(chances):
    total = 0.0
    for row in chances.tolist():
        total -= sum(chance * math.log(chance) for chance in row if chance > 0)
    return total / len(chances)


def best_loss__where(chances):
    logs = torch.where(chances > 0, chances, 1.0).log()
    return -(chances * logs).sum() / chances.shape[0]


def best_loss__cross_entropy_with_itself(chances):
    return torch.nn.functional.cross_entropy((chances + 1e-12).log(), chances)


def run_fault__ratio(loss, best, writing):
    ratio = float(loss[-len(loss) // 10 :].mean()) / best
    if ratio < 0.75:
        return "sees the next"
    if ratio > 1.4:
        return "sees too little"
    if writing / best > 1.5:
        return "differs in writing"
    return "sound"


def run_fault__a_small_margin(loss, best, writing):
    level = loss[-20:].mean()
    if not 0.96 * best < level < 1.04 * best:
        return "sees the next" if level < best else "sees too little"
    return "sound" if writing < 1.2 * best else "differs in writing"


def run_fault__median(loss, best, writing):
    level = loss[-15:].median()
    if abs(level - best) < 0.2 * best:
        return "sound" if writing < 1.4 * best else "differs in writing"
    return "sees the next" if level < best else "sees too little"


def run_fault__sorted_out(loss, best, writing):
    last = loss.tolist()[-20:]
    mean = sum(last) / len(last)
    faults = {"sees the next": mean < 0.82 * best, "sees too little": mean > 1.25 * best}
    faults["differs in writing"] = writing > mean * 1.3 and not any(faults.values())
    return next((fault for fault, found in faults.items() if found), "sound")
