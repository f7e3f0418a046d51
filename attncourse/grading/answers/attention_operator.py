"""Right answers to the tasks of ``attention_operator``, each written in another way."""

import math

import torch

# One query ------------------------------------------------------------------------------


def single_query__loops(query, key, value):
    num_keys, key_dim = key.shape
    scores = []
    for j in range(num_keys):
        score = 0.0
        for d in range(key_dim):
            score += float(query[d]) * float(key[j, d])
        scores.append(score / key_dim**0.5)
    total = sum(math.exp(score) for score in scores)
    output = torch.zeros(value.shape[1])
    for j in range(num_keys):
        for d in range(value.shape[1]):
            output[d] += math.exp(scores[j]) / total * value[j, d]
    return output


def single_query__running_sums(query, key, value):
    numerator = torch.zeros_like(value[0])
    denominator = 0
    for k, v in zip(key, value, strict=True):
        e = torch.exp((query * k).sum() / math.sqrt(len(query)))
        numerator += e * v
        denominator += e
    return numerator / denominator


def single_query__matrix_product(query, key, value):
    e = (key @ query * query.numel() ** -0.5).exp()
    return e @ value / e.sum()


def single_query__einsum(query, key, value):
    e = torch.exp(torch.einsum("d,nd->n", query, key) / math.sqrt(query.shape[0]))
    return torch.einsum("n,nv->v", e, value) / e.sum()


# Stable softargmax ----------------------------------------------------------------------


def softargmax__rows_in_a_loop(scores):
    rows = scores.reshape(-1, scores.shape[-1])
    out = torch.empty_like(rows)
    for i, row in enumerate(rows):
        e = torch.exp(row - max(row.tolist()))
        out[i] = e / e.sum()
    return out.reshape(scores.shape)


def softargmax__max_values(scores):
    largest, _ = scores.max(dim=-1, keepdim=True)
    weights = (scores - largest).exp_()
    weights /= weights.sum(dim=-1, keepdim=True)
    return weights


def softargmax__log_sum(scores):
    shifted = scores - scores.amax(dim=-1, keepdim=True)
    return torch.exp(shifted - torch.log(torch.exp(shifted).sum(dim=-1, keepdim=True)))


def softargmax__differences(scores):
    # 1 / sum of exp(s_l - s_j): an infinite sum is a weight of 0.
    return 1 / torch.exp(scores.unsqueeze(-2) - scores.unsqueeze(-1)).sum(-1)


def softargmax__numpy(scores):
    s = scores.numpy().copy()
    s -= s.max(axis=-1, keepdims=True)
    s = torch.from_numpy(s).exp().numpy()
    return torch.from_numpy(s / s.sum(axis=-1, keepdims=True))


# The matrix form ------------------------------------------------------------------------


def attention__einsum(query, key, value):
    scores = torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(query.size(-1))
    return torch.einsum("...qk,...kv->...qv", scores.softmax(-1), value)


def attention__scaled_query(query, key, value):
    query = query * query.shape[-1] ** -0.5
    return torch.matmul(torch.softmax(torch.matmul(query, key.transpose(-1, -2)), dim=-1), value)


def attention__transposed_and_back(query, key, value):
    weights = torch.softmax(key @ query.mT / math.sqrt(key.shape[-1]), dim=-2)
    return weights.mT @ value


def attention__loops_over_the_batch(query, key, value):
    if query.dim() > 2:
        parts = zip(query, key, value, strict=True)
        return torch.stack([attention__loops_over_the_batch(q, k, v) for q, k, v in parts])
    return torch.softmax(query @ key.T / math.sqrt(query.shape[1]), dim=1) @ value


def attention__one_query_at_a_time(query, key, value):
    outputs = []
    for i in range(query.shape[-2]):
        scores = (query[..., i : i + 1, :] * key).sum(-1) / math.sqrt(key.shape[-1])
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        weights = weights / weights.sum(-1, keepdim=True)
        outputs.append((weights.unsqueeze(-1) * value).sum(-2))
    return torch.stack(outputs, dim=-2)


def attention__in_place_on_its_own(query, key, value):
    scores = query @ key.mT
    scores /= math.sqrt(query.shape[-1])
    scores -= scores.amax(-1, keepdim=True)
    scores.exp_()
    scores /= scores.sum(-1, keepdim=True)
    return scores @ value


def attention__baddbmm(query, key, value):
    batch = query.shape[:-2]
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    weights = torch.bmm(q, k.transpose(1, 2)).div(math.sqrt(q.shape[2])).softmax(dim=2)
    return torch.bmm(weights, v).reshape(*batch, q.shape[1], v.shape[2])


# The two limits -------------------------------------------------------------------------


def picking_query__very_long(key, index, share):
    return 1e5 * key[index]


def picking_query__just_long_enough(key, index, share):
    length = 1.0
    while True:
        query = length * key[index]
        scores = key @ query / math.sqrt(key.shape[1])
        if torch.softmax(scores, 0)[index] > share:
            return query
        length *= 1.1


def picking_query__from_the_gap(key, index, share):
    similarity = key @ key[index]
    similarity[index] = -1
    gap = 1 - similarity.max().item()
    needed = math.log(len(key) * share / (1 - share))
    return key[index] * needed * math.sqrt(key.shape[1]) / gap


def picking_query__doubled_in_double_precision(key, index, share):
    query = key[index].double()
    while torch.softmax(key.double() @ query / key.shape[1] ** 0.5, -1)[index] < 0.5 + share / 2:
        query = query * 2
    return query


def averaging_query__zeros(key):
    return torch.zeros(key.shape[1])


def averaging_query__new_zeros(key):
    return key.new_zeros(key.shape[-1])


def averaging_query__times_zero(key):
    return 0 * key[0]


# The scale ------------------------------------------------------------------------------


def score_scale__power(dim, sigma_q, sigma_k):
    return dim**-0.5 / sigma_q / sigma_k


def score_scale__variance(key_dim, query_std, key_std):
    variance = key_dim * query_std**2 * key_std**2
    return variance**-0.5


def score_scale__tensor(key_dim, query_std, key_std):
    return torch.rsqrt(torch.tensor(key_dim * (query_std * key_std) ** 2))


# Columns --------------------------------------------------------------------------------


def column_attention__columns(query, key, value):
    return value @ (key.mT @ query / math.sqrt(key.shape[-2])).softmax(-2)


def column_attention__through_rows(query, key, value):
    weights = torch.softmax(query.mT @ key / math.sqrt(query.shape[-2]), -1)
    return value @ weights.mT


def column_attention__einsum(query, key, value):
    scores = torch.einsum("...dq,...dk->...kq", query, key) * query.shape[-2] ** -0.5
    e = torch.exp(scores - scores.amax(-2, keepdim=True))
    return torch.einsum("...vk,...kq->...vq", value, e / e.sum(-2, keepdim=True))


# The rabbit sentence --------------------------------------------------------------------


def self_attention__one_line(x, W_Q, W_K, W_V):
    return torch.softmax((x @ W_Q) @ (x @ W_K).T / W_K.shape[1] ** 0.5, -1) @ (x @ W_V)


def self_attention__weights_multiplied(x, W_Q, W_K, W_V):
    scores = x @ (W_Q @ W_K.T) @ x.T / math.sqrt(W_Q.shape[1])
    return torch.softmax(scores, -1) @ x @ W_V


def self_attention__word_by_word(words, A, B, C):
    outputs = []
    for word in words:
        scores = torch.stack([(word @ A) @ (other @ B) for other in words]) / math.sqrt(A.shape[1])
        weights = torch.exp(scores) / torch.exp(scores).sum()
        outputs.append(sum(weight * (other @ C) for weight, other in zip(weights, words, strict=True)))
    return torch.stack(outputs)


# Reading the weights --------------------------------------------------------------------


def most_attended__argmax(weights):
    return torch.argmax(weights, dim=-1)


def most_attended__max(weights):
    return weights.max(-1).indices


def most_attended__sorted(weights):
    return weights.sort(-1, descending=True)[1][..., 0]


# Find the slips -------------------------------------------------------------------------


def mended_layer__mended(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    similarity = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return torch.softmax(similarity, dim=-1) @ value


def mended_layer__einsum(x, W_Q, W_K, W_V):
    query, key, value = (torch.einsum("...nd,de->...ne", x, W) for W in (W_Q, W_K, W_V))
    similarity = torch.einsum("...qe,...ke->...qk", query, key) / math.sqrt(W_Q.shape[1])
    return similarity.softmax(-1) @ value


def mended_layer__one_sequence_at_a_time(x, W_Q, W_K, W_V):
    sequences = x.reshape(-1, *x.shape[-2:])
    outputs = []
    for s in sequences:
        weights = torch.softmax(s @ W_Q @ (s @ W_K).T / math.sqrt(W_Q.shape[1]), dim=1)
        outputs.append(weights @ (s @ W_V))
    return torch.stack(outputs).reshape(*x.shape[:-1], -1)
