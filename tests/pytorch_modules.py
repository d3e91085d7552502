"""Modules of PyTorch in the layouts that people copied, written from their formulas."""

import math

import torch
from torch import nn

S_VOCAB, T_VOCAB, D, H, F, LAYERS, ROWS = 23, 19, 24, 3, 29, (2, 1), 31


def paper_sinusoids(rows=ROWS):
    """Sines in the even and cosines in the odd columns."""
    angles = torch.arange(rows)[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
    return torch.stack([angles.sin(), angles.cos()], 2).reshape(rows, D)


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


class Holder(nn.Module):
    """A module with named parts."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class TorchModel(nn.Module):
    """`nn.Transformer` between scaled embeddings and a projection."""

    def __init__(self, names=("src_tok_emb", "tgt_tok_emb", "generator"), **options):
        super().__init__()
        self.transformer = nn.Transformer(
            D, H, *LAYERS, F, dropout=0.0, batch_first=True, **options
        )
        self.names = names
        setattr(self, names[0], Holder(embedding=nn.Embedding(S_VOCAB, D)))
        setattr(self, names[1], Holder(embedding=nn.Embedding(T_VOCAB, D)))
        setattr(self, names[2], nn.Linear(D, T_VOCAB))
        self.positional_encoding = nn.Module()
        self.positional_encoding.register_buffer("pos_embedding", paper_sinusoids()[:, None])

    def forward(self, source, target):
        table = self.positional_encoding.pos_embedding[:, 0]
        embeddings, out = self.names[:2], getattr(self, self.names[2])
        embedded = [
            getattr(self, name).embedding(ids) * math.sqrt(D) + table[: ids.shape[1]]
            for name, ids in zip(embeddings, (source, target), strict=True)
        ]
        mask = ~causal(target.shape[1])
        return out(self.transformer(*embedded, tgt_mask=mask))


class Attention(nn.Module):
    """Scaled dot products of the projections with these names."""

    def __init__(self, query, key, value, output):
        super().__init__()
        self.roles = (query, key, value, output)
        for name in self.roles:
            self.add_module(name, nn.Linear(D, D))

    def forward(self, queries, keys, mask=None):
        project = [getattr(self, name) for name in self.roles]
        q, k, v = (
            layer(x).unflatten(-1, (H, D // H)).transpose(1, 2)
            for layer, x in zip(project, (queries, keys, keys), strict=False)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(D // H)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        return project[3]((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TutorialLayer(nn.Module):
    """A post-norm layer with the names of bentrevett/pytorch-seq2seq."""

    def __init__(self, is_decoder):
        super().__init__()
        names = ("fc_q", "fc_k", "fc_v", "fc_o")
        self.self_attention = Attention(*names)
        self.self_attn_layer_norm = nn.LayerNorm(D)
        if is_decoder:
            self.encoder_attention = Attention(*names)
            self.enc_attn_layer_norm = nn.LayerNorm(D)
        self.positionwise_feedforward = Holder(fc_1=nn.Linear(D, F), fc_2=nn.Linear(F, D))
        self.ff_layer_norm = nn.LayerNorm(D)

    def forward(self, x, memory=None):
        mask = None if memory is None else causal(x.shape[1])
        x = self.self_attn_layer_norm(x + self.self_attention(x, x, mask))
        if memory is not None:
            x = self.enc_attn_layer_norm(x + self.encoder_attention(x, memory))
        block = self.positionwise_feedforward
        return self.ff_layer_norm(x + block.fc_2(block.fc_1(x).relu()))


class TutorialModel(nn.Module):
    """Learned positions, scaled embeddings, post-norm layers without a final norm."""

    def __init__(self):
        super().__init__()
        for name, vocabulary, count in (
            ("encoder", S_VOCAB, LAYERS[0]),
            ("decoder", T_VOCAB, LAYERS[1]),
        ):
            layers = nn.ModuleList(TutorialLayer(name == "decoder") for _ in range(count))
            stack = Holder(
                tok_embedding=nn.Embedding(vocabulary, D),
                pos_embedding=nn.Embedding(ROWS, D),
                layers=layers,
            )
            setattr(self, name, stack)
        self.decoder.fc_out = nn.Linear(D, T_VOCAB)

    def forward(self, source, target):
        x = self._embedded(self.encoder, source)
        for layer in self.encoder.layers:
            x = layer(x)
        y = self._embedded(self.decoder, target)
        for layer in self.decoder.layers:
            y = layer(y, x)
        return self.decoder.fc_out(y)

    def _embedded(self, stack, ids):
        positions = torch.arange(ids.shape[1])
        return stack.tok_embedding(ids) * math.sqrt(D) + stack.pos_embedding(positions)


class SampleNorm(nn.Module):
    """a (x - mean) / (std + epsilon) + b, with the standard deviation of a sample."""

    def __init__(self):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(D))
        self.b_2 = nn.Parameter(torch.zeros(D))

    def forward(self, x):
        centered = x - x.mean(-1, keepdim=True)
        return self.a_2 * centered / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class NumberedAttention(nn.Module):
    """`Attention` whose projections are in a list."""

    def __init__(self):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(D, D) for _ in range(4))

    forward = Attention.forward

    @property
    def roles(self):
        return ["0", "1", "2", "3"]

    def __getattr__(self, name):
        if name.isdigit():
            return self.linears[int(name)]
        return super().__getattr__(name)


class AnnotatedLayer(nn.Module):
    """A pre-norm layer with the names of "The Annotated Transformer"."""

    def __init__(self, is_decoder):
        super().__init__()
        self.self_attn = NumberedAttention()
        if is_decoder:
            self.src_attn = NumberedAttention()
        self.feed_forward = Holder(w_1=nn.Linear(D, F), w_2=nn.Linear(F, D))
        count = 3 if is_decoder else 2
        self.sublayer = nn.ModuleList(Holder(norm=SampleNorm()) for _ in range(count))

    def forward(self, x, memory=None):
        norms = [part.norm for part in self.sublayer]
        mask = None if memory is None else causal(x.shape[1])
        normed = norms[0](x)
        x = x + self.self_attn(normed, normed, mask)
        if memory is not None:
            x = x + self.src_attn(norms[1](x), memory)
        return x + self.feed_forward.w_2(self.feed_forward.w_1(norms[-1](x)).relu())


class AnnotatedModel(nn.Module):
    """Sinusoids, scaled embeddings, pre-norm layers with a final norm."""

    def __init__(self):
        super().__init__()
        for name, count in (("encoder", LAYERS[0]), ("decoder", LAYERS[1])):
            layers = nn.ModuleList(AnnotatedLayer(name == "decoder") for _ in range(count))
            setattr(self, name, Holder(layers=layers, norm=SampleNorm()))
        for name, vocabulary in (("src_embed", S_VOCAB), ("tgt_embed", T_VOCAB)):
            positions = nn.Module()
            positions.register_buffer("pe", paper_sinusoids()[None])
            parts = nn.ModuleList([Holder(lut=nn.Embedding(vocabulary, D)), positions])
            setattr(self, name, parts)
        self.generator = Holder(proj=nn.Linear(D, T_VOCAB))

    def forward(self, source, target):
        x = self._embedded(self.src_embed, source)
        for layer in self.encoder.layers:
            x = layer(x)
        x = self.encoder.norm(x)
        y = self._embedded(self.tgt_embed, target)
        for layer in self.decoder.layers:
            y = layer(y, x)
        return self.generator.proj(self.decoder.norm(y))

    def _embedded(self, parts, ids):
        return parts[0].lut(ids) * math.sqrt(D) + parts[1].pe[0, : ids.shape[1]]


def with_random_weights(module, seed=0):
    """Draw all parameters, so that no norm and no bias is neutral."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.1, 0.4, generator=generator)
    return module.eval()
