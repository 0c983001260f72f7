"""The file of a recording: what was saved comes back, and anything else is refused with a `RecordingError`."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.viewer.support import sokoban_recording
from thinker.errors import UserError
from thinker.viewer import Recording, RecordingError


@pytest.fixture(scope="module")
def recording() -> Recording:
    return sokoban_recording(2, title="of the file")


def test_a_recording_comes_back_from_its_file(recording, tmp_path):
    recording.save(tmp_path / "plan.json")
    assert Recording.load(tmp_path / "plan.json") == recording


def test_a_truncated_file_is_refused_with_its_name(recording, tmp_path):
    path = tmp_path / "plan.json"
    recording.save(path)
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordingError, match=r"plan\.json"):
            Recording.load(path)
    path.write_bytes(b"\xff\x00" + whole)
    with pytest.raises(RecordingError):
        Recording.load(path)


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("format",), "other", "not a recording"),
        (("version",), 99, "version 99"),
        (("version",), 1, "version 1, but this release of thinker reads only version 4; record the episodes again"),
        (("actions",), [], "no actions"),
        (("title",), 3, "title"),
        (("frames", 0), "11", "squares"),
        (("view", "kind"), "hologram", "kind"),
        (("episodes", 0, "stages"), [], "no stages"),
        (("episodes", 0, "stages", 0, "frame"), 10**9, "frame"),
        (("episodes", 0, "stages", 0, "frame"), True, "frame"),
        (("episodes", 0, "stages", 0, "action"), 5, "action"),
        (("episodes", 0, "stages", 0, "reward"), "1", "reward"),
        (("episodes", 0, "stages", 0, "tree", "parent", 1), 1, "parent"),
        (("episodes", 0, "stages", 0, "tree", "value"), [], "different lengths"),
        (("episodes", 0, "stages", 0, "steps", 0, "node"), 10**6, "node"),
        (("episodes", 0, "stages", 0, "steps", 0, "reset"), "maybe", "reset"),
        (("episodes", 0, "stages", 0, "agent_policy"), [1.0], "5 actions"),
        (("episodes", 0, "extra"), 1, "extra"),
        (("episodes", 0, "stages", 0, "picture"), 0, "picture"),
        (("episodes", 0, "final_picture"), 0, "final_picture"),
        (("renderings",), {"height": 2, "width": 2, "pictures": ["https://example.org"]}, "not a picture"),
        (("renderings",), {"height": 0, "width": 2, "pictures": []}, "no size"),
        (("renderings",), [], "renderings"),
        (("view", "names"), ["a", "b"], "2 names for 6 numbers"),
        (("view", "colours"), {"ball": "url(https://example.org)"}, "expected #rrggbb"),
    ],
)
def test_a_file_with_a_wrong_entry_is_refused(recording, where, value, told):
    document = copy.deepcopy(recording.to_dict())
    place = document
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(RecordingError, match=told):
        Recording.from_dict(document)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
@settings(max_examples=50, deadline=None)
def test_no_document_leads_to_any_other_error(document):
    with pytest.raises(RecordingError):
        Recording.from_dict(document)
    with pytest.raises(RecordingError):
        Recording.from_dict({"format": "thinker-recording", "version": 2, "episodes": document, "frames": document})


def test_a_damaged_file_is_an_error_of_the_user():
    assert issubclass(RecordingError, UserError)
