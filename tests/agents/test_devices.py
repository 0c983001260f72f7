"""Agents on a GPU, as far as that can be shown without one: nothing is mixed, and they learn what they learn here."""

import pytest
import torch

from tests.fake_device import fake_cuda
from tests.fakes import NoiseEnvs, noise_env, raw_env
from thinker.agents import RawAgentSpec, ThinkerAgentSpec
from thinker.augmented import collect


def trained(device, *, raw, stage_length=3, **settings):
    """Weights, state of the actor and the last actions after two updates, all on the CPU."""
    settings = {"batch_size": 2, "unroll_stages": 4, **settings}
    if raw:
        spec, env = RawAgentSpec(**settings), raw_env(NoiseEnvs(4), device)
    else:
        observe = ("tree", "hidden", "predicted_state")
        spec = ThinkerAgentSpec(**settings)
        env = noise_env(4, observe=observe, stage_length=stage_length, hidden=(4, 3, 3), device=device)
    agent = spec.build(env, seed=0, device=torch.device(device))
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset())
    for update in range(2):
        collect(env, actor, trajectory.num_steps)
        agent.learner.learn(trajectory, update / 2)
    learner, played = agent.learner.state_dict(), trajectory.read()
    for name, value in {**learner, **actor.state_dict()}.items():
        assert name in ("updates", "generator") or value.device.type == device, name
    return {
        **{name: value.cpu() for name, value in learner.items()},
        **{f"actor/{name}": value.cpu() for name, value in actor.state_dict().items()},
        "action": played.action.cpu(),
        "final_value": played.final_value.cpu(),
    }


@pytest.mark.parametrize("objective", ["v-trace", "ppo"])
@pytest.mark.parametrize(
    ("raw", "settings"),
    [
        (True, {}),
        (False, {"tree_encoder": "mlp"}),
        (False, {"tree_encoder": "lstm-attention"}),
        (False, {"tree_encoder": "per-action", "tree_mask_probability": 0.3}),
    ],
    ids=["raw", "mlp", "lstm-attention", "per-action"],
)
def test_agents_act_and_learn_on_a_device_as_on_the_cpu(raw, settings, objective):
    expected = trained("cpu", raw=raw, objective=objective, **settings)
    with fake_cuda():
        found = trained("cuda", raw=raw, objective=objective, **settings)
    assert found.keys() == expected.keys()
    assert (expected["final_value"] != 0).any()
    assert torch.equal(found["action"], expected["action"])
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name} {text}"
        )


@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention", "per-action"])
def test_an_actor_and_a_learner_on_a_device_go_on_from_states_of_the_cpu(tree_encoder):
    def parts(device):
        env = noise_env(4, device=device)
        spec = ThinkerAgentSpec(batch_size=2, unroll_stages=2, tree_encoder=tree_encoder)
        agent = spec.build(env, seed=0, device=torch.device(device))
        trajectory = agent.trajectory(env)
        actor = agent.actor(env, seed=0, trajectory=trajectory)
        actor.begin(*env.reset())
        return env, agent, actor, trajectory

    env, agent, actor, trajectory = parts("cpu")
    collect(env, actor, trajectory.num_steps)
    agent.learner.learn(trajectory, 0.0)
    with fake_cuda():
        _, other, resumed, _ = parts("cuda")
        other.learner.load_state_dict(agent.learner.state_dict())
        resumed.load_state_dict(actor.state_dict())
        decision, expected = resumed.act(), actor.act()
        assert decision.policy.device.type == "cuda"
        torch.testing.assert_close(decision.policy.cpu(), expected.policy, rtol=1e-4, atol=1e-5)
        assert torch.equal(decision.actions.cpu(), expected.actions)
