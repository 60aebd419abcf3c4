import torch
import torch.nn as nn
from torch.distributions import Categorical


class TensorDict:
    def __init__(self, src, batch_size):
        self._d = dict(src)
        self.batch_size = torch.Size(batch_size)

    def __getitem__(self, k):
        if isinstance(k, str):
            return self._d[k]
        return TensorDict(
            {n: v[k] for n, v in self._d.items()}, (len(k),) if hasattr(k, "__len__") else ()
        )

    def __setitem__(self, k, v):
        self._d[k] = v

    def set(self, k, v):
        self._d[k] = v
        return self

    def get(self, k, default=None):
        return self._d.get(k, default)

    def keys(self):
        return self._d.keys()

    def flatten(self):
        return TensorDict(
            {n: v.reshape(-1, *v.shape[2:]) for n, v in self._d.items()}, (self.batch_size.numel(),)
        )

    def clone(self):
        return TensorDict({n: v.clone() for n, v in self._d.items()}, self.batch_size)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, obs, action=None):
        p = Categorical(logits=self.actor(obs))
        if action is None:
            action = p.sample()
        return action, p.log_prob(action), p.entropy(), self.critic(obs)


N = 3


def build():
    agent = Agent()
    opt = (
        torch.optim.Adam(agent.parameters(), lr=torch.tensor(2.5e-3), eps=1e-5, capturable=False)
        if False
        else torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    )
    policy = torch.compile(agent.get_action_and_value)
    get_value = torch.compile(agent.get_value)

    def gae(nv, c):
        vals = c["values"]
        adv = []
        last = 0.0
        for t in range(c["rewards"].shape[0] - 1, -1, -1):
            nnt = 1.0 - c["dones"][t]
            nxt = nv if t == c["rewards"].shape[0] - 1 else vals[t + 1]
            delta = c["rewards"][t] + 0.99 * nxt * nnt - vals[t]
            last = delta + 0.99 * 0.95 * nnt * last
            adv.append(last)
        a = c["advantages"] = torch.stack(list(reversed(adv)))
        c["returns"] = a + vals
        return c

    gae_c = torch.compile(gae, fullgraph=True)

    def update(c):
        opt.zero_grad()
        _, nlp, ent, nv = agent.get_action_and_value(c["obs"], c["actions"])
        lr = nlp - c["logprobs"]
        ratio = lr.exp()
        with torch.no_grad():
            kl = ((ratio - 1) - lr).mean()
            cf = ((ratio - 1.0).abs() > 0.2).float().mean()
        adv = c["advantages"]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
        nv = nv.view(-1)
        vc = c["vals"] + torch.clamp(nv - c["vals"], -0.2, 0.2)
        vl = 0.5 * torch.max((nv - c["returns"]) ** 2, (vc - c["returns"]) ** 2).mean()
        loss = pg - 0.01 * ent.mean() + 0.5 * vl
        loss.backward()
        gn = nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        return vl.detach(), pg.detach(), ent.mean().detach(), kl, cf, gn

    update = torch.compile(update)

    def step():
        obs = torch.randn(4, 4)
        ts = []
        for t in range(8):
            with torch.no_grad():
                a, lp, _, v = policy(obs)
            nxt = obs * 0.9 + 0.1 * torch.randn(4, 4) + a[:, None] * 0.01
            ts.append(
                dict(
                    obs=obs,
                    actions=a,
                    logprobs=lp,
                    values=v.flatten(),
                    rewards=nxt.sum(-1),
                    dones=torch.zeros(4),
                )
            )
            obs = nxt
        c = TensorDict({k: torch.stack([x[k] for x in ts]) for k in ts[0]}, (8, 4))
        with torch.no_grad():
            nv = get_value(obs).flatten()
            c = gae_c(nv, c)
        f = c.flatten()
        f["vals"] = f["values"]
        out = []
        for e in range(2):
            for idx in torch.randperm(32).split(16):
                out.append(update(f[idx]))
        return out

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
