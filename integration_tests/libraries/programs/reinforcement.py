"""Reinforcement learning: policies, losses and dictionaries of tensors."""

from __future__ import annotations

from typing import Any

import torch

from integration_tests.libraries.workload import Compile, Program, workload


@workload("tensordict")
def tensordict_module(compile: Compile) -> Program:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    model = TensorDictSequential(
        TensorDictModule(torch.nn.Linear(4, 16), in_keys=["observation"], out_keys=["hidden"]),
        TensorDictModule(torch.nn.Tanh(), in_keys=["hidden"], out_keys=["hidden"]),
        TensorDictModule(torch.nn.Linear(16, 2), in_keys=["hidden"], out_keys=["action"]),
    )  # fmt: skip
    compiled = compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        found = compiled(TensorDict({"observation": torch.randn(5, 4)}, batch_size=[5]))
        found["action"].square().mean().backward()
        return found["action"]

    return Program(step, model)


@workload("tensordict")
def tensordict_operations(compile: Compile) -> Program:
    from tensordict import TensorDict

    @compile
    def advance(data: Any) -> Any:
        data = data.clone()
        data["next", "reward"] = data["reward"] * 2 + 1
        return torch.stack([data, data + 1], 0).reshape(-1)

    def step() -> Any:
        out = advance(TensorDict({"reward": torch.randn(3), "done": torch.zeros(3)}, [3]))
        return out["next", "reward"], out["done"], tuple(out.batch_size)

    return Program(step)


@workload("torchrl")
def torchrl_gae(compile: Compile) -> Program:
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    run = compile(generalized_advantage_estimate)

    def step() -> Any:
        done = torch.rand(2, 6, 1) > 0.8
        values, after, reward = (torch.randn(2, 6, 1) for _ in range(3))
        return run(0.99, 0.95, values, after, reward, done, done)

    return Program(step)


@workload("torchrl", "tensordict")
def torchrl_ppo_loss(compile: Compile) -> Program:
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss

    net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4),
                              NormalParamExtractor())  # fmt: skip
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"])
    actor = ProbabilisticActor(module=module, in_keys=["loc", "scale"],
                               distribution_class=TanhNormal, return_log_prob=True)  # fmt: skip
    critic = ValueOperator(module=torch.nn.Linear(4, 1), in_keys=["observation"])
    loss_of = ClipPPOLoss(actor_network=actor, critic_network=critic)
    compiled = compile(loss_of)

    def step() -> Any:
        loss_of.zero_grad()
        data = TensorDict({
            "observation": torch.randn(6, 4), "action": torch.rand(6, 2) - 0.5,
            "action_log_prob": torch.randn(6), "advantage": torch.randn(6, 1),
            "value_target": torch.randn(6, 1),
        }, [6])  # fmt: skip
        found = compiled(data)
        loss = found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]
        loss.backward()
        return loss

    return Program(step, loss_of)


@workload("stable-baselines3", "gymnasium")
def stable_baselines_policy(compile: Compile) -> Program:
    import gymnasium
    import numpy
    from stable_baselines3.common.policies import ActorCriticPolicy

    box = gymnasium.spaces.Box(-1.0, 1.0, (4,), numpy.float32)
    policy = ActorCriticPolicy(box, gymnasium.spaces.Discrete(3), lambda _: 1e-3)
    forward, evaluate = compile(policy.forward), compile(policy.evaluate_actions)

    def step() -> Any:
        policy.zero_grad()
        observations = torch.rand(6, 4) * 2 - 1
        with torch.no_grad():
            acted = forward(observations)
        values, likelihood, entropy = evaluate(observations, acted[0])
        (values.square().mean() - likelihood.mean() - entropy.mean()).backward()
        return acted, values, likelihood, entropy

    return Program(step, policy)
