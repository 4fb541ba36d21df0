"""Site-level privacy for agents: two hundred sites train one agent to balance a pole.

Run it: `python examples/control_api.py`. Worlds are simulated, so the run is a rehearsal: its noise repeats.
"""

import tacit
from tacit.control import PPO

worlds = tacit.Worlds.of("CartPole-v1", copies=200)  # any Gymnasium environment with discrete actions

# A fifth of the sites joins each round by a secret draw; a trusted server adds the noise.
promise = tacit.Privacy(
    unit="site", epsilon=8, delta=1e-3, clip=1.0, clip_quantile=0.5, noise="server", participation=0.2,
    rehearsal=True,
)  # fmt: skip
task = PPO(hidden=[16], envs=4, steps=256, lr=5e-3, epochs=4, batch=64, reward_scale=0.05)
run = tacit.fit(task, worlds, privacy=promise, rounds=15, seed=0, name="poles")
print(run.summary(), "\n")

# The trained policy: the action for a pole that leans to the right, and the probability of each action.
leaning = [0.0, 0.0, 0.1, 0.0]
print("pushes", ["left", "right"][run.model.act(leaning)])
print("chances", run.model.probabilities(leaning).round(2))
print("\nreport", run.report("poles.html"))
