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


def merge_outputs__logaddexp(first, second):
    both = torch.logaddexp(first[0], second[0])
    finite = torch.where(both == -math.inf, 0.0, both)
    return both, torch.exp(first[0] - finite) * first[1] + torch.exp(second[0] - finite) * second[1]


def merge_outputs__relative_to_the_larger(first, second):
    (log1, y1), (log2, y2) = first, second
    m = torch.maximum(log1, log2).clamp(min=torch.finfo(log1.dtype).min)
    a, b = torch.exp(log1 - m), torch.exp(log2 - m)
    total = a + b
    output = (a * y1 + b * y2) / torch.where(total == 0, 1.0, total)
    return [m + torch.log(total), output]


def merge_outputs__sigmoid(first, second):
    share = torch.sigmoid(first[0] - second[0]).nan_to_num(0.5)
    both = torch.stack([first[0], second[0]]).logsumexp(0)
    return both, share * first[1] + (1 - share) * second[1]


def merge_outputs__softmax_of_two(first, second):
    logs = torch.cat([first[0], second[0]], -1)
    shares = torch.where((logs == -math.inf).all(-1, keepdim=True), 0.0, torch.softmax(logs, -1))
    output = shares[..., :1] * first[1] + shares[..., 1:] * second[1]
    return torch.logsumexp(logs, -1, keepdim=True), output


# Scores that show a slip ----------------------------------------------------------------


def showing_scores__a_list_of_rows(average, value):
    numbers = [0.5, -1.5, 0.25, 2.0, -0.75, 1.25, 0.0, 1.0]
    hidden = [-math.inf] * 4
    rows = [numbers, sorted(numbers), sorted(numbers)[::-1], [1.5] * 8]
    rows += [[x + shift for x in numbers] for shift in (-2000, 2000)]
    rows += [[x + 500 for x in numbers[:4]] + numbers[4:], numbers[:4] + [x + 500 for x in numbers[4:]]]
    rows += [hidden + numbers[4:], numbers[:4] + hidden]
    for row in rows:
        scores = torch.tensor(row, dtype=torch.float64)
        right = torch.softmax(scores, 0) @ value
        if not torch.isclose(average(scores, value), right, atol=0.02):
            return scores


def showing_scores__by_chance(average, value):
    generator = torch.Generator().manual_seed(0)
    while True:
        scores = torch.randn(8, generator=generator, dtype=torch.float64) * 3
        kind = int(torch.randint(6, (), generator=generator))
        if kind == 1:
            scores += 900
        if kind == 2:
            scores -= 900
        if kind == 3:
            scores[4:] += 900 if scores[0] > 0 else -900
        if kind == 4:
            scores[:4] = -math.inf
        if kind == 5:
            scores[:] = scores[0]
        difference = (average(scores, value) - scores.softmax(0) @ value).abs().item()
        if math.isnan(difference) or difference > 0.1:
            return scores


def showing_scores__halves_apart(average, value):
    base = [0.1, 1.3, -3.6, 0.8, 1.9, -1.1, 0.4, 2.7]
    for add in (0, 800, -800):
        for second in (0, 800, -800, -math.inf):
            row = [x + add for x in base[:4]] + [x + add + second for x in base[4:]]
            for scores in (row, row[::-1], [max(row)] * 8):
                exact = torch.tensor(scores).double()
                found = float(average(exact, value))
                if not abs(found - float(exact.softmax(0) @ value)) < 0.05:
                    return exact


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


def cache_bytes__product(num_positions, num_layers, num_heads, heads_per_group, head_dim, bytes_per_number):
    groups = num_heads // heads_per_group
    return 2 * num_positions * num_layers * groups * head_dim * bytes_per_number


def cache_bytes__keys_and_values(
    num_positions, num_layers, num_heads, heads_per_group, head_dim, bytes_per_number
):
    keys = math.prod([num_layers, num_heads, num_positions, head_dim]) // heads_per_group
    values = keys
    return (keys + values) * bytes_per_number


def cache_bytes__layer_by_layer(
    num_positions, num_layers, num_heads, heads_per_group, head_dim, bytes_per_number
):
    total = 0
    for _ in range(num_layers):
        for _ in range(0, num_heads, heads_per_group):
            total += 2 * num_positions * head_dim * bytes_per_number
    return total


def scores_computed__loop(num_prompt, num_letters):
    without, cached, kept = 0, 0, 0
    for step in range(num_letters):
        length = num_prompt + step
        without += length * length
        cached += (length - kept) * length
        kept = length
    return without, cached


def scores_computed__sums(num_prompt, num_letters):
    lengths = list(range(num_prompt, num_prompt + num_letters))
    return sum(n * n for n in lengths), lengths[0] ** 2 + sum(lengths[1:])


def scores_computed__formula(p, n):
    last = p + n - 1

    def squares(k):
        return k * (k + 1) * (2 * k + 1) // 6

    return squares(last) - squares(p - 1), p * p + (last * (last + 1) - p * (p + 1)) // 2


def explain_steps__in_order(whole, steps, value, num_prompt):
    def same(a, b):
        return torch.allclose(a, b, rtol=0, atol=1e-4)

    p = num_prompt
    if same(whole, steps):
        return "right"
    if not same(whole[:p], steps[:p]):
        return "sees ahead" if same(whole[p:], steps[p:]) else "other"
    if same(steps[p:], value[p:]):
        return "forgets"
    if same(steps[p:], value[:1].expand_as(steps[p:])):
        return "stuck at the start"
    right = [same(a, b) for a, b in zip(whole[p:], steps[p:], strict=True)]
    return "runs full" if right[0] and right == sorted(right, reverse=True) else "other"


def explain_steps__wrong_rows(whole, steps, value, num_prompt):
    wrong = ((whole - steps).abs() > 1e-4).any(1).nonzero().flatten().tolist()
    length = len(whole)
    if not wrong:
        return "right"
    if min(wrong) < num_prompt:
        return "sees ahead" if max(wrong) < num_prompt else "other"
    later = steps[num_prompt:]
    if (later - value[num_prompt:]).abs().max() < 1e-4:
        return "forgets"
    if (later - value[0]).abs().max() < 1e-4:
        return "stuck at the start"
    to_the_end = wrong == list(range(wrong[0], length))
    return "runs full" if to_the_end and wrong[0] > num_prompt else "other"


def explain_steps__one_row_at_a_time(whole, steps, value, num_prompt):
    def close(a, b):
        return max(abs(x - y) for x, y in zip(a.tolist(), b.tolist(), strict=True)) < 1e-4

    places = range(len(whole))
    right = [close(whole[t], steps[t]) for t in places]
    if all(right):
        return "right"
    prompt, later = right[:num_prompt], right[num_prompt:]
    if not all(prompt):
        return "sees ahead" if all(later) else "other"
    if all(close(steps[t], value[t]) for t in places[num_prompt:]):
        return "forgets"
    if all(close(steps[t], value[0]) for t in places[num_prompt:]):
        return "stuck at the start"
    if later[0] and not any(later[later.index(False) :]):
        return "runs full"
    return "other"
