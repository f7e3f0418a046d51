"""Right answers to the tasks of ``masking``, each written in another way."""

import math

import torch

# Find the leak --------------------------------------------------------------------------


def mended_attention__minus_infinity(query, key, value, mask):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1) @ value


def mended_attention__times_mask_after_exp(query, key, value, mask):
    scores = torch.where(mask, query @ key.mT / math.sqrt(query.shape[-1]), 0.0)
    allowed = torch.where(mask, scores, -math.inf)
    exponentials = torch.exp(allowed - allowed.amax(-1, keepdim=True)) * mask
    return exponentials / exponentials.sum(-1, keepdim=True) @ value


def mended_attention__lowest_number(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = torch.softmax(torch.where(mask, scores, torch.finfo(scores.dtype).min), -1)
    return weights @ value


def mended_attention__only_the_allowed_keys(query, key, value, mask):
    if query.dim() > 2:
        masks = mask.expand(*query.shape[:-1], key.shape[-2])
        parts = zip(query, key, value, masks, strict=True)
        return torch.stack([mended_attention__only_the_allowed_keys(*part) for part in parts])
    outputs = []
    for q, may in zip(query, mask, strict=True):
        weights = torch.softmax(key[may] @ q / math.sqrt(len(q)), 0)
        outputs.append(weights @ value[may])
    return torch.stack(outputs)


def mended_attention__minus_a_billion(query, key, value, mask):
    # Without an empty row, a billion below the others is as good as infinitely far.
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(torch.where(mask, scores, -1e9), -1) @ value


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


def decoder_mask__and(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions, dtype=torch.bool).tril()
    padding = torch.arange(num_positions) < lengths[:, None, None]
    return causal & padding


def decoder_mask__product(lengths, num_positions):
    position = torch.arange(num_positions)
    causal = (position[:, None] >= position).float()
    padding = (position < lengths[:, None]).float()
    return torch.einsum("qk,bk->bqk", causal, padding) > 0


def decoder_mask__columns_erased(lengths, num_positions):
    masks = []
    for length in lengths:
        mask = torch.tril(torch.ones(num_positions, num_positions)).bool()
        mask[:, length:] = False
        masks.append(mask)
    return torch.stack(masks)


def decoder_mask__smaller_of_two(lengths, num_positions):
    # Query q of sequence b sees as many keys as there are up to its own, or as there are true ones.
    number = torch.minimum(torch.arange(1, num_positions + 1), lengths[:, None])
    return torch.arange(num_positions) < number[..., None]


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


def additive_mask__filled(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


def additive_mask__logarithm(mask):
    return torch.log(mask.float())


def additive_mask__where(mask):
    return torch.where(mask, 0.0, float("-inf"))


def additive_mask__indexed(mask):
    added = torch.full(mask.shape, -torch.inf)
    added[mask] = 0
    return added


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
    shifted = [layer(torch.cat([x[:i], x[i:] + 1]))[:i] for i in range(1, len(x))]
    return all(torch.allclose(part, before[: len(part)], atol=1e-10) for part in shifted)


def is_causal__cut_off(layer, x):
    # A causal layer gives the same for the beginning of a sequence, whatever follows.
    whole = layer(x)
    parts = torch.stack([layer(x[: i + 1])[i] for i in range(len(x))])
    return (whole - parts).abs().max() < 1e-9


# Dropout --------------------------------------------------------------------------------


def weight_dropout__divided(weights, keep, dropout_p, training):
    if not training:
        return weights
    return weights * keep / (1 - dropout_p)


def weight_dropout__where(weights, keep, dropout_p, training):
    return torch.where(keep, weights / (1 - dropout_p), 0.0) if training else weights.clone()


def weight_dropout__factor(weights, keep, dropout_p, training):
    factor = keep.to(weights.dtype).div(1 - dropout_p)
    if training:
        return factor * weights
    return weights + 0


def weight_dropout__filled(weights, keep, dropout_p, training):
    if training:
        weights = weights.masked_fill(~keep, 0) * (1 / (1 - dropout_p))
    return weights
