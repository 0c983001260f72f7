"""Our searches beside mctx itself, DeepMind's batched search in JAX: the same models, the same trees."""

from __future__ import annotations

from functools import partial

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
CASES = [  # actions, simulations, maximum depth, share of transitions that end the episode
    (2, 1, None, 0.1),
    (4, 15, None, 0.0),
    (5, 50, None, 0.15),
    (3, 40, 2, 0.2),
    (20, 60, 3, 0.05),
    (1, 6, None, 0.3),
]
SEEDS = (0, 1)
BATCH = 64


def recurrent_function(model: TableModel):
    """The model's ``unroll`` for mctx, which knows ends as transitions with discount 0."""
    next_state, reward, ends = jnp.asarray(model.next_state), jnp.asarray(model.reward), jnp.asarray(model.ends)
    value, logits = jnp.asarray(model.value), jnp.log(jnp.asarray(model.policy))

    def unroll(params, key, action, embedding):
        table, state = embedding[:, 0], embedding[:, 1]
        reached = next_state[table, state, action]
        output = mctx.RecurrentFnOutput(
            reward=reward[table, state, action],
            discount=jnp.where(ends[table, state, action], 0.0, DISCOUNT),
            prior_logits=logits[table, reached],
            value=value[table, reached],
        )
        return output, jnp.stack((table, reached), 1)

    return unroll


def root_function(model: TableModel):
    return mctx.RootFnOutput(
        prior_logits=jnp.log(jnp.asarray(model.policy[:, 0])),
        value=jnp.asarray(model.value[:, 0]),
        embedding=jnp.asarray(model.observation()),
    )


def searched_by_mctx(policy, model: TableModel, simulations: int, max_depth: int | None, **settings):
    run = partial(
        policy,
        params=(),
        rng_key=jax.random.PRNGKey(0),
        recurrent_fn=recurrent_function(model),
        num_simulations=simulations,
        max_depth=max_depth,
        **settings,
    )
    return jax.jit(lambda root: run(root=root))(root_function(model))


def assert_same(ours: planners.SearchResult, theirs) -> None:
    summary = theirs.search_tree.summary()
    np.testing.assert_array_equal(ours.visits, summary.visit_counts)
    np.testing.assert_allclose(ours.policy, theirs.action_weights, atol=2e-5)
    np.testing.assert_allclose(ours.value, summary.value, atol=1e-5)
    np.testing.assert_allclose(ours.q, np.where(ours.visits, summary.qvalues, 0), atol=1e-5)


@pytest.mark.parametrize(("num_actions", "simulations", "max_depth", "end_rate"), CASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_puct_visits_the_same_actions_as_mctx(seed, num_actions, simulations, max_depth, end_rate):
    model = TableModel(seed, batch=BATCH, num_actions=num_actions, end_rate=end_rate)
    theirs = searched_by_mctx(mctx.muzero_policy, model, simulations, max_depth, dirichlet_fraction=0.0)
    spec = planners.MCTSSpec(simulations=simulations, max_depth=max_depth)
    ours = planners.search(model, model.observation(), spec, discount=DISCOUNT, greedy=True)
    assert_same(ours, theirs)


class Given:
    """A random generator whose Gumbel noise is given."""

    def __init__(self, noise: np.ndarray) -> None:
        self.noise = noise

    def gumbel(self, size: tuple[int, int]) -> np.ndarray:
        assert self.noise.shape == size
        return self.noise


@pytest.mark.parametrize(("num_actions", "simulations", "max_depth", "end_rate"), CASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_gumbel_visits_and_chooses_the_same_actions_as_mctx(seed, num_actions, simulations, max_depth, end_rate):
    model = TableModel(seed, batch=BATCH, num_actions=num_actions, end_rate=end_rate)
    spec = planners.GumbelMCTSSpec(simulations=simulations, max_depth=max_depth)
    observation = torch.from_numpy(model.observation())
    root = model.root(observation, torch.full((BATCH,), NO_ACTION))
    for scale in (0.0, 1.0):
        theirs = searched_by_mctx(mctx.gumbel_muzero_policy, model, simulations, max_depth, gumbel_scale=scale)
        noise = np.asarray(theirs.search_tree.extra_data.root_gumbel)
        ours = spec.search(model, root, discount=DISCOUNT, random=Given(noise), greedy=scale == 0)
        assert_same(ours, theirs)
        np.testing.assert_array_equal(ours.action, theirs.action)
