"""Small batches written as text: one string a row, one letter a token.

``p`` prompt, ``o`` observation, digits: action tokens of that turn. An observation belongs to the
turn before it. Every row begins with a prompt token, so that V(s) exists.
"""

import torch

from hexad.credit.clock import Tokens, clock
from hexad.credit.rewards import Owner, Rewards


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def ints(values):
    return torch.tensor(values, dtype=torch.int64)


def tokens(rows, endings="t", owners=None, **fields):
    """``endings``: per episode ``t`` terminated, ``c`` cut (truncated), ``-`` neither."""
    owners = owners if owners is not None else list(range(len(rows)))
    turn, now = [], 0
    for row in rows:
        for letter in row:
            now = int(letter) if letter.isdigit() else now
            turn.append(now)
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return Tokens(
        action=torch.tensor([x.isdigit() for row in rows for x in row]),
        turn=ints(turn),
        offsets=ints(offsets),
        row_episode=ints(owners),
        terminated=torch.tensor([e == "t" for e in endings]),
        truncated=torch.tensor([e == "c" for e in endings]),
        **fields,
    )


def rewards(*items):
    """Items ``(value, episode, owner, index)``; the last two may be left out: at the end."""
    full = [(*item, Owner.END, -1)[:4] if len(item) == 2 else item for item in items]
    return Rewards(
        tensor([i[0] for i in full]),
        ints([i[1] for i in full]),
        ints([i[2] for i in full]),
        ints([i[3] for i in full]),
    )


def at(position, value, episode=0):
    return (value, episode, Owner.TOKEN, position)


def ticking(rows, endings="t", *items, kind="token", owners=None, used=None, **fields):
    """The clock of rows, endings and reward items."""
    facts = tokens(rows, endings, owners, **fields)
    return clock(facts, rewards(*items), kind=kind, used=used)
