"""Which tokens end an answer: the union of the config files, whichever of them are there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkpoint_files import SMALL, edit_config, edit_json

from lily.checkpoint import open_checkpoint
from lily.synth import write_checkpoint


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("sound") / "model", SMALL, seed=2)


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


@pytest.mark.parametrize(
    ("config", "text", "generation", "token", "expected"),
    [
        (None, None, None, None, ()),
        (5, None, None, None, (5,)),
        (None, [6, 7], None, None, (6, 7)),
        (5, 6, [7, 5], None, (5, 6, 7)),
        (None, None, 8, "<|im_end|>", (8, 317)),
        (None, None, None, {"content": "<|endoftext|>", "special": True}, (315,)),
        (0, None, None, "</think>", (0, 319)),
        (None, None, None, "a", (64,)),
    ],
)
def test_stop_ids_are_the_union(
    config: object, text: object, generation: object, token: object, expected: tuple[int, ...], folder: Path
) -> None:
    edit_config(folder, lambda c: (c.update(eos_token_id=config), c["text_config"].update(eos_token_id=text)))
    edit_json(folder / "generation_config.json", lambda g: g.update(eos_token_id=generation))
    edit_json(folder / "tokenizer_config.json", lambda t: t.update(eos_token=token))
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.stop_ids == expected


def test_stop_id_from_added_tokens_decoder(folder: Path) -> None:
    decoder = {"9": {"content": "<|im_end|>", "special": True}}
    edit_json(folder / "tokenizer_config.json", lambda t: t.update(added_tokens_decoder=decoder))
    with open_checkpoint(folder) as checkpoint:
        assert 9 in checkpoint.stop_ids


def test_no_small_files_are_needed(folder: Path) -> None:
    for name in ("generation_config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors.index.json"):
        (folder / name).unlink()
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.stop_ids == (317,)
        assert checkpoint.generation_config == {}


def test_an_eos_token_without_a_tokenizer_names_no_id(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.stop_ids == (315, 317)
