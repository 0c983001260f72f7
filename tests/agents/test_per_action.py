"""The encoder that treats actions alike: permuted actions, small differences, the base policy as a prior."""

import pytest
import torch

from tests.agents.support import as_if_learned, build_network, played
from tests.fakes import NUM_ACTIONS, noise_env
from thinker.agents import AgentInput
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION

EXTRAS = [(), ("action_sequence",), ("termination", "action_sequence")]
PER_ACTION = ("policy", "action", "child_mean_return", "child_max_return", "child_visits")


def network_and_unroll(observe=("tree", "hidden"), **options):
    env = noise_env(6, observe=observe, stage_length=6, max_depth=3, **options)
    network = as_if_learned(build_network(env, tree_encoder="per-action"))
    with torch.no_grad():
        network.tree.logits.weight.normal_(generator=torch.Generator().manual_seed(2))
    return network, played(env, network, stages=4)[2]


def renamed(given, layout, names):
    """``given`` after action a has been renamed to ``names[a]``."""
    order = names.argsort()  # the old name of each new action
    tree = given.observation["tree"].clone()
    for node in ("root", "current"):
        for part in PER_ACTION:
            where = layout.slices[f"{node}_{part}"]
            tree[..., where] = tree[..., where][..., order]
    if "action_sequence" in layout.slices:
        where = layout.slices["action_sequence"]
        steps = tree[..., where].unflatten(-1, (layout.max_depth, NUM_ACTIONS))
        tree[..., where] = steps[..., order].flatten(-2)
    last_action = given.last_action.clone()
    primary = last_action[..., :2]
    last_action[..., :2] = torch.where(primary == NO_ACTION, NO_ACTION, names[primary])
    observation = {**given.observation, "tree": tree}
    return AgentInput(observation, given.episode_start, given.next_is_real, last_action, given.last_reward)


@pytest.mark.parametrize("extra", EXTRAS, ids=str)
def test_actions_under_other_names_get_the_same_logits(extra):
    network, unroll = network_and_unroll(extra=extra)
    with torch.no_grad():
        network.heads.weight[:, -network.tree.width - 2 * NUM_ACTIONS : -network.tree.width] = 0  # last actions
        network.heads.weight[: 2 * NUM_ACTIONS] = 0  # the final layer's logits
        names = torch.tensor([2, 0, 1])
        expected, _ = network(unroll.given, {})
        actual, _ = network(renamed(unroll.given, network.layout, names), {})
    torch.testing.assert_close(actual.logits[..., names], expected.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(actual.value, expected.value, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(actual.reset_logits, expected.reset_logits, rtol=1e-4, atol=1e-4)
    assert expected.logits.std(-1).mean() > 0.1
    for real in (True, False):  # each action's own features do matter
        logits = expected.logits[unroll.given.next_is_real == real]
        assert not torch.allclose(logits, actual.logits[unroll.given.next_is_real == real])


def test_a_small_difference_at_a_high_level_is_not_squashed():
    """Returns of about 8 that differ by 0.3: a feature of each action must show the difference at full size."""
    network, _ = network_and_unroll(observe=("tree",))
    layout, generator = network.layout, torch.Generator().manual_seed(0)
    tree = torch.zeros(1000, layout.size)
    part = layout.decode(tree)
    for node in ("root", "current"):
        part[f"{node}_value"] += 8.0
        for name in ("mean", "max"):
            part[f"{node}_child_{name}_return"] += 8 + 0.3 * torch.randn(1000, NUM_ACTIONS, generator=generator)
        part[f"{node}_child_visits"] += 1 / 6
        part[f"{node}_policy"] += 1 / NUM_ACTIONS
    last_action = torch.full((1000, 3), NO_ACTION)
    unknown = torch.zeros(1000, dtype=torch.bool)
    given = AgentInput({"tree": tree}, unknown, unknown, last_action, torch.zeros(1000, 2))
    network.tree.update_scale(given)
    assert network.tree.difference_scale.factor.item() == pytest.approx(1 / 0.3, rel=0.1)
    _, features = network.tree._action_features(tree, last_action[:, 1])
    assert features[..., 0].std().item() == pytest.approx(1, rel=0.1)
    assert features[..., 1].std().item() == pytest.approx(1, rel=0.1)


def test_children_that_were_not_visited_have_no_difference():
    network, unroll = network_and_unroll()
    tree = unroll.given.observation["tree"].flatten(0, 1)
    _, _, visits, visited, differences = network.tree._nodes(tree)
    assert visited.any()
    assert not visited.all()
    assert torch.equal(visited, visits > 0)
    assert (differences.movedim(2, -1)[~visited] == 0).all()
    to_best = differences[:, :, 2]
    assert (to_best <= 0).all()
    assert (to_best.amax(-1) == 0).all()  # of the best child, or of children that were not visited


def test_a_new_agent_follows_the_base_policy_of_the_node_where_it_acts():
    env = noise_env(8, stage_length=6, max_depth=3)
    network = build_network(env, tree_encoder="per-action")
    _, _, unroll = played(env, network, stages=2)
    part = network.layout.decode(unroll.given.observation["tree"])
    with torch.no_grad():
        logits = network(unroll.given, {})[0].logits
    at_root = unroll.given.next_is_real | (part["reset"] > 0)
    assert at_root.any()
    assert (~at_root).any()
    policy = torch.where(at_root.unsqueeze(-1), part["root_policy"], part["current_policy"])
    expected = (0.5 * policy.log()).softmax(-1)
    torch.testing.assert_close(logits.softmax(-1), expected, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("hidden", [(128,), (4, 3, 3)], ids=str)
@pytest.mark.parametrize("extra", EXTRAS, ids=str)
def test_gradients_reach_every_parameter(hidden, extra):
    network, unroll = network_and_unroll(("tree", "hidden", "root_hidden"), hidden=hidden, extra=extra)
    output, _ = network(unroll.given, {})
    policy_loss = output.logits.log_softmax(-1)[..., 0].sum() + output.reset_logits.log_softmax(-1)[..., 0].sum()
    (policy_loss + output.value.square().sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_its_scales_are_updated():
    network, unroll = network_and_unroll()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.update_scales(unroll.given)
    for name in ("tree.level_scale", "tree.difference_scale"):
        assert not torch.equal(network.state_dict()[f"{name}.factor"], before[f"{name}.factor"]), name


def test_trees_without_children_leave_the_scale_of_differences_alone():
    env = noise_env(4, stage_length=1)
    network = build_network(env, tree_encoder="per-action")
    _, _, unroll = played(env, network, stages=4)
    network.update_scales(unroll.given)
    assert network.tree.difference_scale.factor.item() == 1
    assert network(unroll.given, {})[0].logits.isfinite().all()


def test_it_needs_the_tree():
    with pytest.raises(UserError, match="tree_encoder is 'per-action', which reads the tree; add 'tree'"):
        build_network(noise_env(2, observe=("hidden",)), tree_encoder="per-action")
