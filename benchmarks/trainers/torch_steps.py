"""The same model as `torch.nn.Transformer`, with the training loop that one writes for it."""

import contextlib
import warnings

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainers.task import PAD_ID, Sizes, read_task
from trainers.trainer import Trainer

HIDDEN = -1e9  # -inf would make a row of only padding NaN


class Engine(Trainer):
    """A model and its optimizer.

    Args:
        threads: number of threads.
        path: folder of a task.
        compiler: "eager", or "compiled" for kernels of any shape.
    """

    def __init__(self, threads: int, path: str, compiler: str):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        task = read_task(path)
        self.version = f"PyTorch {torch.__version__}"
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.product_size = 8192 if self.device.type == "cuda" else 2048
        self.dtype = torch.bfloat16 if task.dtype == "bfloat16" else torch.float32
        self.label_smoothing, self.clip_norm = task.label_smoothing, task.clip_norm
        self.batches = [[torch.from_numpy(ids).long() for ids in batch] for batch in task.batches]
        if self.device.type == "cuda":
            self.version += f" on {torch.cuda.get_device_name()}"
            # As TensorFlow and JAX have it from the start.
            torch.set_float32_matmul_precision("high")
            self.batches = [[ids.pin_memory() for ids in batch] for batch in self.batches]
        self.model = Seq2Seq(task.sizes, task.dropout, task.max_length).to(self.device).train()
        self.parameters = sum(weight.numel() for weight in self.model.parameters())
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), task.learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self.loss = self._loss
        if compiler != "eager":
            torch._dynamo.config.recompile_limit = 64  # one for each shape, if need be
            self.loss = torch.compile(self._loss, dynamic=True)

    def train(self, count) -> float:
        """Take a step on each of the first `count` batches."""
        total, batches = torch.zeros((), device=self.device), self.batches[:count]
        for batch in batches:
            total += self._step(*(ids.to(self.device, non_blocking=True) for ids in batch))
        self._wait()
        return total.item() / len(batches)

    def multiply(self, size: int, count: int) -> None:
        """Multiply by `torch.matmul`."""
        a = torch.ones((size, size), dtype=self.dtype, device=self.device)
        for _ in range(count):
            a @ a
        self._wait()

    def device_megabytes(self):
        """Return the accelerator's peak memory."""
        return torch.cuda.max_memory_allocated() / 2**20 if self.device.type == "cuda" else None

    def _step(self, source, target, labels):
        with self._precision():
            loss = self.loss(source, target, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm, foreach=True)
        self.optimizer.step()
        return loss.detach()

    def _loss(self, source, target, labels):
        logits = self.model(source, target).flatten(0, 1).float()
        return functional.cross_entropy(
            logits, labels.flatten(), ignore_index=PAD_ID, label_smoothing=self.label_smoothing
        )

    def _precision(self):
        mixed = self.dtype == torch.bfloat16
        return (
            torch.autocast(self.device.type, torch.bfloat16) if mixed else contextlib.nullcontext()
        )

    def _wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


class Seq2Seq(nn.Module):
    """`nn.Transformer` between one embedding of source, target and output.

    Attention has no biases, and dropout is applied only to embeddings and residual connections, as
    in this project's model: without dropout on its weights, attention runs in PyTorch's fused
    kernel.
    """

    def __init__(self, sizes: Sizes, dropout: float, max_length: int):
        super().__init__()
        s = sizes
        self.table = nn.Embedding(s.vocab_size, s.model_dim)
        nn.init.normal_(self.table.weight, std=s.model_dim**-0.5)
        self.register_buffer(
            "positions", torch.from_numpy(_sinusoids(max_length, s.model_dim)), persistent=False
        )
        self.dropout = nn.Dropout(dropout)
        layers = (s.encoder_layers, s.decoder_layers)
        options = {"layer_norm_eps": 1e-6, "batch_first": True, "norm_first": True}
        with warnings.catch_warnings():
            # It speaks of inference.
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.transformer = nn.Transformer(
                s.model_dim, s.num_heads, *layers, s.ff_dim, dropout, **options
            )
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout, module.in_proj_bias, module.out_proj.bias = 0.0, None, None
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0  # inside the feed-forward block

    def forward(self, source, target):
        """Map ids (B, S) and (B, T) to logits (B, T, vocab_size)."""
        padding = (source == PAD_ID).to(self.positions.dtype) * HIDDEN  # (B, S)
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.shape[1], device=target.device
        )
        decoded = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return functional.linear(decoded, self.table.weight)

    def _embed(self, ids):
        embedded = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(embedded + self.positions[: ids.shape[1]])


def _sinusoids(length: int, model_dim: int):
    """Return float32 (length, D), sines and cosines side by side."""
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, model_dim, 2) / model_dim)
    return (
        np.stack([np.sin(angles), np.cos(angles)], axis=2)
        .reshape(length, model_dim)
        .astype("float32")
    )
