"""Right answers to the tasks of ``vision``, each written in another way."""

import math

import torch

# Patches --------------------------------------------------------------------------------


def patchify__reshape_and_permute(images, patch_size):
    *batch, channels, height, width = images.shape
    rows, columns = height // patch_size, width // patch_size
    x = images.reshape(-1, channels, rows, patch_size, columns, patch_size)
    x = x.permute(0, 2, 4, 1, 3, 5)
    return x.reshape(*batch, rows * columns, channels * patch_size**2)


def patchify__loops(images, patch_size):
    patches = []
    for top in range(0, images.shape[-2], patch_size):
        for left in range(0, images.shape[-1], patch_size):
            patch = images[..., top : top + patch_size, left : left + patch_size]
            patches.append(patch.flatten(-3))
    return torch.stack(patches, dim=-2)


def patchify__unfold_of_the_tensor(images, patch_size):
    squares = images.unfold(-2, patch_size, patch_size).unfold(-2, patch_size, patch_size)
    # (..., channels, rows, columns, P, P)
    squares = squares.movedim(-5, -3)
    return squares.flatten(-3).flatten(-3, -2)


def patchify__unfold_of_nn(images, patch_size):
    four = images.reshape(-1, *images.shape[-3:])
    columns = torch.nn.functional.unfold(four, patch_size, stride=patch_size)
    return columns.mT.reshape(*images.shape[:-3], columns.shape[2], columns.shape[1])


def patchify__split(images, patch_size):
    rows = images.split(patch_size, dim=-2)
    patches = [patch for row in rows for patch in row.split(patch_size, dim=-1)]
    return torch.stack([patch.reshape(*patch.shape[:-3], -1) for patch in patches], dim=len(images.shape) - 3)


# And back -------------------------------------------------------------------------------


def unpatchify__reshape_and_permute(patches, patch_size, height, width):
    *batch, _, features = patches.shape
    channels = features // patch_size**2
    x = patches.reshape(-1, height // patch_size, width // patch_size, channels, patch_size, patch_size)
    x = x.permute(0, 3, 1, 4, 2, 5)
    return x.reshape(*batch, channels, height, width)


def unpatchify__patch_by_patch(patches, patch_size, height, width):
    channels = patches.shape[-1] // patch_size**2
    picture = torch.zeros(*patches.shape[:-2], channels, height, width, dtype=patches.dtype)
    columns = width // patch_size
    for number in range(patches.shape[-2]):
        top, left = number // columns * patch_size, number % columns * patch_size
        square = patches[..., number, :].reshape(*patches.shape[:-2], channels, patch_size, patch_size)
        picture[..., top : top + patch_size, left : left + patch_size] = square
    return picture


def unpatchify__rows_of_patches_joined(patches, patch_size, height, width):
    squares = patches.unflatten(-1, (-1, patch_size, patch_size))
    columns = width // patch_size
    listed = squares.unbind(-4)
    rows = [torch.cat(listed[first : first + columns], -1) for first in range(0, len(listed), columns)]
    return torch.cat(rows, -2)


def unpatchify__fold_of_nn(patches, patch_size, height, width):
    three = patches.reshape(-1, *patches.shape[-2:]).mT
    picture = torch.nn.functional.fold(three, (height, width), patch_size, stride=patch_size)
    return picture.reshape(*patches.shape[:-2], *picture.shape[1:])


# Pictures that show a slip --------------------------------------------------------------


def showing_picture__a_list_of_shapes(cut, seen):
    generator = torch.Generator().manual_seed(1)
    for channels, height, width, size in [
        (1, 4, 6, 2),
        (1, 6, 4, 2),
        (3, 4, 6, 2),
        (1, 9, 6, 3),
        (2, 6, 9, 3),
    ]:
        picture = 100 * torch.randn(channels, height, width, generator=generator)
        right = picture.reshape(channels, height // size, size, width // size, size)
        right = right.permute(1, 3, 0, 2, 4).reshape(-1, channels * size * size)
        found = cut(picture, size)
        if found.shape != right.shape or not torch.equal(found, right):
            return picture, size


def showing_picture__by_chance(cut, seen):
    generator = torch.Generator().manual_seed(2)

    def draw(most):
        return int(torch.randint(1, most + 1, (), generator=generator))

    while True:
        size = draw(3)
        channels, rows, columns = draw(3), draw(3), draw(3)
        picture = torch.randn(channels, rows * size, columns * size, generator=generator).double()
        for number, patch in enumerate(cut(picture, size)):
            top, left = number // columns * size, number % columns * size
            right = picture[:, top : top + size, left : left + size].flatten()
            if (patch - right).abs().max() > 0.1:
                return [picture, size]


def showing_picture__counting_with_signs(cut, seen):
    for size in (1, 2, 3):
        for channels in (1, 2, 3):
            for rows, columns in ((2, 3), (3, 2)):
                height, width = rows * size, columns * size
                picture = torch.arange(channels * height * width).reshape(channels, height, width) - 7.5
                right = torch.nn.functional.unfold(picture[None], size, stride=size)[0].T
                if (cut(picture, size) != right).any():
                    return picture, size


# Positions on a grid --------------------------------------------------------------------


def grid_encoding__two_loops(row_encoding, column_encoding):
    return torch.stack([torch.cat([row, column]) for row in row_encoding for column in column_encoding])


def grid_encoding__repeat(row_encoding, column_encoding):
    rows, columns = len(row_encoding), len(column_encoding)
    first = row_encoding.repeat_interleave(columns, dim=0)
    return torch.cat([first, column_encoding.repeat(rows, 1)], dim=1)


def grid_encoding__expanded(row_encoding, column_encoding):
    rows, columns = len(row_encoding), len(column_encoding)
    first = row_encoding[:, None].expand(rows, columns, -1)
    second = column_encoding[None].expand(rows, columns, -1)
    return torch.cat([first, second], dim=-1).reshape(rows * columns, -1)


def grid_encoding__divided(row_encoding, column_encoding):
    columns = len(column_encoding)
    t = torch.arange(len(row_encoding) * columns)
    return torch.hstack([row_encoding[t // columns], column_encoding[t % columns]])


# Tokens ---------------------------------------------------------------------------------


def embed_patches__cat(patches, W, b, class_token, encoding):
    tokens = patches @ W + b + encoding
    front = class_token.expand(*patches.shape[:-2], 1, len(class_token))
    return torch.cat([front, tokens], dim=-2)


def embed_patches__filled(patches, W, b, class_token, encoding):
    *batch, num, _ = patches.shape
    tokens = torch.empty(*batch, 1 + num, len(b), dtype=patches.dtype)
    tokens[..., 0, :] = class_token
    tokens[..., 1:, :] = torch.einsum("...np,pd->...nd", patches, W) + (b + encoding)
    return tokens


def embed_patches__linear(patches, W, b, class_token, encoding):
    tokens = torch.nn.functional.linear(patches, W.T, b)
    tokens = tokens + encoding
    front = torch.zeros_like(tokens[..., :1, :]) + class_token
    return torch.cat((front, tokens), -2)


def embed_patches__padded(patches, W, b, class_token, encoding):
    tokens = torch.nn.functional.pad(patches @ W + b, (0, 0, 1, 0))
    tokens[..., 0, :] = 0
    return tokens + torch.cat([class_token[None], encoding])


# Rollout --------------------------------------------------------------------------------


def rollout_map__matrices(weights, rows, columns):
    rolled = torch.eye(weights.shape[-1], dtype=weights.dtype)
    for block in weights:
        mixed = 0.5 * torch.eye(len(rolled), dtype=weights.dtype) + 0.5 * block.mean(dim=0)
        rolled = mixed @ rolled
    return rolled[0, 1:].reshape(rows, columns)


def rollout_map__a_row_from_the_last_block_down(weights, rows, columns):
    row = torch.zeros(weights.shape[-1], dtype=weights.dtype)
    row[0] = 1
    for block in weights.flip(0):
        row = (row + row @ block.mean(0)) / 2
    return row[1:].view(rows, columns)


def rollout_map__multi_dot(weights, rows, columns):
    mixed = (weights.mean(1) + torch.eye(weights.shape[-1], dtype=weights.dtype)) / 2
    steps = list(mixed)[::-1]
    rolled = torch.linalg.multi_dot(steps) if len(steps) > 1 else steps[0]
    return rolled[0][1:].unflatten(0, (rows, columns))


def rollout_map__loops(weights, rows, columns):
    share = {0: 1.0}
    for block in reversed(weights.mean(1).tolist()):
        new = {}
        for token, part in share.items():
            new[token] = new.get(token, 0) + part / 2
            for other, weight in enumerate(block[token]):
                new[other] = new.get(other, 0) + part * weight / 2
        share = new
    found = torch.tensor([share.get(1 + patch, 0.0) for patch in range(rows * columns)], dtype=weights.dtype)
    return found.view(rows, columns)


# Pictures that are one and the same -----------------------------------------------------


def same_bag__listed(patches):
    listed = patches.tolist()
    number = math.factorial(len(listed))
    for place, patch in enumerate(listed):
        if patch not in listed[:place]:
            number //= math.factorial(listed.count(patch))
    return number


def same_bag__places_are_chosen(patches):
    _, counts = patches.unique(dim=0, return_counts=True)
    number, left = 1, len(patches)
    for count in counts.tolist():
        number *= math.comb(left, count)
        left -= count
    return number


def same_bag__one_after_the_other(patches):
    seen, number = {}, 1
    for place, patch in enumerate(patches, 1):
        key = str(patch.tolist())
        seen[key] = seen.get(key, 0) + 1
        number = number * place // seen[key]
    return number


# What a model does with the order -------------------------------------------------------


def explain_orders__in_order(kept, mixed, labels):
    if (kept - mixed).abs().max() < 1e-4:
        return "blind"
    first = (kept.argmax(dim=1) == labels).float().mean()
    second = (mixed.argmax(dim=1) == labels).float().mean()
    if first < 0.2 and second < 0.2:
        return "guesses"
    if first - second >= 0.2:
        return "needs the order"
    return "wants another" if second - first >= 0.2 else "copes"


def explain_orders__counted(kept, mixed, labels):
    num = len(labels)
    if torch.allclose(kept, mixed, rtol=0, atol=9.99e-5):
        return "blind"
    counts = [
        sum(int(row.argmax()) == int(label) for row, label in zip(x, labels, strict=True))
        for x in (kept, mixed)
    ]
    if max(counts) * 5 < num:
        return "guesses"
    if (counts[0] - counts[1]) * 5 >= num:
        return "needs the order"
    if (counts[1] - counts[0]) * 5 >= num:
        return "wants another"
    return "copes"


def explain_orders__by_the_largest(kept, mixed, labels):
    best = [x.max(dim=1).indices for x in (kept, mixed)]
    right = [(one == labels).double().mean().item() for one in best]
    differs = ((kept - mixed).abs() >= 1e-4).any()
    if not differs:
        return "blind"
    if max(right) < 0.2:
        return "guesses"
    difference = right[0] - right[1]
    if abs(difference) < 0.2:
        return "copes"
    return "needs the order" if difference > 0 else "wants another"
