import contextlib
import inspect
from collections import OrderedDict
from dataclasses import dataclass, fields

import torch
import torch.nn as nn


class ModelOutput(OrderedDict):
    def __post_init__(self):
        for f in fields(self):
            v = getattr(self, f.name)
            if v is not None:
                self[f.name] = v

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, n, v):
        if n in self.keys() and v is not None:
            super().__setitem__(n, v)
        super().__setattr__(n, v)

    def __setitem__(self, k, v):
        super().__setitem__(k, v)
        super().__setattr__(k, v)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclass
class SequenceClassifierOutput(ModelOutput):
    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None


class Config:
    def __init__(self, **k):
        self.__dict__.update(k)
        self.return_dict = True
        self.output_hidden_states = False


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c.hidden
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d)
        self.v = nn.Linear(d, d)
        self.o = nn.Linear(d, d)
        self.n1 = nn.LayerNorm(d)
        self.n2 = nn.LayerNorm(d)
        self.f1 = nn.Linear(d, 4 * d)
        self.f2 = nn.Linear(4 * d, d)
        self.h = c.heads
        self.drop = nn.Dropout(0.0)

    def forward(self, h, mask=None, output_attentions=False):
        B, T, D = h.shape

        def sp(x):
            return x.view(B, T, self.h, -1).transpose(1, 2)

        a = torch.matmul(sp(self.q(h)), sp(self.k(h)).transpose(-1, -2)) / (D // self.h) ** 0.5
        if mask is not None:
            a = a + mask
        p = nn.functional.softmax(a, dim=-1)
        c = torch.matmul(self.drop(p), sp(self.v(h))).transpose(1, 2).reshape(B, T, D)
        h = self.n1(h + self.o(c))
        h = self.n2(h + self.f2(nn.functional.gelu(self.f1(h))))
        return (h, p) if output_attentions else (h,)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.emb = nn.Embedding(100, c.hidden, padding_idx=0)
        self.layers = nn.ModuleList([Layer(c) for _ in range(2)])
        self.cls = nn.Linear(c.hidden, 2)
        self.gradient_checkpointing = False

    def get_extended(self, m, dtype):
        return (1.0 - m[:, None, None, :].to(dtype)) * torch.finfo(dtype).min

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask=None,
        labels=None,
        output_hidden_states=None,
        return_dict=None,
        **kwargs,
    ):
        output_hidden_states = (
            output_hidden_states
            if output_hidden_states is not None
            else self.config.output_hidden_states
        )
        return_dict = return_dict if return_dict is not None else self.config.return_dict
        h = self.emb(input_ids)
        m = self.get_extended(attention_mask, h.dtype)
        allh = () if output_hidden_states else None
        for l in self.layers:
            if output_hidden_states:
                allh = allh + (h,)
            if self.gradient_checkpointing and self.training:
                h = torch.utils.checkpoint.checkpoint(l.__call__, h, m, use_reentrant=False)[0]
            else:
                h = l(h, m)[0]
        logits = self.cls(h[:, 0])
        loss = None
        if labels is not None:
            loss = nn.CrossEntropyLoss()(logits.view(-1, 2), labels.view(-1))
        if not return_dict:
            return ((loss,) + (logits,)) if loss is not None else (logits,)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=allh)


N = 5


def build():
    import torch.utils.checkpoint

    model = Model(Config(hidden=32, heads=4))
    model.gradient_checkpointing = True
    sig = list(inspect.signature(model.forward).parameters)
    wrapped = torch.compile(model, backend="inductor", mode=None)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 10))
    i = [0]
    tr = torch.tensor(0.0)

    def step():
        L = [16, 16, 16, 24, 20, 16][i[0] % 6]
        i[0] += 1
        b = {
            "input_ids": torch.randint(1, 100, (4, L)),
            "attention_mask": (torch.arange(L)[None] < torch.randint(8, L, (4, 1))).long(),
            "labels": torch.randint(2, (4,)),
        }
        b = {k: v for k, v in b.items() if k in sig}
        wrapped.train()
        with contextlib.nullcontext():
            outputs = wrapped(**b)
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        model.zero_grad()
        tr.add_(loss.detach())
        wrapped.eval()
        with torch.no_grad():
            o = wrapped(**b, output_hidden_states=True)
        return loss, outputs.logits, o.logits, len(o.hidden_states), list(o.keys())

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
