"""Right answers to the tasks of ``scaling``, each written in another way."""

import math

import torch

# One pass -------------------------------------------------------------------------------


def running_total__rescaled(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.tolist():
        new = max(largest, score)
        if new > -math.inf:
            total = total * math.exp(largest - new) + math.exp(score - new)
        largest = new
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


def running_total__two_cases(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.double().tolist():
        if score > largest:
            total = total * math.exp(largest - score) + 1
            largest = score
        elif largest > -math.inf:
            total = total + math.exp(score - largest)
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


def running_total__tensors_in_place(scores):
    result = torch.empty(len(scores), 2, dtype=scores.dtype)
    largest, total = scores.new_tensor(-math.inf), scores.new_zeros(())
    for number, score in enumerate(scores):
        new = torch.maximum(largest, score)
        finite = new.nan_to_num(neginf=0.0)
        total = total * (largest - finite).exp() + (score - finite).exp()
        result[number, 0], result[number, 1] = new, total
        largest = new
    return result


def running_total__afresh_for_every_row(scores):
    rows = []
    for number in range(1, len(scores) + 1):
        seen = scores[:number]
        largest = seen.max()
        exponentials = torch.where(seen == -math.inf, 0.0, torch.exp(seen - largest))
        rows.append(torch.stack([largest, exponentials.sum()]))
    return torch.stack(rows)


def running_total__unseen_scores_skipped(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores:
        if score != -math.inf:
            old, largest = largest, max(largest, score.item())
            total = total * math.exp(old - largest) + math.exp(score - largest)
        rows.append((largest, total))
    return torch.tensor(rows, dtype=scores.dtype)


# Merging --------------------------------------------------------------------------------


def merge_partials__where(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


def merge_partials__empty_parts_count_nothing(first, second):
    (m1, l1, o1), (m2, l2, o2) = first, second
    m = torch.where(m1 > m2, m1, m2)
    a = torch.where(m1 == -torch.inf, 0.0, torch.exp(m1 - m))
    b = torch.where(m2 == -torch.inf, 0.0, torch.exp(m2 - m))
    return m, a * l1 + b * l2, a * o1 + b * o2


def merge_partials__stacked(first, second):
    largest, total, weighted = (torch.stack(pair) for pair in zip(first, second, strict=True))
    m = largest.amax(0)
    factors = (largest - m.clamp(min=torch.finfo(m.dtype).min)).exp()
    return [m, (factors * total).sum(0), (factors * weighted).sum(0)]


def merge_partials__not_a_number_is_nothing(first, second):
    (m1, l1, o1), (m2, l2, o2) = first, second
    m = torch.max(m1, m2)
    a, b = torch.exp(m1 - m).nan_to_num(0.0), torch.exp(m2 - m).nan_to_num(0.0)
    return m, a * l1 + b * l2, a * o1 + b * o2


def merge_partials__distance_of_the_two(first, second):
    (m1, l1, o1), (m2, l2, o2) = first, second
    factor = torch.exp(-(m1 - m2).abs()).nan_to_num()
    a, b = torch.where(m1 >= m2, 1.0, factor), torch.where(m1 >= m2, factor, 1.0)
    return [torch.maximum(m1, m2), a * l1 + b * l2, a * o1 + b * o2]


def merge_partials__row_by_row(first, second):
    if first[0].dim() > 2:
        halves = [
            merge_partials__row_by_row([x[i] for x in first], [x[i] for x in second])
            for i in range(len(first[0]))
        ]
        return tuple(torch.stack(parts) for parts in zip(*halves, strict=True))
    rows = []
    for m1, l1, o1, m2, l2, o2 in zip(*first, *second, strict=True):
        if m1 >= m2:
            factor = torch.exp(m2 - m1) if m2 > -math.inf else torch.zeros_like(m1)
            rows.append((m1, l1 + factor * l2, o1 + factor * o2))
        else:
            factor = torch.exp(m1 - m2)
            rows.append((m2, factor * l1 + l2, factor * o1 + o2))
    return tuple(torch.stack(parts) for parts in zip(*rows, strict=True))


# Chunks ---------------------------------------------------------------------------------


def chunked_attention__over_keys(query, key, value, chunk_size):
    scale = 1 / math.sqrt(query.shape[-1])
    largest = torch.full_like(query[..., :1], -math.inf)
    total, weighted = torch.zeros_like(largest), 0
    for start in range(0, key.shape[-2], chunk_size):
        columns = slice(start, start + chunk_size)
        scores = query @ key[..., columns, :].mT * scale
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = weighted * factor + exponentials @ value[..., columns, :]
        largest = new
    return weighted / total


def chunked_attention__averages_merged_by_their_logarithms(query, key, value, chunk_size):
    output, log_total = None, None
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        part, log_part = torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1, keepdim=True)
        if output is None:
            output, log_total = part, log_part
        else:
            both = torch.logaddexp(log_total, log_part)
            output = output * torch.exp(log_total - both) + part * torch.exp(log_part - both)
            log_total = both
    return output


def chunked_attention__one_query_at_a_time(query, key, value, chunk_size):
    if query.dim() > 2:
        parts = zip(query, key, value, strict=True)
        return torch.stack([chunked_attention__one_query_at_a_time(*part, chunk_size) for part in parts])
    outputs = []
    for q in query:
        largest, total, weighted = -math.inf, 0.0, torch.zeros_like(value[0])
        for start in range(0, len(key), chunk_size):
            scores = key[start : start + chunk_size] @ q / math.sqrt(len(q))
            new = max(largest, scores.max().item())
            exponentials = torch.exp(scores - new)
            total = total * math.exp(largest - new) + exponentials.sum()
            weighted = weighted * math.exp(largest - new) + exponentials @ value[start : start + chunk_size]
            largest = new
        outputs.append(weighted / total)
    return torch.stack(outputs)


def chunked_attention__queries_cut_as_well(query, key, value, chunk_size):
    outputs = []
    for q in query.split(chunk_size, dim=-2):
        largest, total, weighted = torch.full_like(q[..., :1], -math.inf), 0, 0
        for k, v in zip(key.split(chunk_size, dim=-2), value.split(chunk_size, dim=-2), strict=True):
            scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
            new = torch.maximum(largest, scores.max(dim=-1, keepdim=True).values)
            factor, exponentials = (largest - new).exp(), (scores - new).exp()
            total = total * factor + exponentials.sum(dim=-1, keepdim=True)
            weighted = weighted * factor + exponentials @ v
            largest = new
        outputs.append(weighted / total)
    return torch.cat(outputs, dim=-2)


def chunked_attention__two_passes(query, key, value, chunk_size):
    keys, values = key.split(chunk_size, -2), value.split(chunk_size, -2)
    query = query / math.sqrt(query.shape[-1])
    largest = torch.full_like(query[..., :1], -math.inf)
    for k in keys:
        largest = torch.maximum(largest, (query @ k.transpose(-2, -1)).amax(-1, keepdim=True))
    exponentials = ((query @ k.transpose(-2, -1) - largest).exp() for k in keys)
    pairs = [(e.sum(-1, keepdim=True), e @ v) for e, v in zip(exponentials, values, strict=True)]
    return sum(weighted for _, weighted in pairs) / sum(total for total, _ in pairs)


# Decoding -------------------------------------------------------------------------------


def decoding_step__mask(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], dim=-2), torch.cat([value_cache, value], dim=-2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


def decoding_step__one_position_at_a_time(query, key, value, key_cache, value_cache):
    outputs = []
    for t in range(query.shape[-2]):
        new = slice(t, t + 1)
        key_cache = torch.cat([key_cache, key[..., new, :]], -2)
        value_cache = torch.cat([value_cache, value[..., new, :]], -2)
        scores = torch.einsum("...qd,...kd->...qk", query[..., new, :], key_cache) / query.shape[-1] ** 0.5
        outputs.append(scores.softmax(-1) @ value_cache)
    return torch.cat(outputs, -2), key_cache, value_cache


def decoding_step__last_rows_of_everything(query, key, value, key_cache, value_cache):
    new, known = query.shape[-2], key_cache.shape[-2]
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    # Queries of zeros stand for those that were asked before; their outputs are thrown away.
    padded = torch.cat([torch.zeros_like(key_cache), query], -2)
    scores = padded @ keys.mT / math.sqrt(query.shape[-1])
    future = torch.ones(known + new, known + new, dtype=torch.bool).triu(1)
    output = torch.softmax(scores.masked_fill(future, -math.inf), -1) @ values
    return [output[..., known:, :], keys, values]


def decoding_step__compared_positions(query, key, value, key_cache, value_cache):
    keys, values = torch.cat((key_cache, key), -2), torch.cat((value_cache, value), -2)
    own = torch.arange(key_cache.shape[-2], keys.shape[-2])
    seen = torch.arange(keys.shape[-2]) <= own[:, None]
    scores = torch.where(seen, query @ keys.transpose(-2, -1) / math.sqrt(query.shape[-1]), -math.inf)
    exponentials = torch.exp(scores - scores.amax(-1, keepdim=True))
    return exponentials @ values / exponentials.sum(-1, keepdim=True), keys, values


# The size of the cache ------------------------------------------------------------------


def cache_bytes__product(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return 2 * num_positions * num_layers * num_heads * head_dim * bytes_per_number


def cache_bytes__keys_and_values(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    keys = math.prod([num_layers, num_heads, num_positions, head_dim])
    values = keys
    return (keys + values) * bytes_per_number


def cache_bytes__layer_by_layer(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    total = 0
    for _ in range(num_layers):
        for _ in ("keys", "values"):
            total += num_heads * num_positions * head_dim * bytes_per_number
    return total
