"""Train a net of tools/plain_nets.py, for `lumos-df capture`: `python -m tools.train_plain mixer 4 192 10 49`.

On a GPU where there is one. `ddp` is a GPT on the ranks of torchrun, over NCCL or gloo. It needs torch.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

from tools.plain_nets import NETS


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("size", type=int, nargs=4, help="layers, width, batch, and tokens, patches or pixels of a side")
    parser.add_argument("--steps", type=int, default=25)
    options = parser.parse_args()
    layers, width, batch, tokens = options.size
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    make, given, _ = NETS[options.net]
    torch.manual_seed(0)
    net, inputs = make(layers, width, tokens).to(device), given((layers, width, batch, tokens)).to(device)
    if options.net == "ddp":
        dist.init_process_group("nccl" if gpu else "gloo")
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    targets = torch.zeros(net(inputs).shape[:-1], dtype=torch.int64, device=device)
    for _ in range(options.steps):
        logits = net(inputs)
        nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
