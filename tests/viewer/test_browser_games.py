"""Plans on planes and on pictures, in a real browser: names of actions, colours, and predicted beside actual frames."""

from __future__ import annotations

from tests.runs.test_arcade import small
from thinker.runs.build import build_run
from thinker.viewer.play import record_run


def checked_node(recording):
    """The first stage of an episode with a prediction that can be checked, and its node in the tree."""
    for number, stage in enumerate(recording.episodes[0].stages):
        for node, error in enumerate(stage.tree.error):
            if node and error is not None:
                return number, node
    raise AssertionError("no prediction can be checked")


def shown_at(page, number, node):
    for _ in range(number):
        page.keyboard.press("ArrowRight")
    page.locator(f'#tree circle[data-node="{node}"]').last.click()
    return page.locator("#node figcaption").all_inner_texts()


def test_planes_have_a_key_of_their_colours_and_actions_their_names(show):
    recording = record_run(build_run(small("minatar"), device="cpu"), episodes=1)
    page = show(recording)
    keys = page.locator("#colours-key .key")
    assert keys.all_inner_texts() == ["cannon", "alien", "alien left", "alien right", "friendly bullet", "enemy bullet"]
    colours = [key.evaluate("(e) => getComputedStyle(e.firstChild).backgroundColor") for key in keys.all()]
    assert colours[:2] == ["rgb(240, 240, 240)", "rgb(230, 85, 65)"]
    actions = page.locator("#actions").inner_text()
    for name in ("· no-op", "← left", "→ right", "fire"):
        assert name in actions
    captions = shown_at(page, *checked_node(recording))
    assert captions[-1] == "actual"


def test_a_predicted_frame_of_a_game_is_shown_beside_the_real_one(show):
    recording = record_run(build_run(small("atari-small"), device="cpu"), episodes=1)
    page = show(recording)
    assert not page.locator("#colours-key").is_visible()
    number, node = checked_node(recording)
    captions = shown_at(page, number, node)
    assert len(captions) == 2
    assert captions[0].startswith("predicted")
    assert captions[1] == "actual"
    shown = [one.get_attribute("data-shown") for one in page.locator("#node canvas").all()]
    stage = recording.episodes[0].stages[number]
    assert shown[0] == f"frame {stage.tree.frame[node]}"
    assert shown[1] != shown[0]  # an untrained model predicts nothing right
