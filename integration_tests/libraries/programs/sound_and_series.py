"""Sound, time series and tables."""

from __future__ import annotations

from typing import Any

import torch

from integration_tests.libraries.programs.text import layer
from integration_tests.libraries.workload import Compile, Program, workload


def regression(
    model: torch.nn.Module, compile: Compile, *inputs: tuple[int, ...], categories: int = 0
) -> Program:
    """Training on drawn inputs; with categories, the first input is of integers below it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = compile(model)

    def step() -> torch.Tensor:
        drawn = [torch.randn(*shape) for shape in inputs]
        if categories:
            drawn[0] = torch.randint(0, categories, inputs[0])
        optimizer.zero_grad()
        out = compiled(*drawn)
        loss = (out[0] if isinstance(out, tuple | list) else out).square().mean()
        loss.backward()
        optimizer.step()
        return out

    return Program(step, model)


@workload("openai-whisper")
def whisper_decode(compile: Compile) -> Program:
    from whisper.model import ModelDimensions, Whisper

    dimensions = ModelDimensions(n_mels=16, n_audio_ctx=20, n_audio_state=32, n_audio_head=2,
                                 n_audio_layer=2, n_vocab=64, n_text_ctx=16, n_text_state=32,
                                 n_text_head=2, n_text_layer=2)  # fmt: skip
    model = Whisper(dimensions).eval()
    compiled = compile(model)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return compiled(torch.randn(1, 16, 40), torch.randint(0, 64, (1, 6)))

    return Program(step, model)


@workload("conformer")
def conformer_train(compile: Compile) -> Program:
    from conformer import Conformer

    return layer(Conformer(dim=32, depth=2, dim_head=16, heads=2), compile, 2, 20, 32)


@workload("asteroid")
def asteroid_conv_tasnet(compile: Compile) -> Program:
    from asteroid.losses import PITLossWrapper, pairwise_neg_sisdr
    from asteroid.models import ConvTasNet

    model = ConvTasNet(n_src=2, n_blocks=2, n_repeats=1, bn_chan=8, hid_chan=16, n_filters=16,
                       skip_chan=8)  # fmt: skip
    loss_of = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
    compiled = compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = loss_of(compiled(torch.randn(2, 1, 800)), torch.randn(2, 2, 800))
        loss.backward()
        return loss

    return Program(step, model)


@workload("nnAudio")
def nnaudio_mel_spectrogram(compile: Compile) -> Program:
    from nnAudio.features import MelSpectrogram

    model = MelSpectrogram(sr=8000, n_fft=256, n_mels=20, hop_length=64, trainable_mel=True,
                           verbose=False)  # fmt: skip
    return layer(model, compile, 2, 2000)


@workload("julius")
def julius_filters(compile: Compile) -> Program:
    import julius

    resample, low = julius.ResampleFrac(4, 3), julius.LowPassFilter(0.2)
    run = compile(lambda x: (resample(x), low(x)))
    return Program(lambda: run(torch.randn(2, 1, 400)), resample, low)


@workload("pytorch-tabnet")
def tabnet_train(compile: Compile) -> Program:
    from pytorch_tabnet.tab_network import TabNet

    matrix = torch.eye(8)
    model = TabNet(8, 2, n_d=4, n_a=4, n_steps=2, group_attention_matrix=matrix)
    return regression(model, compile, (16, 8))


@workload("rtdl_revisiting_models")
def rtdl_ft_transformer(compile: Compile) -> Program:
    from rtdl_revisiting_models import FTTransformer

    model = FTTransformer(
        n_cont_features=6, cat_cardinalities=[], d_out=1, n_blocks=2, d_block=16,
        attention_n_heads=2, attention_dropout=0.1, ffn_d_hidden=None, ffn_d_hidden_multiplier=2.0,
        ffn_dropout=0.1, residual_dropout=0.0,
    )  # fmt: skip
    compiled = compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        out = compiled(torch.randn(4, 6), None)
        out.square().mean().backward()
        return out

    return Program(step, model)


@workload("rtdl_num_embeddings")
def rtdl_periodic_embeddings(compile: Compile) -> Program:
    from rtdl_num_embeddings import PeriodicEmbeddings, PiecewiseLinearEmbeddings, compute_bins

    bins = compute_bins(torch.randn(64, 5), n_bins=4)
    model = torch.nn.ModuleList([
        PeriodicEmbeddings(5, 8, lite=False),
        PiecewiseLinearEmbeddings(bins, 8, activation=False, version="B"),
    ])  # fmt: skip
    embed = compile(lambda x: model[0](x) + model[1](x))

    def step() -> torch.Tensor:
        model.zero_grad()
        out = embed(torch.randn(4, 5))
        out.square().mean().backward()
        return out

    return Program(step, model)


@workload("iTransformer")
def itransformer_train(compile: Compile) -> Program:
    from iTransformer import iTransformer

    model = iTransformer(num_variates=5, lookback_len=16, dim=32, depth=1, heads=2, dim_head=16,
                         pred_length=4)  # fmt: skip
    compiled = compile(model)

    def step() -> Any:
        model.zero_grad()
        out = compiled(torch.randn(2, 16, 5))
        (next(iter(out.values())) if isinstance(out, dict) else out).square().mean().backward()
        return out

    return Program(step, model)


@workload("pytorch-forecasting")
def pytorch_forecasting_nbeats_block(compile: Compile) -> Program:
    from pytorch_forecasting.metrics import QuantileLoss
    from pytorch_forecasting.models.nbeats.sub_modules import NBEATSSeasonalBlock

    block = NBEATSSeasonalBlock(units=16, thetas_dim=4, num_block_layers=2, backcast_length=12,
                                forecast_length=4)  # fmt: skip
    loss_of = QuantileLoss(quantiles=[0.1, 0.5, 0.9])
    compiled = compile(block)

    def step() -> Any:
        block.zero_grad()
        backcast, forecast = compiled(torch.randn(3, 12))
        loss = loss_of.loss(forecast.unsqueeze(-1).expand(-1, -1, 3), torch.randn(3, 4)).mean()
        (loss + backcast.square().mean()).backward()
        return backcast, forecast

    return Program(step, block)


@workload("gluonts")
def gluonts_deepar(compile: Compile) -> Program:
    from gluonts.torch.model.deepar.module import DeepARModel

    model = DeepARModel(freq="h", context_length=8, prediction_length=4, num_feat_dynamic_real=1,
                        num_feat_static_real=1, num_feat_static_cat=1, cardinality=[3],
                        hidden_size=8, num_layers=1, lags_seq=[1, 2])  # fmt: skip
    loss_fn = compile(lambda *inputs: model.loss(*inputs).mean())
    past = model._past_length

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = loss_fn(
            torch.randint(0, 3, (2, 1)), torch.randn(2, 1), torch.randn(2, past, 1),
            torch.randn(2, past), torch.ones(2, past), torch.randn(2, 4, 1), torch.randn(2, 4),
            torch.ones(2, 4),
        )  # fmt: skip
        loss.backward()
        return loss

    return Program(step, model)
