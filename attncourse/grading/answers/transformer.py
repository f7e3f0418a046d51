"""Right answers to the tasks of ``transformer``, each written in another way."""

import math

import torch

# Layer normalisation --------------------------------------------------------------------


def layer_norm__mean_and_var(x, gain, bias):
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, correction=0)
    return gain * (x - mean) / torch.sqrt(variance + 1e-5) + bias


def layer_norm__mean_of_squares(x, gain, bias):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * ((centred**2).mean(dim=-1, keepdim=True) + 1e-5).rsqrt() * gain + bias


def layer_norm__position_by_position(x, gain, bias):
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    for n in range(rows.shape[0]):
        mean = sum(rows[n]) / len(rows[n])
        variance = sum((v - mean) ** 2 for v in rows[n]) / len(rows[n])
        for d in range(rows.shape[1]):
            out[n, d] = (rows[n, d] - mean) / (variance + 1e-5) ** 0.5 * gain[d] + bias[d]
    return out.reshape(x.shape)


def layer_norm__var_mean(x, gain, bias):
    variance, mean = torch.var_mean(x, dim=-1, unbiased=False, keepdim=True)
    return torch.addcmul(bias, (x - mean) / (variance + 1e-5).sqrt(), gain)


def layer_norm__mean_given_its_dimension_back(x, gain, bias):
    centred = x - x.sum(-1).unsqueeze(-1) / x.shape[-1]
    deviation = (x.var(-1, unbiased=False) + 1e-5).sqrt()
    return gain * centred / deviation[..., None] + bias


# The MLP --------------------------------------------------------------------------------


def mlp__one_line(x, W_1, b_1, W_2, b_2):
    return torch.relu(x @ W_1.mT + b_1) @ W_2.mT + b_2


def mlp__columns(x, W_1, b_1, W_2, b_2):
    hidden = torch.clamp(W_1 @ x.mT + b_1[:, None], min=0)
    return (W_2 @ hidden + b_2[:, None]).mT


def mlp__einsum(x, W_1, b_1, W_2, b_2):
    hidden = torch.einsum("...d,hd->...h", x, W_1) + b_1
    hidden = hidden * (hidden > 0)
    return torch.einsum("...h,dh->...d", hidden, W_2) + b_2


def mlp__linear_layers(x, W_1, b_1, W_2, b_2):
    hidden = torch.nn.functional.linear(x, W_1, b_1)
    return torch.nn.functional.linear(hidden.relu(), W_2, b_2)


def mlp__hidden_features_one_by_one(x, W_1, b_1, W_2, b_2):
    y = b_2.expand_as(x).clone()
    for h in range(len(b_1)):
        feature = torch.relu((x * W_1[h]).sum(-1) + b_1[h])
        y += feature[..., None] * W_2[:, h]
    return y


def mlp__row_by_row(x, W_1, b_1, W_2, b_2):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        hidden = W_1 @ row + b_1
        hidden[hidden < 0] = 0
        rows.append(W_2 @ hidden + b_2)
    return torch.stack(rows).reshape(x.shape)


# The block ------------------------------------------------------------------------------


def transformer_block__two_branches(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        x = x + attend(norm_1(x))
        x = x + mlp(norm_2(x))
    else:
        x = norm_1(x + attend(x))
        x = norm_2(x + mlp(x))
    return x


def transformer_block__loop_over_steps(x, attend, mlp, norm_1, norm_2, norm):
    for step, normalise in ((attend, norm_1), (mlp, norm_2)):
        x = x + step(normalise(x)) if norm == "pre" else normalise(x + step(x))
    return x


def transformer_block__sum_of_contributions(x, attend, mlp, norm_1, norm_2, norm):
    def nothing(x):
        return x

    pre_1, pre_2 = (norm_1, norm_2) if norm == "pre" else (nothing, nothing)
    post_1, post_2 = (norm_1, norm_2) if norm == "post" else (nothing, nothing)
    found = attend(pre_1(x))
    z = post_1(found + x)
    thought = mlp(pre_2(z))
    return post_2(thought + z)


def transformer_block__half_by_half(x, attend, mlp, norm_1, norm_2, norm):
    def half(x, step, normalise):
        if norm == "pre":
            return x + step(normalise(x))
        return normalise(x + step(x))

    return half(half(x, attend, norm_1), mlp, norm_2)


# Where the normalisation of an unseen block is ------------------------------------------


def which_norm__one_test_after_the_other(layer, x):
    def normalised(y):
        mean, variance = y.mean(-1), y.var(-1, correction=0)
        return torch.allclose(mean, mean * 0, atol=1e-4) and torch.allclose(
            variance, torch.ones_like(variance), atol=1e-3
        )

    y = layer(x)
    if normalised(y):
        return "post"
    if normalised(y - x):
        return "inside"
    if torch.allclose(layer(10 * x), y, atol=1e-3):
        return "overwritten"
    return "pre"


def which_norm__shifted_inputs(layer, x):
    y, moved = layer(x), layer(x + 7)
    spread = ((y**2).mean(-1) - 1).abs().max() + y.mean(-1).abs().max()
    if spread < 0.01:
        return "post"
    if (moved - y).abs().max() < 0.01:  # a normalised x knows nothing of what all its features share
        return "overwritten"
    added = y - x
    if (added.std(-1, correction=0) - 1).abs().max() < 0.01 and added.mean(-1).abs().max() < 0.01:
        return "inside"
    return "pre"


def which_norm__very_large_and_very_small(layer, x):
    huge = 1e4 * x
    if (layer(huge) - huge).norm() < 0.1 * huge.norm():  # the input itself comes through
        added = layer(x) - x
        length = (added**2).sum(-1)
        same = torch.isclose(length, torch.full_like(length, x.shape[-1]), rtol=1e-3).all()
        return "inside" if same and added.sum(-1).abs().max() < 1e-3 else "pre"
    y = layer(x)
    return "post" if torch.allclose((y**2).sum(-1), torch.tensor(float(x.shape[-1])).to(y)) else "overwritten"


# The decoder's block --------------------------------------------------------------------


def decoder_block__with_tril(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


def decoder_block__compared_positions(x, memory, attend, look, mlp, norms):
    norm_1, norm_2, norm_3 = norms
    position = torch.arange(x.size(-2))
    past = position[None, :] <= position[:, None]
    a = norm_1(x)
    z = x + attend(a, key=a, mask=past)
    z = z + look(norm_2(z), key=memory)
    return z + mlp(norm_3(z))


def decoder_block__steps_in_a_list(x, memory, attend, look, mlp, norms):
    length = x.shape[-2]
    mask = ~torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
    steps = [lambda n: attend(n, n, mask), lambda n: look(n, memory), mlp]
    for step, norm in zip(steps, norms, strict=True):
        x = x + step(norm(x))
    return x


def decoder_block__all_of_the_memory_allowed(x, memory, attend, look, mlp, norms):
    length = x.shape[-2]
    past = torch.zeros(length, length, dtype=torch.bool)
    for t in range(length):
        past[t, : t + 1] = True
    x = x + attend(norms[0](x), norms[0](x), past)
    x = x + look(norms[1](x), memory, torch.ones(length, memory.shape[-2], dtype=torch.bool))
    return x + mlp(norms[2](x))


# A stack that sees only the past --------------------------------------------------------


def causal_stack__with_tril(x, blocks, norm):
    mask = torch.tril(torch.ones(x.shape[-2], x.shape[-2])).bool()
    for block in blocks:
        x = block(x, mask)
    return norm(x)


def causal_stack__compared_positions(x, blocks, norm):
    t = torch.arange(x.shape[-2])
    for block in blocks:
        x = block(x, mask=t.unsqueeze(-1) >= t)
    return norm(x)


def causal_stack__recursion(x, blocks, norm):
    if not blocks:
        return norm(x)
    length = x.shape[-2]
    mask = torch.tensor([[k <= q for k in range(length)] for q in range(length)])
    return causal_stack__recursion(blocks[0](x, mask), blocks[1:], norm)


# How many parameters --------------------------------------------------------------------


def stack_parameters__formula(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    D, F = model_dim, hidden_dim
    attention = 4 * D * (D + 1)
    mlp = D * F + F + F * D + D
    norm = 2 * D
    encoder_block = attention + mlp + 2 * norm
    decoder_block = 2 * attention + mlp + 3 * norm
    return num_encoder_blocks * encoder_block + num_decoder_blocks * decoder_block


def stack_parameters__list_of_shapes(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = [(model_dim, model_dim), (model_dim,)] * 4
    mlp = [(model_dim, hidden_dim), (hidden_dim,), (hidden_dim, model_dim), (model_dim,)]
    norm = [(model_dim,), (model_dim,)]
    encoder = attention + norm + mlp + norm
    decoder = attention + norm + attention + norm + mlp + norm
    shapes = num_encoder_blocks * encoder + num_decoder_blocks * decoder
    return sum(torch.empty(shape, device="meta").numel() for shape in shapes)


def stack_parameters__counted_in_pytorch(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    encoder = torch.nn.TransformerEncoderLayer(model_dim, 1, hidden_dim, device="meta")
    decoder = torch.nn.TransformerDecoderLayer(model_dim, 1, hidden_dim, device="meta")

    def count(module):
        return sum(p.numel() for p in module.parameters())

    return num_encoder_blocks * count(encoder) + num_decoder_blocks * count(decoder)


def stack_parameters__counted_in_linear_layers(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    def layer(inputs, outputs):
        return (inputs + 1) * outputs

    attention = 4 * layer(model_dim, model_dim)
    steps = {"attend": attention, "look": attention}
    steps["think"] = layer(model_dim, hidden_dim) + layer(hidden_dim, model_dim)
    total = 0
    for number, names in ((num_encoder_blocks, "attend think"), (num_decoder_blocks, "attend look think")):
        total += number * sum(steps[name] + 2 * model_dim for name in names.split())
    return total


# What is predicted from what ------------------------------------------------------------


def training_passages__views(tokens, length):
    number = (len(tokens) - 1) // length
    inputs = tokens[: number * length].view(number, length)
    targets = tokens[1 : number * length + 1].view(number, length)
    return inputs, targets


def training_passages__loop(tokens, length):
    inputs, targets = [], []
    for start in range(0, len(tokens) - length, length):
        inputs.append(tokens[start : start + length])
        targets.append(tokens[start + 1 : start + length + 1])
    return torch.stack(inputs), torch.stack(targets)


def training_passages__windows(tokens, length):
    both = tokens.unfold(0, length + 1, length)  # (passages, length + 1)
    return [both[:, :-1], both[:, 1:]]


def training_passages__indices(tokens, length):
    starts = torch.arange((tokens.numel() - 1) // length) * length
    places = starts[:, None] + torch.arange(length)
    return tokens[places], tokens[places + 1]


# Writing one letter after the other -----------------------------------------------------


def greedy_decode__while_loop(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length:
        letter = int(next_scores(written)[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


def greedy_decode__tensor(next_scores, start, end, max_length):
    written = torch.tensor([start])
    for _ in range(max_length):
        letter = next_scores(written)[-1].argmax(-1, keepdim=True)
        if letter.item() == end:
            break
        written = torch.cat([written, letter])
    return written[1:]


def greedy_decode__letters_apart_from_the_start(next_scores, start, end, max_length):
    letters = []
    for _ in range(max_length):
        scores = next_scores(torch.tensor([start, *letters]))
        best = max(range(scores.shape[1]), key=lambda letter: scores[-1, letter].item())
        if best == end:
            return letters
        letters.append(best)
    return letters


def greedy_decode__recursion(next_scores, start, end, max_length):
    def after(written):
        letter = next_scores(written)[-1].argmax().item()
        if letter == end or len(written) > max_length:
            return written[1:]
        return after([*written, letter])

    return after([start])


def greedy_decode__cut_at_the_end(next_scores, start, end, max_length):
    written = [start]
    for _ in range(max_length):
        written.append(next_scores(torch.tensor(written)).argmax(-1)[-1].item())
    letters = written[1:]
    return letters[: letters.index(end)] if end in letters else letters


# What a decoder can reach that does not see the source ----------------------------------


def blind_loss__binomial(num_letters, length):
    return math.log(math.comb(num_letters, length)) / (length + 1)


def blind_loss__product(num_letters, length):
    words = 1.0
    for k in range(length):
        words *= (num_letters - k) / (k + 1)
    return -math.log(1 / words) / (length + 1)


def blind_loss__logarithms_of_factorials(num_letters, length):
    def log_factorial(n):
        return sum(math.log(k) for k in range(1, n + 1))

    words = log_factorial(num_letters) - log_factorial(length) - log_factorial(num_letters - length)
    return torch.tensor(words / (length + 1), dtype=torch.float64)


def blind_loss__position_by_position(num_letters, length):
    """From position to position: how likely is each letter, and what does it cost?"""
    reached = {0: 1.0}  # the last letter written, and how likely it is
    loss = 0.0
    for left in range(length, 0, -1):
        following = {}
        for last, chance in reached.items():
            ways = math.comb(num_letters - last, left)
            for letter in range(last + 1, num_letters - left + 2):
                p = math.comb(num_letters - letter, left - 1) / ways
                loss -= chance * p * math.log(p)
                following[letter] = following.get(letter, 0) + chance * p
        reached = following
    return loss / (length + 1)


# What went wrong in a training ----------------------------------------------------------


def which_run__thresholds(losses, words_right, num_letters, length):
    blind = math.log(math.comb(num_letters, length)) / (length + 1)
    fifth = len(losses) // 5
    last, before = losses[-fifth:].mean(), losses[-2 * fifth : -fifth].mean()
    if words_right > 0.5:
        return "works"
    if last < blind / 10:
        return "leak"
    if before - last > 0.1 * before:
        return "unfinished"
    return "blind" if abs(last - blind) < 0.12 * blind else "stuck"


def which_run__falling_first(losses, words_right, num_letters, length):
    blind = math.log(math.comb(num_letters, length)) / (length + 1)
    last, before = (part.mean() for part in losses.view(5, -1)[[4, 3]])
    if last / before < 0.88 and last > 0.1 * blind and words_right < 0.5:
        return "unfinished"
    if words_right >= 0.5:
        return "works"
    distances = {"leak": abs(last), "blind": abs(last - blind), "stuck": abs(last - 1.5 * blind)}
    return min(distances, key=distances.get)


def which_run__lists(losses, words_right, num_letters, length):
    values = losses.tolist()
    words = math.factorial(num_letters) / math.factorial(length) / math.factorial(num_letters - length)
    tenth = len(values) // 5
    late = sum(values[-tenth:]) / tenth
    earlier = sum(values[-2 * tenth : -tenth]) / tenth
    share = late * (length + 1) / math.log(words)
    match words_right > 0.5, share < 0.2, late < 0.85 * earlier, share < 1.2:
        case True, _, _, _:
            return "works"
        case _, True, _, _:
            return "leak"
        case _, _, True, _:
            return "unfinished"
        case _, _, _, True:
            return "blind"
    return "stuck"
