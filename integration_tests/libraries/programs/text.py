"""Sequence models: transformers and what stands in for attention, adapters, embeddings."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from integration_tests.libraries.workload import Compile, Program, workload

TOKENS = 64


def language_model(
    model: torch.nn.Module, compile: Compile, length: int = 32, **arguments: Any
) -> Program:
    """A training step of a model that gives logits of tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = compile(model)

    def step() -> torch.Tensor:
        tokens = torch.randint(0, TOKENS, (2, length + 1))
        optimizer.zero_grad()
        logits = compiled(tokens[:, :-1], **arguments)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


def own_loss(model: torch.nn.Module, compile: Compile, *shape: int) -> Program:
    """A training step of a wrapper that computes its loss from tokens."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    compiled = compile(model)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = compiled(torch.randint(0, TOKENS, shape))
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


def layer(model: torch.nn.Module, compile: Compile, *shape: int, **arguments: Any) -> Program:
    """Forward and backward of a layer on drawn embeddings."""
    compiled = compile(model)

    def step() -> Any:
        model.zero_grad()
        out = compiled(torch.randn(*shape), **arguments)
        first = out[0] if isinstance(out, tuple) else out
        first.square().mean().backward()
        return out

    return Program(step, model)


def llama_config() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=TOKENS, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip


@workload("x-transformers")
def x_transformers_autoregressive(compile: Compile) -> Program:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    model = TransformerWrapper(
        num_tokens=TOKENS, max_seq_len=64,
        attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, attn_flash=True),
    )  # fmt: skip
    return own_loss(AutoregressiveWrapper(model), compile, 2, 33)


@workload("x-transformers")
def x_transformers_generate(compile: Compile) -> Program:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    net = TransformerWrapper(num_tokens=TOKENS, max_seq_len=64,
                             attn_layers=Decoder(dim=32, depth=2, heads=2))  # fmt: skip
    model = AutoregressiveWrapper(net).eval()
    model.net.forward = compile(model.net.forward)

    def step() -> torch.Tensor:
        prompt = torch.randint(0, TOKENS, (1, 4))
        return model.generate(prompt, 6, temperature=0.0)

    return Program(step, model)


@workload("performer-pytorch")
def performer_language_model(compile: Compile) -> Program:
    from performer_pytorch import PerformerLM

    model = PerformerLM(num_tokens=TOKENS, max_seq_len=64, dim=32, depth=2, heads=2, dim_head=16,
                        causal=False)  # fmt: skip
    return language_model(model, compile)


@workload("linformer")
def linformer_language_model(compile: Compile) -> Program:
    from linformer import LinformerLM

    model = LinformerLM(num_tokens=TOKENS, dim=32, seq_len=32, depth=2, heads=2, k=16)
    return language_model(model, compile)


@workload("reformer-pytorch")
def reformer_language_model(compile: Compile) -> Program:
    from reformer_pytorch import ReformerLM

    model = ReformerLM(num_tokens=TOKENS, dim=32, depth=2, max_seq_len=64, heads=2, bucket_size=8,
                       n_hashes=2, causal=True)  # fmt: skip
    return language_model(model, compile, length=64)


@workload("nystrom-attention")
def nystromformer(compile: Compile) -> Program:
    from nystrom_attention import Nystromformer

    return layer(Nystromformer(dim=32, depth=2, heads=2, dim_head=16, num_landmarks=8),
                 compile, 2, 30, 32)  # fmt: skip


@workload("local-attention")
def local_transformer(compile: Compile) -> Program:
    from local_attention import LocalTransformer

    model = LocalTransformer(
        num_tokens=TOKENS, dim=32, depth=2, max_seq_len=64, local_attn_window_size=16, causal=True,
        heads=2, dim_head=16,
    )  # fmt: skip
    return language_model(model, compile, length=48)


@workload("routing-transformer")
def routing_transformer(compile: Compile) -> Program:
    from routing_transformer import RoutingTransformerLM

    model = RoutingTransformerLM(num_tokens=TOKENS, dim=32, heads=2, depth=2, max_seq_len=64,
                                 causal=True, window_size=16)  # fmt: skip
    compiled = compile(model)

    def step() -> Any:
        model.zero_grad()
        logits, auxiliary = compiled(torch.randint(0, TOKENS, (1, 64)))
        (logits.square().mean() + auxiliary).backward()
        return logits, auxiliary

    return Program(step, model)


@workload("mambapy")
def mambapy_mamba(compile: Compile) -> Program:
    from mambapy.mamba import Mamba, MambaConfig

    return layer(Mamba(MambaConfig(d_model=16, n_layers=2)), compile, 2, 16, 16)


@workload("rotary-embedding-torch")
def rotary_embedding(compile: Compile) -> Program:
    from rotary_embedding_torch import RotaryEmbedding

    rotary = RotaryEmbedding(dim=16)

    @compile
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
        return F.scaled_dot_product_attention(q, k, v)

    def step() -> torch.Tensor:
        return attend(*(torch.randn(1, 2, 24, 32, requires_grad=True) for _ in range(3)))

    return Program(step, rotary)


@workload("perceiver-pytorch")
def perceiver(compile: Compile) -> Program:
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        input_channels=3, input_axis=2, num_freq_bands=4, max_freq=8.0, depth=2, num_latents=8,
        latent_dim=32, cross_heads=1, latent_heads=2, num_classes=10, self_per_cross_attn=1,
    )  # fmt: skip
    return layer(model, compile, 2, 16, 16, 3)


@workload("product-key-memory")
def product_key_memory(compile: Compile) -> Program:
    from product_key_memory import PKM

    return layer(PKM(dim=32, heads=2, num_keys=16, topk=4, dim_head=16), compile, 2, 12, 32)


@workload("soft-moe-pytorch")
def soft_moe(compile: Compile) -> Program:
    from soft_moe_pytorch import SoftMoE

    return layer(SoftMoE(dim=32, seq_len=24, num_experts=4), compile, 2, 24, 32)


@workload("mixture-of-experts")
def mixture_of_experts(compile: Compile) -> Program:
    from mixture_of_experts import MoE

    model = MoE(dim=32, num_experts=4, hidden_dim=64, capacity_factor_train=1.25)
    return layer(model, compile, 2, 24, 32)


@workload("transformers", "accelerate")
def transformers_bert_accelerate(compile: Compile) -> Program:
    from accelerate import Accelerator
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=TOKENS, hidden_size=32, num_hidden_layers=2,
                        num_attention_heads=2, intermediate_size=64, num_labels=3)  # fmt: skip
    accelerator = Accelerator(cpu=True)
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    compiled = compile(model)

    def step() -> Any:
        batch = {"input_ids": torch.randint(0, TOKENS, (2, 16)), "labels": torch.tensor([0, 2])}
        optimizer.zero_grad()
        out = compiled(**batch, attention_mask=torch.ones(2, 16, dtype=torch.long))
        accelerator.backward(out.loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return out

    return Program(step, model, optimizer.optimizer)


@workload("peft", "transformers")
def peft_lora_train(compile: Compile) -> Program:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    settings = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
    model = get_peft_model(LlamaForCausalLM(llama_config()), settings)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    compiled = compile(model)

    def step() -> torch.Tensor:
        tokens = torch.randint(0, TOKENS, (2, 16))
        optimizer.zero_grad()
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("peft", "transformers")
def peft_ia3_dora(compile: Compile) -> Program:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaForCausalLM

    settings = LoraConfig(r=4, target_modules="all-linear", use_dora=True)
    model = get_peft_model(LlamaForCausalLM(llama_config()), settings)
    compiled = compile(model)

    def step() -> torch.Tensor:
        tokens = torch.randint(0, TOKENS, (2, 16))
        model.zero_grad()
        loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        return loss

    return Program(step, model)


@workload("trl", "transformers")
def trl_dpo_loss(compile: Compile) -> Program:
    from transformers import LlamaForCausalLM
    from trl.trainer.utils import selective_log_softmax

    model, reference = LlamaForCausalLM(llama_config()), LlamaForCausalLM(llama_config()).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def log_probability(net: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        logits = net(input_ids=tokens).logits[:, :-1]
        return selective_log_softmax(logits, tokens[:, 1:]).sum(-1)

    @compile
    def loss_fn(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            base = log_probability(reference, chosen) - log_probability(reference, rejected)
        margin = log_probability(model, chosen) - log_probability(model, rejected)
        return -F.logsigmoid(0.1 * (margin - base)).mean()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_fn(*(torch.randint(0, TOKENS, (2, 12)) for _ in range(2)))
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("sentence-transformers", "transformers")
def sentence_transformers_train(compile: Compile) -> Program:
    from sentence_transformers import models, util
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=TOKENS, hidden_size=32, num_hidden_layers=2,
                        num_attention_heads=2, intermediate_size=64)  # fmt: skip
    bert = BertModel(config)
    pooling, normalize = models.Pooling(32), models.Normalize()

    @compile
    def embed(tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        features = {"attention_mask": mask, "token_embeddings": bert(tokens, mask)[0]}
        return normalize(pooling(features))["sentence_embedding"]

    def step() -> torch.Tensor:
        bert.zero_grad()
        mask = (torch.arange(12) < torch.randint(4, 13, (6, 1))).long()
        a, b = (embed(torch.randint(0, TOKENS, (6, 12)), mask) for _ in range(2))
        scores = util.cos_sim(a, b) * 20
        loss = F.cross_entropy(scores, torch.arange(6))
        loss.backward()
        return loss

    return Program(step, bert)


@workload("open_clip_torch")
def open_clip_train(compile: Compile) -> Program:
    from open_clip import CLIP, ClipLoss
    from open_clip.model import CLIPTextCfg, CLIPVisionCfg

    vision = CLIPVisionCfg(layers=2, width=64, head_width=32, patch_size=16, image_size=32)
    text = CLIPTextCfg(context_length=12, vocab_size=TOKENS, width=32, heads=2, layers=2)
    model, loss_of = CLIP(32, vision, text), ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = compile(model)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        images, tokens = torch.rand(4, 3, 32, 32), torch.randint(0, TOKENS, (4, 12))
        loss = loss_of(*compiled(images, tokens)[:3])
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("chronos-forecasting")
def chronos_bolt(compile: Compile) -> Program:
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    config = T5Config(vocab_size=2, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                      decoder_start_token_id=0, pad_token_id=0)  # fmt: skip
    config.chronos_config = {
        "context_length": 64, "prediction_length": 8, "input_patch_size": 8,
        "input_patch_stride": 8, "quantiles": [0.1, 0.5, 0.9], "use_reg_token": True,
    }  # fmt: skip
    model = ChronosBoltModelForForecasting(config).eval()
    compiled = compile(model)

    @torch.no_grad()
    def step() -> Any:
        return compiled(context=torch.randn(2, 64)).quantile_preds

    return Program(step, model)


@workload("memory-efficient-attention-pytorch")
def memory_efficient_attention(compile: Compile) -> Program:
    from memory_efficient_attention_pytorch import Attention

    model = Attention(dim=32, dim_head=16, heads=2, causal=True, memory_efficient=True,
                      q_bucket_size=16, k_bucket_size=16)  # fmt: skip
    return layer(model, compile, 1, 48, 32)
