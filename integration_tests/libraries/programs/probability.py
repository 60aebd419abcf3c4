"""Probability: Gaussian processes, variational inference, flows, differential equations."""

from __future__ import annotations

from typing import Any

import torch

from integration_tests.libraries.workload import Compile, Program, workload


@workload("gpytorch", "linear_operator")
def gpytorch_exact_train(compile: Compile) -> Program:
    import gpytorch

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

    x = torch.linspace(0, 1, 20)
    y = torch.sin(x * 6.28) + torch.randn(20) * 0.2
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(x, y, likelihood)
    model.train(), likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    @compile
    def loss_fn() -> torch.Tensor:
        return -marginal(model(x), y)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_fn()
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("gpytorch")
def gpytorch_deep_kernel_predict(compile: Compile) -> Program:
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2))
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    @compile
    def covariance(x: torch.Tensor) -> torch.Tensor:
        return kernel(net(x)).to_dense()

    def step() -> torch.Tensor:
        out = covariance(torch.randn(10, 4))
        out.sum().backward()
        return out

    return Program(step, net, kernel)


@workload("botorch", "gpytorch")
def botorch_acquisition(compile: Compile) -> Program:
    from botorch.acquisition import qExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.sampling import SobolQMCNormalSampler

    x = torch.rand(8, 2, dtype=torch.double)
    model = SingleTaskGP(x, (x.sin().sum(-1, keepdim=True))).eval()
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=1)
    acquire = qExpectedImprovement(model, best_f=1.0, sampler=sampler)
    compiled = compile(acquire)

    def step() -> Any:
        points = torch.rand(3, 2, 2, dtype=torch.double, requires_grad=True)
        value = compiled(points)
        value.sum().backward()
        return value, points.grad

    return Program(step)


@workload("pyro-ppl")
def pyro_svi(compile: Compile) -> Program:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import Trace_ELBO
    from pyro.infer.autoguide import AutoNormal

    data = torch.randn(20) + 1.0

    def model() -> None:
        location = pyro.sample("location", dist.Normal(0.0, 1.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
        with pyro.plate("data", 20):
            pyro.sample("obs", dist.Normal(location, scale), obs=data)

    guide = AutoNormal(model)
    guide()
    elbo = Trace_ELBO()(model, guide)
    optimizer = torch.optim.Adam(guide.parameters(), lr=0.01)
    loss_fn = compile(elbo)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_fn()
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, guide, optimizer)


@workload("pyro-ppl")
def pyro_affine_coupling(compile: Compile) -> Program:
    import pyro.distributions as dist
    from pyro.distributions.transforms import affine_coupling

    transform = affine_coupling(4, [16])
    base = dist.Normal(torch.zeros(4), torch.ones(4)).to_event(1)

    @compile
    def log_probability(x: torch.Tensor) -> torch.Tensor:
        return dist.TransformedDistribution(base, [transform]).log_prob(x)

    def step() -> torch.Tensor:
        transform.zero_grad()
        loss = -log_probability(torch.randn(8, 4)).mean()
        loss.backward()
        return loss

    return Program(step, transform)


@workload("torchdiffeq")
def torchdiffeq_neural_ode(compile: Compile) -> Program:
    from torchdiffeq import odeint_adjoint

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
            )

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y**3)

    field = Field()
    compiled = compile(field)
    times = torch.linspace(0.0, 1.0, 5)

    def step() -> torch.Tensor:
        field.zero_grad()
        out = odeint_adjoint(compiled, torch.rand(4, 2), times, method="rk4",
                             adjoint_params=tuple(field.parameters()))  # fmt: skip
        loss = out.square().mean()
        loss.backward()
        return loss

    return Program(step, field)


@workload("torchdiffeq")
def torchdiffeq_solver_compiled(compile: Compile) -> Program:
    from torchdiffeq import odeint

    field = torch.nn.Linear(2, 2)
    times = torch.linspace(0.0, 1.0, 4)

    @compile
    def solve(y: torch.Tensor) -> torch.Tensor:
        return odeint(lambda t, y: torch.tanh(field(y)), y, times, method="rk4")

    def step() -> torch.Tensor:
        field.zero_grad()
        out = solve(torch.rand(4, 2))
        out.sum().backward()
        return out

    return Program(step, field)


@workload("torchsde")
def torchsde_drift_diffusion(compile: Compile) -> Program:
    import torchsde

    class Sde(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift, self.diffusion = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
            self.f, self.g = compile(self.f), compile(self.g)

        def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.drift(y).tanh()

        def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.diffusion(y).sigmoid() * 0.1

    sde, times = Sde(), torch.linspace(0, 1, 4)

    def step() -> torch.Tensor:
        sde.zero_grad()
        noise = torchsde.BrownianInterval(0.0, 1.0, size=(4, 3), entropy=3)
        out = torchsde.sdeint(sde, torch.rand(4, 3), times, dt=0.1, method="euler", bm=noise)
        out.sum().backward()
        return out

    return Program(step, sde)


@workload("torchcde")
def torchcde_controlled(compile: Compile) -> Program:
    import torchcde

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4 * 3)

        def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            return self.linear(z).tanh().view(*z.shape[:-1], 4, 3)

    field = Field()
    compiled = compile(field)

    def step() -> torch.Tensor:
        field.zero_grad()
        coefficients = torchcde.hermite_cubic_coefficients_with_backward_differences(
            torch.rand(2, 6, 3)
        )
        x = torchcde.CubicSpline(coefficients)
        z = torchcde.cdeint(X=x, func=compiled, z0=torch.rand(2, 4), t=x.interval, adjoint=False,
                            method="rk4", options={"step_size": 1.0})  # fmt: skip
        z.sum().backward()
        return z

    return Program(step, field)


@workload("zuko")
def zuko_neural_spline_flow(compile: Compile) -> Program:
    import zuko

    flow = zuko.flows.NSF(features=3, context=2, transforms=2, hidden_features=(16, 16))
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)

    @compile
    def loss_fn(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return -flow(c).log_prob(x).mean()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_fn(torch.randn(8, 3), torch.randn(8, 2))
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, flow, optimizer)


@workload("zuko")
def zuko_sample(compile: Compile) -> Program:
    import zuko

    flow = zuko.flows.RealNVP(features=4, transforms=2, hidden_features=(16,))
    sample = compile(lambda: flow().rsample((8,)))
    return Program(lambda: sample(), flow)


@workload("nflows")
def nflows_masked_autoregressive(compile: Compile) -> Program:
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
    from nflows.transforms.base import CompositeTransform
    from nflows.transforms.permutations import ReversePermutation

    layers = []
    for _ in range(2):
        layers += [ReversePermutation(features=4)]
        layers += [MaskedAffineAutoregressiveTransform(features=4, hidden_features=8)]
    flow = Flow(CompositeTransform(layers), StandardNormal(shape=[4]))
    loss_fn = compile(lambda x: -flow.log_prob(inputs=x).mean())

    def step() -> torch.Tensor:
        flow.zero_grad()
        loss = loss_fn(torch.randn(8, 4))
        loss.backward()
        return loss

    return Program(step, flow)


@workload("normflows")
def normflows_real_nvp(compile: Compile) -> Program:
    import normflows

    flows: list[Any] = []
    for _ in range(2):
        parameters = normflows.nets.MLP([1, 16, 2], init_zeros=True)
        flows += [normflows.flows.AffineCouplingBlock(parameters)]
        flows += [normflows.flows.Permute(2, mode="swap")]
    model = normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), flows)
    loss_fn = compile(model.forward_kld)

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = loss_fn(torch.randn(8, 2))
        loss.backward()
        return loss

    return Program(step, model)


@workload("blitz-bayesian-pytorch")
def blitz_bayesian_linear(compile: Compile) -> Program:
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    @variational_estimator
    class Regressor(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = BayesianLinear(4, 16), BayesianLinear(16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).relu())

    model = Regressor()
    compiled = compile(model.sample_elbo)

    def step() -> torch.Tensor:
        model.zero_grad()
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        loss = compiled(inputs=x, labels=y, criterion=torch.nn.MSELoss(), sample_nbr=2)
        loss.backward()
        return loss

    return Program(step, model)


@workload("bayesian-torch")
def bayesian_torch_flipout(compile: Compile) -> Program:
    from bayesian_torch.layers import Conv2dFlipout, LinearReparameterization

    convolution, linear = Conv2dFlipout(3, 4, 3), LinearReparameterization(4, 2)

    @compile
    def forward(x: torch.Tensor) -> Any:
        hidden, first = convolution(x)
        out, second = linear(hidden.mean((2, 3)))
        return out, first + second

    def step() -> Any:
        out, divergence = forward(torch.rand(2, 3, 8, 8))
        (out.square().mean() + divergence).backward()
        return out, divergence

    return Program(step, convolution, linear)


@workload("sbi")
def sbi_density_estimator(compile: Compile) -> Program:
    from sbi.neural_nets import posterior_nn

    theta, x = torch.randn(64, 2), torch.randn(64, 3)
    net = posterior_nn(model="maf", hidden_features=16, num_transforms=2)(theta, x)
    loss_fn = compile(lambda theta, x: net.loss(theta, condition=x).mean())

    def step() -> torch.Tensor:
        net.zero_grad()
        loss = loss_fn(torch.randn(8, 2), torch.randn(8, 3))
        loss.backward()
        return loss

    return Program(step, net)


@workload("geomloss")
def geomloss_sinkhorn(compile: Compile) -> Program:
    from geomloss import SamplesLoss

    loss_fn = compile(SamplesLoss("sinkhorn", p=2, blur=0.1, backend="tensorized"))

    def step() -> Any:
        x = torch.rand(20, 2, requires_grad=True)
        loss = loss_fn(x, torch.rand(16, 2))
        loss.backward()
        return loss, x.grad

    return Program(step)


@workload("torchquad")
def torchquad_simpson(compile: Compile) -> Program:
    from torchquad import Simpson

    integrand = compile(lambda x: torch.sin(x[:, 0]) + torch.exp(x[:, 1]))
    rule = Simpson()

    def step() -> torch.Tensor:
        return rule.integrate(integrand, dim=2, N=225, integration_domain=[[0, 1], [-1, 1]],
                              backend="torch")  # fmt: skip

    return Program(step)
