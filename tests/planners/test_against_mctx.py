"""Our searches beside mctx itself, DeepMind's batched search in JAX: the same models, the same trees."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.planners.tables import TableModel
from thinker import planners
from thinker.interfaces import NO_ACTION

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'thinker[mctx]'")
mctx = pytest.importorskip("mctx", reason="mctx is not installed: pip install 'thinker[mctx]'")
jnp = jax.numpy

DISCOUNT = 0.9
BATCH = 64
SHAPES = [(5, 50), (20, 60)]  # actions, simulations: compiled once each, which takes most of the time
CASES = [  # seed, maximum depth, share of transitions that end the episode
    (0, None, 0.15),
    (1, None, 0.0),
    (2, 2, 0.2),
    (3, 3, 0.05),
]


def tables_of(model: TableModel):
    """The model's tables, which mctx hands to `unroll`."""
    logits = jnp.log(jnp.asarray(model.policy))
    arrays = model.next_state, model.reward, model.ends, model.value
    return (*(jnp.asarray(array) for array in arrays), logits)


def unroll(tables, key, action, embedding):
    """The model's ``unroll`` for mctx, which knows ends as transitions with discount 0."""
    next_state, reward, ends, value, logits = tables
    table, state = embedding[:, 0], embedding[:, 1]
    reached = next_state[table, state, action]
    output = mctx.RecurrentFnOutput(
        reward=reward[table, state, action],
        discount=jnp.where(ends[table, state, action], 0.0, DISCOUNT),
        prior_logits=logits[table, reached],
        value=value[table, reached],
    )
    return output, jnp.stack((table, reached), 1)


def search_of_mctx(policy, simulations: int):
    """The function (model, maximum depth, numbers by name) -> what mctx found out, compiled once for all of them."""

    @jax.jit
    def search(tables, embedding, max_depth, numbers):
        *_, value, logits = tables
        root = mctx.RootFnOutput(prior_logits=logits[:, 0], value=value[:, 0], embedding=embedding)
        key = jax.random.PRNGKey(0)
        return policy(tables, key, root, unroll, simulations, max_depth=max_depth, **numbers)

    def searched(model: TableModel, max_depth: int | None, **numbers: float):
        no_limit = simulations if max_depth is None else max_depth
        return search(tables_of(model), jnp.asarray(model.observation()), no_limit, numbers)

    return searched


def assert_same(ours: planners.SearchResult, theirs) -> None:
    summary = theirs.search_tree.summary()
    np.testing.assert_array_equal(ours.visits, summary.visit_counts)
    np.testing.assert_allclose(ours.policy, theirs.action_weights, atol=2e-5)
    np.testing.assert_allclose(ours.value, summary.value, atol=1e-5)
    np.testing.assert_allclose(ours.q, np.where(ours.visits, summary.qvalues, 0), atol=1e-5)


@pytest.mark.parametrize(("num_actions", "simulations"), SHAPES)
def test_puct_visits_the_same_actions_as_mctx(num_actions, simulations):
    search = search_of_mctx(mctx.muzero_policy, simulations)
    for seed, max_depth, end_rate in CASES:
        model = TableModel(seed, batch=BATCH, num_actions=num_actions, end_rate=end_rate)
        spec = planners.MCTSSpec(simulations=simulations, max_depth=max_depth)
        ours = planners.search(model, model.observation(), spec, discount=DISCOUNT, greedy=True)
        assert_same(ours, search(model, max_depth, dirichlet_fraction=0.0))


class Given:
    """A random generator whose Gumbel noise is given."""

    def __init__(self, noise: np.ndarray) -> None:
        self.noise = noise

    def gumbel(self, size: tuple[int, int]) -> np.ndarray:
        assert self.noise.shape == size
        return self.noise


@pytest.mark.parametrize(("num_actions", "simulations"), SHAPES)
def test_gumbel_visits_and_chooses_the_same_actions_as_mctx(num_actions, simulations):
    search = search_of_mctx(mctx.gumbel_muzero_policy, simulations)
    for seed, max_depth, end_rate in CASES:
        model = TableModel(seed, batch=BATCH, num_actions=num_actions, end_rate=end_rate)
        spec = planners.GumbelMCTSSpec(simulations=simulations, max_depth=max_depth)
        root = model.root(torch.from_numpy(model.observation()), torch.full((BATCH,), NO_ACTION))
        for scale in (0.0, 1.0):
            theirs = search(model, max_depth, gumbel_scale=scale)
            noise = np.asarray(theirs.search_tree.extra_data.root_gumbel)
            ours = spec.search(model, root, discount=DISCOUNT, random=Given(noise), greedy=scale == 0)
            assert_same(ours, theirs)
            np.testing.assert_array_equal(ours.action, theirs.action)
