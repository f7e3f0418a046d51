"""Right answers to the tasks of ``words``, each written in another way."""

import math

import torch

# Embeddings -----------------------------------------------------------------------------


def embed_ids__layer_norm_of_torch(ids, weights):
    x = weights["word_embeddings.weight"][ids]
    x = x + weights["position_embeddings.weight"][: ids.shape[-1]]
    x = x + weights["token_type_embeddings.weight"][0]
    gain, bias = weights["LayerNorm.weight"], weights["LayerNorm.bias"]
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), gain, bias, eps=1e-12)


def embed_ids__embedding_of_torch(ids, weights):
    embedding = torch.nn.functional.embedding
    places = torch.arange(ids.size(-1)).expand_as(ids)
    x = embedding(ids, weights["word_embeddings.weight"])
    x = x + embedding(places, weights["position_embeddings.weight"])
    x = x + embedding(torch.zeros_like(ids), weights["token_type_embeddings.weight"])
    x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-12)
    return x * weights["LayerNorm.weight"] + weights["LayerNorm.bias"]


def embed_ids__token_by_token(ids, weights):
    length = ids.shape[-1]
    texts = []
    for text in ids.reshape(-1, length).tolist():
        tokens = []
        for place, number in enumerate(text):
            x = weights["word_embeddings.weight"][number] + weights["position_embeddings.weight"][place]
            x = x + weights["token_type_embeddings.weight"][0]
            centred = x - sum(x) / len(x)
            x = centred / (sum(centred**2) / len(x) + 1e-12) ** 0.5
            tokens.append(weights["LayerNorm.bias"] + weights["LayerNorm.weight"] * x)
        texts.append(torch.stack(tokens))
    return torch.stack(texts).reshape(*ids.shape, -1)


# One layer ------------------------------------------------------------------------------


def encoder_layer__linear_of_torch(x, mask, weights, num_heads):
    functional = torch.nn.functional

    def linear(name, y):
        return functional.linear(y, weights[name + ".weight"], weights[name + ".bias"])

    def norm(name, y):
        gain, bias = weights[name + ".LayerNorm.weight"], weights[name + ".LayerNorm.bias"]
        return functional.layer_norm(y, gain.shape, gain, bias, 1e-12)

    def cut(y):
        return y.unflatten(-1, (num_heads, -1)).transpose(-3, -2)

    query, key, value = (cut(linear("attention.self." + name, x)) for name in ("query", "key", "value"))
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    scores = scores.masked_fill(~mask[..., None, None, :], float("-inf"))
    found = (scores.softmax(-1) @ value).transpose(-3, -2).flatten(-2)
    x = norm("attention.output", x + linear("attention.output.dense", found))
    hidden = functional.gelu(linear("intermediate.dense", x))
    return norm("output", x + linear("output.dense", hidden))


def encoder_layer__head_by_head(x, mask, weights, num_heads):
    d = x.shape[-1] // num_heads
    mixed = weights["attention.output.dense.bias"]
    for head in range(num_heads):
        own = slice(head * d, (head + 1) * d)
        q, k, v = (
            x @ weights[f"attention.self.{name}.weight"][own].T + weights[f"attention.self.{name}.bias"][own]
            for name in ("query", "key", "value")
        )
        e = torch.exp(q @ k.mT / d**0.5) * mask.unsqueeze(-2)
        a = e / e.sum(-1, keepdim=True)
        mixed = mixed + a @ v @ weights["attention.output.dense.weight"][:, own].T

    def norm(y, gain, bias):
        y = y - y.mean(-1, keepdim=True)
        return gain * y / (y.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt() + bias

    z = norm(
        x + mixed, weights["attention.output.LayerNorm.weight"], weights["attention.output.LayerNorm.bias"]
    )
    inner = z @ weights["intermediate.dense.weight"].T + weights["intermediate.dense.bias"]
    inner = inner * (1 + torch.erf(inner / 2**0.5)) / 2
    z = z + inner @ weights["output.dense.weight"].T + weights["output.dense.bias"]
    return norm(z, weights["output.LayerNorm.weight"], weights["output.LayerNorm.bias"])


def encoder_layer__einsum(x, mask, weights, num_heads):
    dim = x.shape[-1]

    def project(name):
        W = weights[f"attention.self.{name}.weight"].reshape(num_heads, dim // num_heads, dim)
        b = weights[f"attention.self.{name}.bias"].reshape(num_heads, 1, dim // num_heads)
        return torch.einsum("...nd,hed->...hne", x, W) + b

    scores = torch.einsum("...qe,...ke->...qk", project("query"), project("key"))
    scores = scores / math.sqrt(dim / num_heads)
    hidden_keys = torch.where(mask, 0.0, -1e30)[..., None, None, :].to(scores.dtype)
    shares = torch.softmax(scores + hidden_keys, dim=-1)
    found = torch.einsum("...hqk,...hke->...qhe", shares, project("value")).reshape(x.shape)

    def step(y, added, name):
        layer = torch.nn.LayerNorm(dim, eps=1e-12, dtype=x.dtype)
        layer.load_state_dict({kind: weights[f"{name}.LayerNorm.{kind}"] for kind in ("weight", "bias")})
        return layer(y + added)

    def linear(y, name):
        return torch.einsum("...i,oi->...o", y, weights[name + ".weight"]) + weights[name + ".bias"]

    z = step(x, linear(found, "attention.output.dense"), "attention.output")
    hidden = torch.nn.GELU()(linear(z, "intermediate.dense"))
    return step(z, linear(hidden, "output.dense"), "output").detach()


# The whole encoder ----------------------------------------------------------------------


def encode_texts__one_loop(ids, mask, weights, num_heads):
    functional = torch.nn.functional

    def norm(y, name):
        gain = weights[name + ".LayerNorm.weight"]
        return functional.layer_norm(y, gain.shape, gain, weights[name + ".LayerNorm.bias"], 1e-12)

    def linear(y, name):
        return functional.linear(y, weights[name + ".weight"], weights[name + ".bias"])

    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[-1]]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
    number = 0
    while f"encoder.layer.{number}.output.dense.bias" in weights:
        layer = f"encoder.layer.{number}."
        q, k, v = (
            linear(x, layer + "attention.self." + name).unflatten(-1, (num_heads, -1)).transpose(-3, -2)
            for name in ("query", "key", "value")
        )
        scores = (q @ k.mT) / math.sqrt(q.shape[-1])
        shares = scores.masked_fill(~mask[..., None, None, :], -torch.inf).softmax(-1)
        found = (shares @ v).transpose(-3, -2).flatten(-2)
        x = norm(x + linear(found, layer + "attention.output.dense"), layer + "attention.output")
        hidden = functional.gelu(linear(x, layer + "intermediate.dense"))
        x = norm(x + linear(hidden, layer + "output.dense"), layer + "output")
        number += 1
    return x


def encode_texts__recursive(ids, mask, weights, num_heads):
    def norm(y, name):
        y = y - y.mean(-1, keepdim=True)
        y = y / (y.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        return y * weights[name + "LayerNorm.weight"] + weights[name + "LayerNorm.bias"]

    def after(number):
        if number < 0:
            places = torch.arange(ids.shape[-1])
            x = weights["embeddings.word_embeddings.weight"][ids]
            x = x + weights["embeddings.position_embeddings.weight"][places]
            return norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.")
        x = after(number - 1)
        prefix = f"encoder.layer.{number}."

        def linear(y, name):
            return y @ weights[prefix + name + ".weight"].T + weights[prefix + name + ".bias"]

        parts = [linear(x, f"attention.self.{name}") for name in ("query", "key", "value")]
        found = []
        for q, k, v in zip(*(part.chunk(num_heads, -1) for part in parts), strict=True):
            e = torch.exp(q @ k.mT / q.shape[-1] ** 0.5) * mask[..., None, :]
            found.append(e @ v / e.sum(-1, keepdim=True))
        x = norm(x + linear(torch.cat(found, -1), "attention.output.dense"), prefix + "attention.output.")
        hidden = linear(x, "intermediate.dense")
        hidden = hidden * torch.special.ndtr(hidden)
        return norm(x + linear(hidden, "output.dense"), prefix + "output.")

    return after(max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.")))


def encode_texts__text_by_text(ids, mask, weights, num_heads):
    """Padding is left out of each text instead of being hidden, and computed beside it."""
    length = ids.shape[-1]
    layers = len([name for name in weights if name.endswith("intermediate.dense.bias")])

    def linear(y, name):
        return y @ weights[name + ".weight"].T + weights[name + ".bias"]

    def norm(y, name):
        layer = torch.nn.functional.layer_norm
        return layer(y, y.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], 1e-12)

    texts = []
    for text, seen in zip(ids.reshape(-1, length), mask.reshape(-1, length), strict=True):
        x = weights["embeddings.word_embeddings.weight"][text]
        x = x + weights["embeddings.position_embeddings.weight"][:length]
        x = x + weights["embeddings.token_type_embeddings.weight"][0]
        x = norm(x, "embeddings.LayerNorm")
        for number in range(layers):
            at = f"encoder.layer.{number}"
            query = linear(x, f"{at}.attention.self.query").reshape(length, num_heads, -1)
            key = linear(x[seen], f"{at}.attention.self.key").reshape(int(seen.sum()), num_heads, -1)
            value = linear(x[seen], f"{at}.attention.self.value").reshape(key.shape)
            scores = torch.einsum("qhd,khd->hqk", query, key) / math.sqrt(query.shape[-1])
            found = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(x.shape)
            x = norm(x + linear(found, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            hidden = torch.nn.functional.gelu(linear(x, f"{at}.intermediate.dense"))
            x = norm(x + linear(hidden, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        texts.append(x)
    return torch.stack(texts).reshape(*ids.shape, -1)


# One vector for a text ------------------------------------------------------------------


def sentence_vectors__normalize_of_torch(hidden, mask):
    seen = mask.unsqueeze(-1)
    mean = (hidden * seen).sum(-2) / seen.sum(-2)
    return torch.nn.functional.normalize(mean, dim=-1)


def sentence_vectors__a_product_with_the_mask(hidden, mask):
    shares = mask.to(hidden.dtype)
    mean = (shares.unsqueeze(-2) @ hidden).squeeze(-2)  # the length takes care of the number
    return mean / torch.linalg.vector_norm(mean, dim=-1, keepdim=True)


def sentence_vectors__text_by_text(hidden, mask):
    vectors = []
    for text, seen in zip(
        hidden.reshape(-1, *hidden.shape[-2:]), mask.reshape(-1, mask.shape[-1]), strict=True
    ):
        mean = text[seen].mean(dim=0)
        vectors.append(mean / mean.norm())
    return torch.stack(vectors).reshape(*hidden.shape[:-2], hidden.shape[-1])


# A batch that shows a slip --------------------------------------------------------------


def showing_batch__a_list_of_masks(pool, seen):
    generator = torch.Generator().manual_seed(5)
    masks = [
        [[1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]],
        [[0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 0]],
        [[1, 0, 1, 1, 1, 1, 1]],
        [[1, 1], [1, 0], [0, 1]],
    ]
    for rows in masks:
        mask = torch.tensor(rows).bool()
        hidden = 30 * torch.randn(*mask.shape, 5, generator=generator)
        hidden[~mask] = 1000.0
        right = torch.stack([text[own].mean(0) for text, own in zip(hidden, mask, strict=True)])
        right = right / right.norm(dim=1, keepdim=True)
        if not torch.allclose(pool(hidden, mask).to(right.dtype), right, rtol=0, atol=0.02):
            return hidden, mask


def showing_batch__by_chance(pool, seen):
    generator = torch.Generator().manual_seed(6)
    while True:
        texts, tokens = (int(torch.randint(1, most, (), generator=generator)) for most in (5, 9))
        mask = torch.rand(texts, tokens, generator=generator) < 0.7
        mask[:, int(torch.randint(tokens, (), generator=generator))] = True
        hidden = (40 * torch.randn(texts, tokens, 3, generator=generator)).double()
        hidden = torch.where(mask[..., None], hidden, 800.0)
        mean = (hidden * mask[..., None]).sum(1)
        if (mean.norm(dim=1) < 1).any():
            continue
        if (pool(hidden, mask) - mean / mean.norm(dim=1, keepdim=True)).abs().max() > 0.05:
            return [hidden, mask]


def showing_batch__one_text_and_then_many(pool, seen):
    for texts in (1, 4):
        for flipped in (False, True):
            mask = torch.arange(8) < torch.arange(8 - texts, 8)[:, None]
            mask = mask.flip(1) if flipped else mask
            hidden = torch.arange(texts * 8 * 3).reshape(texts, 8, 3) * 7.3 % 60 - 29
            hidden = torch.where(mask[..., None], hidden, -999.0)
            right = torch.nn.functional.normalize((hidden * mask[..., None]).sum(1), dim=1)
            if not torch.allclose(pool(hidden, mask).float(), right, 0, 0.011):
                return hidden, mask


# Ranks ----------------------------------------------------------------------------------


def reciprocal_ranks__counting(similarities, wanted):
    own = similarities[torch.arange(len(wanted)), wanted]
    return 1 / (similarities >= own[:, None]).sum(dim=1)


def reciprocal_ranks__gather(similarities, wanted):
    own = similarities.gather(1, wanted[:, None])
    in_front = (similarities >= own).sum(dim=1).to(similarities.dtype) - 1
    return 1 / (1 + in_front)


def reciprocal_ranks__sorted_lists(similarities, wanted):
    found = []
    for row, passage in zip(similarities.tolist(), wanted.tolist(), strict=True):
        ordered = sorted(row)  # the last of the equals, counted from the end
        found.append(1 / (len(row) - ordered.index(row[passage])))
    return torch.tensor(found)


def reciprocal_ranks__argsort_twice(similarities, wanted):
    # Of equals the wanted one is to come last: it is taken away a little.
    lowered = similarities.double().clone()
    lowered[torch.arange(len(wanted)), wanted] -= 1e-9
    places = lowered.argsort(dim=1, descending=True).argsort(dim=1)
    return 1.0 / (1 + places[torch.arange(len(wanted)), wanted])


# A head for a job -----------------------------------------------------------------------


def held_out_head__indexing(weights, asking, wanted, num_seen):
    shares = weights[torch.arange(len(weights)), :, :, asking, wanted]
    best = shares[:num_seen].mean(0).argmax().item()
    block, head = best // weights.shape[2], best % weights.shape[2]
    return block, head, float(shares[num_seen:, block, head].mean())


def held_out_head__loops(weights, asking, wanted, num_seen):
    sentences, blocks, heads = weights.shape[:3]

    def mean(block, head, numbers):
        found = [weights[s, block, head, asking[s], wanted[s]].item() for s in numbers]
        return sum(found) / len(found)

    pairs = [(block, head) for block in range(blocks) for head in range(heads)]
    block, head = max(pairs, key=lambda pair: mean(*pair, range(num_seen)))
    return block, head, mean(block, head, range(num_seen, sentences))


def held_out_head__gather(weights, asking, wanted, num_seen):
    n, blocks, heads, length, _ = weights.shape
    rows = weights.gather(3, asking.view(n, 1, 1, 1, 1).expand(n, blocks, heads, 1, length)).squeeze(3)
    shares = rows.gather(3, wanted.view(n, 1, 1, 1).expand(n, blocks, heads, 1)).squeeze(3)
    by_block, in_block = shares[:num_seen].sum(0).max(dim=1)
    block = int(by_block.argmax())
    head = int(in_block[block])
    return [block, head, shares[num_seen:].mean(0)[block, head].item()]


# By chance ------------------------------------------------------------------------------


def chance_of_best__binomial_sum(num_right, num_pairs, num_heads):
    p = sum(math.comb(num_pairs, k) for k in range(num_right, num_pairs + 1)) / 2**num_pairs
    return 1 - (1 - p) ** num_heads


def chance_of_best__the_other_end(num_right, num_pairs, num_heads):
    fewer = sum(math.comb(num_pairs, k) * 0.5**num_pairs for k in range(num_right))
    return 1 - fewer**num_heads


def chance_of_best__pascals_triangle(num_right, num_pairs, num_heads):
    row = [1.0]
    for _ in range(num_pairs):
        row = [(left + right) / 2 for left, right in zip([0.0, *row], [*row, 0.0], strict=True)]
    none = 1.0
    for _ in range(num_heads):
        none *= 1 - sum(row[num_right:])
    return 1 - none


# By meaning, or by word -----------------------------------------------------------------


def explain_search__means(by_meaning, by_word):
    meaning, word = by_meaning > 0.3, by_word > 0.3
    if torch.equal(meaning, word):
        return "both alike"
    only_meaning = (meaning & ~word).double().mean()
    only_word = (word & ~meaning).double().mean()
    if only_meaning >= 0.2 and only_word >= 0.2:
        return "together"
    gap = only_meaning - only_word
    return "meaning" if gap >= 0.1 else "word" if gap <= -0.1 else "too close"


def explain_search__counts(by_meaning, by_word):
    pairs = [
        (round(1 / m) <= 3, round(1 / w) <= 3)
        for m, w in zip(by_meaning.tolist(), by_word.tolist(), strict=True)
    ]
    more, less = pairs.count((True, False)), pairs.count((False, True))
    if more + less == 0:
        return "both alike"
    if 5 * min(more, less) >= len(pairs):
        return "together"
    if 10 * (more - less) >= len(pairs):
        return "meaning"
    if 10 * (less - more) >= len(pairs):
        return "word"
    return "too close"


def explain_search__shares_found(by_meaning, by_word):
    third = 1 / 3 - 1e-6
    found = torch.stack([by_meaning, by_word]) >= third
    both = found.all(0).double().mean()
    shares = found.double().mean(1)
    only = shares - both
    if only.max() == 0:
        return "both alike"
    if only.min() > 0.1999:
        return "together"
    if (shares[0] - shares[1]).abs() < 0.1:
        return "too close"
    return ["meaning", "word"][int(shares.argmax())]
