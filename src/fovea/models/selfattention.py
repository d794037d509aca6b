"""Self-attention over the cells of a map, asked by the states of an LSTM (the thesis' chapter 7, Eq. 7.1).

The map's channels are split into keys and values, c = c_k + c_v, and both get c_s numbers that tell the cell's place.
A state becomes a query of c_k + c_s numbers; the answer is the values' mean, weighed by softmax(Q . K / sqrt(n)).
The thesis says that the places are "added"; the dimensions that it gives are those of putting them beside the channels.
"""

import math

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice


class SelfAttention(nn.Module):
    """`keys`: how many of the channels are keys; a sixteenth unless given."""

    def __init__(self, channels: int, hidden: int, keys: int | None = None, places: int = 64, width: int = 512) -> None:
        super().__init__()
        keys = max(channels // 16, 1) if keys is None else keys
        if not 0 < keys < channels:
            raise BadChoice(f"keys are some of the map's {channels} channels, 1 to {channels - 1}; got {keys}")
        if places < 0 or places % 4:
            raise BadChoice(f"places is a multiple of 4 (sines and cosines of x and of y); got {places}")
        self.keys, self.places, self.width = keys, places, width
        self.query = nn.Sequential(
            nn.Linear(hidden, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, keys + places)
        )
        self.answer = nn.Sequential(nn.Linear(channels - keys + places, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, features: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """M,C,h,w and M,T,D to answers M,T,width and attention maps M,T,h,w, each of which sums to 1."""
        grid = features.shape[2:]
        where = basis(grid[0], grid[1], self.places).to(features).expand(len(features), -1, -1, -1)
        keys, values = features[:, : self.keys], features[:, self.keys :]
        keys, values = (torch.cat([one, where], 1).flatten(2) for one in (keys, values))  # M,c+c_s,P
        scores = self.query(states) @ keys / math.sqrt(keys.shape[1])  # M,T,P, Eq. 7.1
        share = scores.float().softmax(2)
        found = share.to(values.dtype) @ values.transpose(1, 2)  # M,T,c_v+c_s
        return self.answer(found), share.view(*share.shape[:2], *grid)


def basis(height: int, width: int, size: int) -> Tensor:
    """The place of every cell as waves of growing frequency along y and along x: size,height,width."""
    count = size // 4
    found = []
    for axis, length in ((0, height), (1, width)):
        along = (torch.arange(length) + 0.5) / length * math.pi  # half a wave at the lowest frequency
        waves = along.unsqueeze(0) * torch.arange(1, count + 1).unsqueeze(1)  # count,length
        both = torch.cat([waves.sin(), waves.cos()])  # 2*count,length
        found.append(both.unsqueeze(2 - axis).expand(-1, height, width))
    return torch.cat(found)
