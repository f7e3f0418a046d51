"""Right answers to the tasks of ``attention_operator``, each written in another way."""

import math

import torch

# One query ------------------------------------------------------------------------------


def single_query__loops(query, key, value, count):
    num_keys, key_dim = key.shape
    scores = []
    for j in range(num_keys):
        score = 0.0
        for d in range(key_dim):
            score += float(query[d]) * float(key[j, d])
        scores.append(score / key_dim**0.5)
    total = sum(int(count[j]) * math.exp(score) for j, score in enumerate(scores))
    output = torch.zeros(value.shape[1])
    for j in range(num_keys):
        for d in range(value.shape[1]):
            output[d] += int(count[j]) * math.exp(scores[j]) / total * value[j, d]
    return output


def single_query__running_sums(query, key, value, count):
    numerator = torch.zeros_like(value[0])
    denominator = 0
    for k, v, n in zip(key, value, count.tolist(), strict=True):
        e = torch.exp((query * k).sum() / math.sqrt(len(query)))
        for _ in range(n):
            numerator += e * v
            denominator += e
    return numerator / denominator


def single_query__written_out(query, key, value, count):
    key = torch.repeat_interleave(key, count, dim=0)
    value = torch.repeat_interleave(value, count, dim=0)
    e = (key @ query * query.numel() ** -0.5).exp()
    return e @ value / e.sum()


def single_query__logarithms(query, key, value, count):
    e = torch.exp(torch.einsum("d,nd->n", query, key) / math.sqrt(query.shape[0]) + count.log())
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


def picking_query__halved(key, index, share):
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        scores = middle * key @ key[index] / math.sqrt(key.shape[1])
        if torch.softmax(scores, 0)[index] < share:
            low = middle
        else:
            high = middle
    return high * key[index]


def picking_query__newton(key, index, share):
    similarity = (key.double() @ key[index].double()) / math.sqrt(key.shape[1])
    length = 0.0
    for _ in range(200):
        weights = torch.softmax(length * similarity, 0)
        # The weight's logarithm rises with the length at this slope, ever more slowly.
        slope = similarity[index] - weights @ similarity
        length += (math.log(share) - weights[index].log()) / slope
    return length * key[index].double()


def picking_query__many_lengths_at_once(key, index, share):
    shortest, longest = 0.0, 1000.0
    for _ in range(4):
        lengths = torch.linspace(shortest, longest, 101, dtype=torch.double)
        scores = lengths[:, None] * (key @ key[index]) / math.sqrt(key.shape[1])
        too_short = (torch.softmax(scores, -1)[:, index] < share).sum()
        shortest, longest = lengths[max(too_short - 1, 0)], lengths[too_short]
    return longest * key[index]


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


def rabbit_weights__identity(num_features, asks, found, handed):
    W_Q = torch.zeros(num_features, num_features)
    W_Q[asks, found] = 1000.0
    return W_Q, torch.eye(num_features), torch.eye(num_features)[:, handed : handed + 1]


def rabbit_weights__lists(num_features, asks, found, handed):
    W_Q = [[50.0 if feature == asks else 0.0, 0.0] for feature in range(num_features)]
    W_K = [[1.0 if feature == found else 0.0, 0.0] for feature in range(num_features)]
    W_V = [[float(feature == handed)] for feature in range(num_features)]
    return torch.tensor(W_Q), torch.tensor(W_K), torch.tensor(W_V)


def rabbit_weights__one_hot_rows(number, a, b, c):
    rows = torch.eye(number, dtype=torch.float64)
    return 10 * rows[a][:, None], 10 * rows[b][:, None], rows[c].view(-1, 1)


def rabbit_weights__both_negative(num_features, asks, found, handed):
    W_Q, W_K, W_V = (torch.zeros(num_features, 1) for _ in range(3))
    W_Q[asks], W_K[found], W_V[handed] = -30, -3, 1
    return [W_Q, W_K, W_V]


# Find the slip --------------------------------------------------------------------------


def telling_input__two_sizes(operator, query, key, value):
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    for size in (1, 10_000):
        trial = size * drawn(2, 3, 5), drawn(2, 6, 5), drawn(2, 6, 7)
        scores = trial[0] @ trial[1].mT / math.sqrt(5)
        if not torch.allclose(operator(*trial), torch.softmax(scores, -1) @ trial[2]):
            return trial
    return None


def telling_input__one_input_for_all(operator, query, key, value):
    q = torch.tensor([[[1.0, 2.0, 0.0], [-1e4, 3.0, 1.0]], [[0.5, -0.5, 0.0], [1e4, 0.0, -1.0]]]).double()
    k = torch.linspace(-1, 2, 24, dtype=torch.float64).view(2, 4, 3).sin()
    v = torch.arange(40.0, dtype=torch.float64).view(2, 4, 5).cos()
    expected = (q @ k.mT / 3**0.5).softmax(-1) @ v
    found = operator(q, k, v)
    same = bool(((found - expected).abs() < 1e-9).all())
    return None if same else (q, k, v)


def telling_input__many_draws(operator, query, key, value):
    for seed in range(12):
        torch.manual_seed(seed)
        batch, n, m, d, w = 2 + seed % 2, 2, 5, 3 + seed % 3, 7
        q, k, v = torch.randn(batch, n, d), torch.randn(batch, m, d), torch.randn(batch, m, w)
        q = 10.0 ** (seed % 6) * q
        q, k, v = q.double(), k.double(), v.double()
        right = torch.einsum("bnm,bmw->bnw", torch.softmax(q @ k.mT / d**0.5, dim=-1), v)
        if (operator(q, k, v) - right).abs().nan_to_num(1.0).max() > 1e-6:
            return [q, k, v]


# The experiment -------------------------------------------------------------------------


def predicted_loss__one_hot(weights, asked, value_std):
    wanted = torch.nn.functional.one_hot(torch.tensor(asked), len(weights))
    return value_std**2 * ((weights - wanted) ** 2).sum()


def predicted_loss__in_a_loop(weights, asked, value_std):
    total = 0.0
    for k, weight in enumerate(weights.tolist()):
        factor = weight - 1 if k == asked else weight
        total += factor * factor
    return total * value_std * value_std


def predicted_loss__variances_and_a_covariance(weights, asked, value_std):
    of_output = (weights.double() ** 2).sum()
    return float((of_output + 1 - 2 * weights[asked].double()) * value_std**2)


def diagnosis__mean_of_the_largest(before, after, loss):
    if ((before.sum(dim=1) - 1).abs() > 0.01).any():
        return "over the queries"
    largest = before.max(dim=1).values.mean()
    if largest > 0.55:
        return "no scale"
    if largest * before.shape[1] < 1.6:
        return "scaled twice"
    return "right"


def diagnosis__entropy(before, after, loss):
    if not torch.allclose(before.sum(-1), torch.ones(before.shape[0])):
        return "over the queries"
    entropy = -(before * (before + 1e-20).log()).sum(-1).mean() / math.log(before.shape[-1])
    return "no scale" if entropy < 0.5 else "scaled twice" if entropy > 0.98 else "right"


def diagnosis__spread_of_the_scores(before, after, loss):
    sums = before.sum(1)
    if sums.max() > 1.001 or sums.min() < 0.999:
        return "over the queries"
    logs = torch.log(before + 1e-35)
    spread = (logs.max(1).values - logs.min(1).values).mean()
    return "no scale" if spread > 8 else "scaled twice" if spread < 1 else "right"
