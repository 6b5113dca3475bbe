"""Nets that tools/record_changes.py trains: what makes each of its sizes, and what it is changed in.

It needs torch, transformers and torchvision; weights and inputs are random.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
import transformers
from torch import Tensor, nn

from tools.plain_nets import Recommender, Recurrent

DEVICE: Final = torch.device("cuda" if torch.cuda.is_available() else "cpu")

Sizes = Mapping[str, int]
"""By the names of `lumos-df estimate --set`."""


@dataclass(frozen=True)
class Net:
    """A net that is trained, and what it is changed in."""

    make: Callable[[Sizes, str], nn.Module]
    """What makes it of its sizes and an attention's name (`sdpa`, `eager`)."""
    given: Callable[[Sizes], Tensor]
    """Random inputs."""
    loss: Callable[[nn.Module, Tensor], Tensor]
    """A forward pass with its loss."""
    sizes: dict[str, int]
    """Those of the run from which others differ in one thing."""
    dtype: str
    """`bf16` or `fp32` throughout, or `autocast`."""
    changes: tuple[str, ...]
    """Each of them a run, as `--set` has it."""


def _tokens(sizes: Sizes) -> Tensor:
    return torch.randint(sizes["vocab"], (sizes["micro_batch"], sizes["seq"]), device=DEVICE)


def _images(sizes: Sizes) -> Tensor:
    images = torch.randn(sizes["micro_batch"], 3, 224, 224, device=DEVICE)
    return images.contiguous(memory_format=torch.channels_last)


def _clicks(sizes: Sizes) -> Tensor:
    rows = torch.randint(1000, (sizes["micro_batch"], 26), device=DEVICE)
    return torch.cat((torch.rand(sizes["micro_batch"], 13, device=DEVICE), rows), 1)


def _causal_loss(net: nn.Module, ids: Tensor) -> Tensor:
    loss: Tensor = net(input_ids=ids, labels=ids, use_cache=False).loss
    return loss


def _labelled_loss(net: nn.Module, ids: Tensor) -> Tensor:
    loss: Tensor = net(input_ids=ids, labels=ids).loss
    return loss


def _token_loss(net: nn.Module, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())


def _class_loss(net: nn.Module, given: Tensor) -> Tensor:
    logits = net(given)
    return nn.functional.cross_entropy(logits.float(), torch.zeros(len(logits), dtype=torch.int64, device=DEVICE))


def _llama(sizes: Sizes, attention: str) -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=sizes["vocab"],
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["ffn"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
        max_position_embeddings=8192,
        attn_implementation=attention,
    )
    return transformers.LlamaForCausalLM(config)


def _qwen_moe(sizes: Sizes, attention: str) -> nn.Module:
    config = transformers.Qwen3MoeConfig(
        vocab_size=sizes["vocab"],
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["ffn"],
        moe_intermediate_size=sizes["ffn"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
        head_dim=64,
        num_experts=sizes["experts"],
        num_experts_per_tok=sizes["top_k"],
        attn_implementation=attention,
    )
    return transformers.Qwen3MoeForCausalLM(config)


def _gpt2(sizes: Sizes, attention: str) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=sizes["vocab"],
        n_embd=sizes["hidden"],
        n_layer=sizes["layers"],
        n_head=sizes["heads"],
        n_positions=sizes["seq"],
        attn_implementation=attention,
    )
    return transformers.GPT2LMHeadModel(config)


def _bert(sizes: Sizes, attention: str) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=sizes["vocab"],
        hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["ffn"],
        max_position_embeddings=1024,
        attn_implementation=attention,
    )
    return transformers.BertForMaskedLM(config)


def _t5(sizes: Sizes, _: str) -> nn.Module:
    config = transformers.T5Config(
        vocab_size=sizes["vocab"],
        d_model=sizes["hidden"],
        d_ff=sizes["ffn"],
        num_layers=sizes["layers"],
        num_decoder_layers=sizes["layers"],
        num_heads=sizes["heads"],
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config)


def _vit(sizes: Sizes, _: str) -> nn.Module:
    from torchvision.models import VisionTransformer  # noqa: PLC0415 - slow to import, and for some nets only

    net: nn.Module = VisionTransformer(224, 16, sizes["layers"], sizes["heads"], sizes["hidden"], sizes["ffn"])
    return net


def _resnet(_: Sizes, __: str) -> nn.Module:
    from torchvision.models import resnet50  # noqa: PLC0415 - as above

    net: nn.Module = resnet50()
    return net.to(memory_format=torch.channels_last)


def _swin(_: Sizes, __: str) -> nn.Module:
    from torchvision.models import swin_t  # noqa: PLC0415 - as above

    net: nn.Module = swin_t()
    return net


NETS: Final = {
    "llama": Net(
        _llama,
        _tokens,
        _causal_loss,
        {
            "layers": 4,
            "hidden": 2048,
            "heads": 16,
            "kv_heads": 8,
            "ffn": 5632,
            "vocab": 32000,
            "micro_batch": 4,
            "seq": 2048,
        },
        "bf16",
        (
            "micro_batch=8",
            "micro_batch=2",
            "seq=4096",
            "seq=1024",
            "layers=8",
            "layers=2",
            "ffn=11264",
            "hidden=4096 heads=32 kv_heads=16",
            "kv_heads=4",
            "vocab=64000",
            "gradient_accumulation=2",
            "recompute=full",
            "dtype=fp32",
            "dtype=autocast",
            "micro_batch=1 gradient_accumulation=4",
            "layers=8 micro_batch=8 seq=1024",
        ),
    ),
    "gpt2": Net(
        _gpt2,
        _tokens,
        _causal_loss,
        {"layers": 6, "hidden": 768, "heads": 12, "vocab": 50304, "micro_batch": 4, "seq": 512},
        "autocast",
        (
            "micro_batch=16",
            "micro_batch=2",
            "seq=1024",
            "layers=12",
            "hidden=1536 heads=24",
            "recompute=full",
            "vocab=50257",
            "micro_batch=1 gradient_accumulation=4",
        ),
    ),
    "bert": Net(
        _bert,
        _tokens,
        _labelled_loss,
        {"layers": 6, "hidden": 768, "heads": 12, "ffn": 3072, "vocab": 30522, "micro_batch": 32, "seq": 256},
        "fp32",
        ("micro_batch=64", "micro_batch=8", "seq=512", "layers=12", "hidden=1024 heads=16 ffn=4096", "dtype=bf16"),
    ),
    "moe": Net(
        _qwen_moe,
        _tokens,
        _causal_loss,
        {
            "layers": 4,
            "hidden": 1024,
            "heads": 16,
            "kv_heads": 4,
            "ffn": 768,
            "vocab": 32000,
            "experts": 16,
            "top_k": 2,
            "micro_batch": 4,
            "seq": 1024,
        },
        "bf16",
        (
            "micro_batch=8",
            "seq=2048",
            "layers=8",
            "experts=32",
            "top_k=4",
            "ffn=1536",
            "hidden=2048 heads=32 kv_heads=8",
        ),
    ),
    "t5": Net(
        _t5,
        _tokens,
        _labelled_loss,
        {"layers": 4, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 32128, "micro_batch": 16, "seq": 256},
        "bf16",
        ("micro_batch=64", "seq=512", "layers=8", "ffn=4096"),
    ),
    "vit": Net(
        _vit,
        _images,
        _class_loss,
        {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072, "micro_batch": 64},
        "bf16",
        ("micro_batch=128", "micro_batch=16", "layers=6", "hidden=1024 heads=16 ffn=4096", "dtype=fp32"),
    ),
    "resnet50": Net(
        _resnet,
        _images,
        _class_loss,
        {"micro_batch": 64},
        "autocast",
        ("micro_batch=128", "micro_batch=32", "micro_batch=256"),
    ),
    "swin": Net(_swin, _images, _class_loss, {"micro_batch": 32}, "autocast", ("micro_batch=64", "micro_batch=128")),
    "lstm": Net(
        lambda sizes, _: Recurrent(sizes["layers"], sizes["hidden"], 0),
        _tokens,
        _token_loss,
        {"layers": 2, "hidden": 512, "vocab": 2000, "micro_batch": 32, "seq": 64},
        "fp32",
        ("micro_batch=128", "layers=4", "hidden=1024", "seq=128"),
    ),
    "dlrm": Net(
        lambda sizes, _: Recommender(sizes["layers"], sizes["hidden"], 26),
        _clicks,
        _class_loss,
        {"layers": 4, "hidden": 1024, "micro_batch": 2048},
        "fp32",
        ("micro_batch=8192", "layers=8", "hidden=2048"),
    ),
}
"""Nets as their libraries have them, weights at random; none of them in `../shared`."""
