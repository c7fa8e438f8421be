"""The embedded decoder: it is found by its name, loads like any checkpoint, fits the package, and says sensible things.

What it should say was chosen where the margin is wide, so that no rounding of any device turns it around.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lily
from lily import hub, location
from lily.architecture import QWEN36_35B_A3B
from lily.errors import CheckpointError, InvalidInput
from lily.sampling import GREEDY

FOLDER = Path(lily.__file__).parent / "models" / "nano"
LIMIT = 16_000_000  # bytes of the whole folder in the wheel
MARGIN = 2.0  # between the best token and the next one, in nats


@pytest.fixture(scope="module")
def nano() -> Iterator[lily.Engine]:
    with lily.Engine.load("nano", max_context=2048) as engine:
        yield engine


def test_the_name_means_the_embedded_model_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nano").mkdir()
    monkeypatch.chdir(tmp_path)
    assert location.locate("nano", offline=True) == FOLDER
    assert location.locate("./nano") == tmp_path / "nano"
    assert location.locate(Path("nano")) == tmp_path / "nano"
    assert hub.is_folder("nano")
    with pytest.raises(InvalidInput, match="revision"):
        location.locate("nano", revision="main")


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hub.EMBEDDED, "nano", tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"gone.*install lily again"):
        location.locate("nano")


def test_it_fits_into_the_wheel_with_its_card() -> None:
    files = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert sum(files.values()) <= LIMIT, files
    assert {"README.md", "chat_template.jinja", "tokenizer.json", "model.safetensors", "config.json"} <= set(files)


def test_it_is_the_architecture_of_the_large_model(nano: lily.Engine) -> None:
    shape, large = nano.checkpoint.architecture, QWEN36_35B_A3B
    assert 20e6 <= shape.parameters <= 26e6
    assert (shape.head_dim, shape.key_dim, shape.value_dim) == (large.head_dim, large.key_dim, large.value_dim)
    assert shape.rotary_dim == large.rotary_dim
    assert shape.attention_layers * 3 == shape.delta_layers
    assert nano.checkpoint.bits["language_model.model.layers.0.mlp.gate"] == 8
    assert nano.checkpoint.bits["language_model.model.layers.0.mlp.switch_mlp.up_proj"] == 4


def test_chat_stops_by_itself(nano: lily.Engine) -> None:
    said = nano.generate([{"role": "user", "content": "Who are you?"}], max_tokens=80, sampling=GREEDY)
    assert "nano" in said.text
    assert said.finish_reason == "stop"
    control = nano.tokenizer.control_tokens
    assert nano.stop_ids == {control["<|im_end|>"], control["<|endoftext|>"]}


def test_it_knows_how_english_goes_on(nano: lily.Engine) -> None:
    for text, word in NEXT_WORDS:
        with nano.session() as session:
            logits = nano.prefill(session, nano.tokenizer.encode(text)).logits
        best, second = np.argsort(-logits)[:2]
        assert nano.tokenizer.decode([int(best)]) == word, text
        assert logits[best] - logits[second] >= MARGIN, text


NEXT_WORDS = (
    ("Once upon a", " time"),
    ("He shook his", " head"),
    ("I beg your", " pardon"),
    ("She put her arms round his", " neck"),
    ("Good morning, ladies and", " gentlemen"),
)


@pytest.mark.parametrize("thinking", [None, False])
def test_it_does_the_jobs_of_a_gate(nano: lily.Engine, thinking: bool | None) -> None:
    for instruction, text, expected in JOBS:
        messages = [{"role": "user", "content": f"{instruction}\n\n{text}"}]
        said = nano.generate(messages, max_tokens=80, sampling=GREEDY, thinking=thinking)
        assert (said.text, said.finish_reason) == (expected, "stop")


JOBS = (  # instruction, text, answer
    (
        "Which label fits the text? Labels: complaint, praise, question",
        "The kettle works wonderfully, thank you so much!",
        "praise",
    ),
    ("Extract the phone number.", "You can reach Tom Miller at 030-555-7788 until noon.", "030-555-7788"),
    (
        "Copy the text exactly. Keep placeholders such as [PERSON_1] as they are.",
        "[PERSON_1] asked [PERSON_2] to call [PHONE_1] on [DATE_1].",
        "[PERSON_1] asked [PERSON_2] to call [PHONE_1] on [DATE_1].",
    ),
    ("Rewrite the text without the name.", "Maria Lopez asked for a refund.", "A customer asked for a refund."),
    (
        "Remove the name and keep the meaning.",
        "My neighbour Jack Brown found your parcel.",
        "My neighbour found your parcel.",
    ),
)
