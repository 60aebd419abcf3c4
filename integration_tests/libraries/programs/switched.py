"""Programs that call `torch.compile` themselves, as scripts of these libraries do: Flambeau is
installed, and nothing else is changed."""

from __future__ import annotations

import copy
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from integration_tests.libraries.programs.generative import small_unet
from integration_tests.libraries.programs.text import TOKENS, llama_config
from integration_tests.libraries.programs.training import perceptron
from integration_tests.libraries.workload import Compile, Program, workload


def bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    return BertForSequenceClassification(
        BertConfig(vocab_size=TOKENS, num_hidden_layers=2, num_labels=3, **sizes)
    )


def llama() -> Any:
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM(llama_config())


def trainer_of(model: Any, **more: Any) -> Any:
    """A Trainer whose arguments say `torch_compile=True`, over rows of one batch size."""
    from transformers import Trainer, TrainingArguments

    rows = [
        {"input_ids": torch.randint(1, TOKENS, (16,)), "labels": torch.tensor(n % 3)}
        for n in range(8)
    ]
    given = TrainingArguments(
        tempfile.mkdtemp(), torch_compile=True, use_cpu=True, report_to=[], disable_tqdm=True,
        save_strategy="no", per_device_train_batch_size=4, logging_strategy="no", **more,
    )  # fmt: skip
    return Trainer(model, given, train_dataset=rows, eval_dataset=rows)


@workload("transformers", installs=True)
def trainer_train(compile: Compile) -> Program:
    model = bert()
    trainer = trainer_of(model, num_train_epochs=1)
    return Program(lambda: trainer.train().training_loss, model)


@workload("transformers", installs=True)
def trainer_training_step(compile: Compile) -> Program:
    model = bert()
    trainer = trainer_of(model, gradient_accumulation_steps=1)
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 1
    wrapped = trainer.accelerator.prepare(model)

    def step() -> torch.Tensor:
        batch = {"input_ids": torch.randint(1, TOKENS, (4, 16)), "labels": torch.arange(4) % 3}
        loss = trainer.training_step(wrapped, batch)
        trainer.optimizer.step()
        wrapped.zero_grad()
        return loss

    return Program(step, model)


@workload("transformers", installs=True)
def trainer_evaluate(compile: Compile) -> Program:
    trainer = trainer_of(bert())
    return Program(lambda: trainer.predict(trainer.eval_dataset).predictions)


@workload("transformers", installs=True)
def generate_with_a_static_cache(compile: Compile) -> Program:
    model = llama().eval()
    model.generation_config.cache_implementation = "static"
    model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

    def step() -> Any:
        tokens = torch.randint(1, TOKENS, (2, 6))
        return model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip

    return Program(step)


@workload("accelerate", "transformers", installs=True)
def accelerate_train(compile: Compile) -> Program:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, dynamo_backend="inductor", gradient_accumulation_steps=2)
    model = bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    wrapped, prepared, scheduler = accelerator.prepare(model, optimizer, scheduler)

    def step() -> Any:
        losses = []
        for _ in range(2):
            with accelerator.accumulate(wrapped):
                tokens = torch.randint(1, TOKENS, (4, 16))
                loss = wrapped(input_ids=tokens, labels=torch.arange(4) % 3).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(wrapped.parameters(), 1.0)
                prepared.step()
                scheduler.step()
                prepared.zero_grad()
                losses.append(loss)
        return losses, list(
            accelerator.unwrap_model(wrapped, keep_torch_compile=False).state_dict()
        )

    return Program(step, model, optimizer)


@workload("peft", "transformers", installs=True)
def peft_finetune(compile: Compile) -> Program:
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(llama(), settings)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    compiled = torch.compile(model)

    def step() -> torch.Tensor:
        tokens = torch.randint(0, TOKENS, (2, 16))
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(step, model, optimizer)


@workload("sentence-transformers", "transformers", installs=True)
def sentence_embeddings(compile: Compile) -> Program:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=TOKENS, num_hidden_layers=2, **sizes)).eval()
    model.forward = torch.compile(model.forward, dynamic=True)

    @torch.inference_mode()
    def step() -> torch.Tensor:
        tokens = torch.randint(1, TOKENS, (4, int(torch.randint(5, 20, ()))))
        mask = torch.ones_like(tokens)
        states = model(input_ids=tokens, attention_mask=mask)[0] * mask[..., None]
        return F.normalize(states.sum(1) / mask.sum(1, keepdim=True), dim=-1).clone()

    return Program(step)


@workload("diffusers", "accelerate", installs=True)
def diffusers_train_unconditional(compile: Compile) -> Program:
    from diffusers import DDPMScheduler
    from diffusers.training_utils import EMAModel

    unet = small_unet()
    average = EMAModel(unet.parameters(), decay=0.99)
    scheduler = DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
    model = torch.compile(unet)

    def step() -> torch.Tensor:
        clean = torch.randn(2, 3, 16, 16)
        noise = torch.randn_like(clean)
        times = torch.randint(0, 50, (2,))
        loss = F.mse_loss(model(scheduler.add_noise(clean, noise, times), times).sample, noise)
        loss.backward()
        nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.step(unet.parameters())
        return loss

    return Program(step, unet, optimizer, average.shadow_params)


@workload("diffusers", installs=True)
def diffusers_pipeline_compiled(compile: Compile) -> Program:
    from diffusers import DDIMPipeline, DDIMScheduler

    pipe = DDIMPipeline(small_unet().eval(), DDIMScheduler(num_train_timesteps=50))
    pipe.set_progress_bar_config(disable=True)
    pipe.unet = torch.compile(pipe.unet, mode="max-autotune", fullgraph=True)
    return Program(lambda: pipe(batch_size=2, num_inference_steps=3, output_type="np").images)


@workload("diffusers", installs=True)
def diffusers_repeated_blocks(compile: Compile) -> Program:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=4, num_layers=2, num_single_layers=2, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=16,
        axes_dims_rope=(2, 2, 4),
    ).eval()  # fmt: skip
    model.compile_repeated_blocks(fullgraph=True)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return model(
            torch.randn(1, 16, 4), encoder_hidden_states=torch.randn(1, 6, 16),
            pooled_projections=torch.randn(1, 16), timestep=torch.rand(1),
            img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(6, 3),
        ).sample  # fmt: skip

    return Program(step)


@workload("timm", installs=True)
def timm_train(compile: Compile) -> Program:
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3, dispatch_clip_grad

    model = timm.create_model("resnet10t", num_classes=10, drop_rate=0.1)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    average = ModelEmaV3(model, decay=0.99)
    task = torch.compile(model, backend="inductor", mode=None)
    mixup, criterion = Mixup(mixup_alpha=0.2, num_classes=10), SoftTargetCrossEntropy()

    def step() -> torch.Tensor:
        import numpy

        numpy.random.seed(0)
        images, labels = mixup(torch.rand(4, 3, 64, 64), torch.randint(0, 10, (4,)))
        with torch.autocast("cpu", torch.bfloat16):
            loss = criterion(task(images), labels)
        loss.backward()
        dispatch_clip_grad(model.parameters(), value=1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update(model)
        return loss

    return Program(step, model, average)


@workload("timm", installs=True)
def timm_validate(compile: Compile) -> Program:
    import timm
    from timm.utils import accuracy

    model = timm.create_model("vit_tiny_patch16_224", num_classes=10, img_size=64).eval()
    model = model.to(memory_format=torch.channels_last)
    model = torch.compile(model, backend="inductor")

    @torch.inference_mode()
    def step() -> Any:
        images = torch.rand(4, 3, 64, 64).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (4,))
        with torch.autocast("cpu", torch.bfloat16):
            output = model(images)
        return output.clone(), len(accuracy(output.float(), labels, topk=(1, 5)))

    return Program(step)


@workload("lightning", installs=True)
def lightning_trainer_fit(compile: Compile) -> Program:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = perceptron()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss, prog_bar=False)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    module = torch.compile(Classifier())
    turn, done = threading.Semaphore(0), threading.Semaphore(0)

    class InTurn(lightning.Callback):
        """The steps of one run, which goes on in a thread of its own, one by one: it waits before
        each, and nothing of it runs beside what the others do."""

        def on_train_batch_start(self, *_: Any) -> None:
            done.release()
            turn.acquire()

        def on_train_batch_end(self, trainer: Any, owner: Any, outputs: Any, *_: Any) -> None:
            self.loss = outputs["loss"].detach()

    class Rows(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            drawn = torch.Generator().manual_seed(0)
            while True:
                yield torch.randn(8, generator=drawn), torch.tensor(1)

    watch = InTurn()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
             "enable_model_summary": False, "accelerator": "cpu"}  # fmt: skip
    trainer = lightning.Trainer(max_epochs=1, max_steps=-1, callbacks=[watch], **quiet)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4)

    def wait() -> None:
        if not done.acquire(timeout=100):
            raise TimeoutError("the run has ended")

    def step() -> torch.Tensor:
        turn.release()
        wait()
        return watch.loss

    threading.Thread(target=trainer.fit, args=(module, loader), daemon=True).start()
    wait()
    return Program(step, getattr(module, "_orig_mod", module))


@workload("lightning", installs=True)
def fabric_train(compile: Compile) -> Program:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    inner = llama()
    optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-3)
    model, wrapped = fabric.setup(torch.compile(inner, dynamic=False), optimizer)

    def step() -> torch.Tensor:
        tokens = torch.randint(0, TOKENS, (2, 16))
        for number in range(2):
            with fabric.no_backward_sync(model, enabled=number == 0):
                loss = model(input_ids=tokens, labels=tokens).loss
                fabric.backward(loss / 2)
        fabric.clip_gradients(model, wrapped, max_norm=1.0)
        wrapped.step()
        wrapped.zero_grad()
        return loss

    return Program(step, inner)


@workload("tensordict", installs=True)
def policy_update(compile: Compile) -> Program:
    """Policy, advantages and the update compiled, each by itself."""
    from tensordict import TensorDict

    actor, critic = perceptron(), nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)

    @torch.compile
    def policy(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chosen = torch.distributions.Categorical(logits=actor(x))
        action = chosen.sample()
        return action, chosen.log_prob(action), critic(x).squeeze(-1)

    @torch.compile(fullgraph=True)
    def advantages(rewards: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        last, found = torch.zeros_like(values[0]), []
        for row in range(rewards.shape[0] - 1, -1, -1):
            after = values[row + 1] if row + 1 < rewards.shape[0] else values[row]
            last = rewards[row] + 0.99 * after - values[row] + 0.99 * 0.95 * last
            found.append(last)
        return torch.stack(found[::-1])

    def update(batch: Any) -> torch.Tensor:
        chosen = torch.distributions.Categorical(logits=actor(batch["x"]))
        ratio = (chosen.log_prob(batch["action"]) - batch["log"]).exp()
        gain = batch["gain"]
        loss = -torch.min(gain * ratio, gain * ratio.clamp(0.8, 1.2)).mean()
        loss = loss + F.mse_loss(critic(batch["x"]).squeeze(-1), batch["value"] + gain)
        loss = loss - 0.01 * chosen.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled_update = torch.compile(update)

    def step() -> torch.Tensor:
        x = torch.randn(6, 4, 8)
        with torch.no_grad():
            action, log, value = (part.view(6, 4) for part in policy(x.flatten(0, 1)))
            gain = advantages(torch.randn(6, 4), value)
        batch = TensorDict(
            {"x": x, "action": action, "log": log, "value": value, "gain": gain}, [6, 4]
        ).flatten()
        return compiled_update(batch)

    return Program(step, actor, critic)


@workload("trl", "transformers", installs=True)
def preference_training(compile: Compile) -> Program:
    """A model and its frozen reference, both compiled."""
    inner = llama()
    reference = torch.compile(copy.deepcopy(inner).eval().requires_grad_(False))
    model = torch.compile(inner)
    optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-3)

    def log_probability(net: Callable[..., Any], tokens: torch.Tensor) -> torch.Tensor:
        logits = net(input_ids=tokens).logits[:, :-1].log_softmax(-1)
        return logits.gather(2, tokens[:, 1:, None]).squeeze(-1).sum(-1)

    def step() -> torch.Tensor:
        chosen, rejected = torch.randint(0, TOKENS, (2, 2, 16))
        with torch.no_grad():
            base = log_probability(reference, chosen) - log_probability(reference, rejected)
        margin = log_probability(model, chosen) - log_probability(model, rejected)
        loss = -F.logsigmoid(0.1 * (margin - base)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(step, inner, optimizer)
