"""Private steps of one site against Opacus and torch.func: every record is clipped, noise is added.

A perceptron with 1,441 weights takes 50 steps, each on all records of the site. The timed runs draw noise:
ours is cryptographic and bound to the protected data, the peers' is torch's. The compared runs draw none, in
double precision on all sides; peers are timed in single precision, which is their default.

Opacus is used as its engine assembles it, without data loader and accountant: by its hooks, by ghost clipping
and by ExpandedWeights. Its fourth mode, functorch, takes about twice as long.
"""

from itertools import pairwise

import numpy as np

from bench.racing import Race, Work

BATCHES = (32, 256)
WIDTHS = (10, 32, 32, 1)
STEPS, LR, CLIP, MULTIPLIER = 50, 0.05, 1.0, 1.0
# Where noise has to be above 0: as good as none.
HARDLY = 1e-9
# In single precision a rounding can switch a unit on that is off elsewhere, which moves weights by 1e-3.
TIMED, COMPARED = "float32", "float64"


def records(*shape):
    """Draw features and targets that are exact in single precision too."""
    draws = np.random.default_rng(1)
    features, targets = draws.normal(size=(*shape, WIDTHS[0])), draws.normal(size=shape)
    return features.astype(np.float32), targets.astype(np.float32)


def tensors(precision, *arrays):
    import torch

    return [torch.from_numpy(values.astype(precision)) for values in arrays]


def network(precision=TIMED):
    """The perceptron, with weights that depend on no version of torch."""
    import torch
    from torch import nn

    draws, layers = np.random.default_rng(0), []
    for inputs, outputs in pairwise(WIDTHS):
        layer = nn.Linear(inputs, outputs)
        for values in (layer.weight, layer.bias):
            values.data = torch.from_numpy(draws.normal(size=values.shape) / np.sqrt(inputs)).float()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(getattr(torch, precision))


def flat(parameters):
    """All weights in one row."""
    return np.concatenate([values.detach().numpy().ravel() for values in parameters])


def ours(batch):
    from tacit import Federation, Key, Local, Supervised
    from tacit.privacy.mechanisms.base import RecordLevel
    from tacit.sites.table import from_arrays

    features, targets = records(batch)
    site = Federation({"site": from_arrays(features, y=targets)})
    task = Supervised(module=network(), loss="squared", steps=STEPS, sample=1.0, lr=LR)
    state, key = task.start(site, Key(0)), Key(0)

    def steps(multiplier):
        guard = RecordLevel(law="gaussian", clip=CLIP, multiplier=multiplier, steps=STEPS, rate=1.0)
        return task.advance(state, Local().train(task, site, state, ["site"], guard, key).matrix[0])

    return Work(run=lambda: steps(MULTIPLIER), check=lambda: steps(HARDLY))


def opacus_hooks(batch):
    return opacus(batch, "hooks")


def opacus_ghost(batch):
    return opacus(batch, "ghost")


def opacus_expanded(batch):
    return opacus(batch, "ew")


def opacus(batch, mode):
    """Opacus in one of its modes."""
    return Work(
        run=opacus_steps(batch, mode, MULTIPLIER, TIMED), check=opacus_steps(batch, mode, 0.0, COMPARED)
    )


def opacus_steps(batch, mode, multiplier, precision):
    """The steps, with so much noise."""
    import torch
    from opacus.grad_sample import prepare_module
    from opacus.optimizers import get_optimizer_class
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    ghost = mode == "ghost"
    module = prepare_module(network(precision), mode, **({"max_grad_norm": CLIP} if ghost else {}))
    optimizer = get_optimizer_class("flat", distributed=False, grad_sample_mode=mode)(
        torch.optim.SGD(module.parameters(), lr=LR),
        noise_multiplier=multiplier,
        max_grad_norm=CLIP,
        expected_batch_size=batch,
    )
    loss = DPLossFastGradientClipping(module, optimizer, half_squares()) if ghost else half_squares()
    x, y = tensors(precision, *records(batch))
    start = {name: values.clone() for name, values in module.state_dict().items()}

    def steps():
        module.load_state_dict(start)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(module(x)[:, 0], y).backward()
            optimizer.step()
        return flat(module.parameters())

    return steps


def half_squares():
    """Half the squared distance, as Opacus wants a loss."""
    from torch import nn

    class HalfSquares(nn.MSELoss):
        def forward(self, outputs, targets):
            return super().forward(outputs, targets) / 2

    return HalfSquares()


def torch_func(batch):
    """Take the step with `torch.func` alone."""
    return Work(run=torch_func_steps(batch, MULTIPLIER, TIMED), check=torch_func_steps(batch, 0.0, COMPARED))


def torch_func_steps(batch, multiplier, precision):
    """The steps, with so much noise."""
    import torch

    x, y = tensors(precision, *records(batch))
    module, start = network(precision), network(precision).state_dict()
    clipped, optimizer = clipped_gradients(module), torch.optim.SGD(module.parameters(), lr=LR)

    def steps():
        module.load_state_dict(start)
        for _ in range(STEPS):
            clipped(x, y, multiplier)
            optimizer.step()
        return flat(module.parameters())

    return steps


def clipped_gradients(module):
    """A function that leaves the mean of clipped gradients of some records, with noise, where SGD looks."""
    import torch
    from torch.func import functional_call, grad, vmap

    parameters = dict(module.named_parameters())
    current = {name: values.detach() for name, values in parameters.items()}

    def loss(weights, x, y):
        return (functional_call(module, weights, (x,))[0] - y) ** 2 / 2

    of_each = vmap(grad(loss), in_dims=(None, 0, 0))

    def clipped(x, y, multiplier=0.0):
        each = of_each(current, x, y)
        lengths = torch.sqrt(sum(rows.flatten(1).square().sum(1) for rows in each.values()))
        factors = (CLIP / lengths).clamp(max=1.0)
        for name, values in parameters.items():
            total = torch.tensordot(factors, each[name], dims=1)
            if multiplier:
                total += multiplier * CLIP * torch.randn_like(total)
            values.grad = total / len(x)

    return clipped


RACES = [
    Race(
        name=f"{STEPS} private steps, batches of {batch}",
        group="a private step of one site",
        given={"batch": batch},
        ours=ours,
        theirs={
            "Opacus 1.6": opacus_hooks,
            "Opacus 1.6, ghost clipping": opacus_ghost,
            "Opacus 1.6, ExpandedWeights": opacus_expanded,
            "torch.func": torch_func,
        },
        same=1e-5,
        goal={"Opacus 1.6": 8, "Opacus 1.6, ghost clipping": 8},
    )
    for batch in BATCHES
]
