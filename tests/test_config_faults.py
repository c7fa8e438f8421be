"""Folders and config files that lily must refuse: foreign formats, other architectures, other quantisation, bad ids."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import SMALL, Json, edit_config, edit_json, edit_quantization, edit_text_config
from faults import Fault, Table

from lily.checkpoint import open_checkpoint
from lily.errors import CheckpointError, UnsupportedCheckpoint
from lily.synth import write_checkpoint

TABLE = Table()
WEIGHTS = "model.safetensors"
ROUTER = "language_model.model.layers.0.mlp.gate"
QUERY = "language_model.model.layers.3.self_attn.q_proj"


# The folder


@TABLE.fault(CheckpointError, "found nothing there", "config.json and model*.safetensors", "check the path")
def nothing_there(folder: Path) -> Path:
    return folder / "missing"


@TABLE.fault(CheckpointError, "found a file", "expected a folder", "give its folder")
def file_instead_of_folder(folder: Path) -> Path:
    return folder / WEIGHTS


def foreign(name: str, error: type[CheckpointError], *says: str, keep_weights: bool = False) -> None:
    def harm(folder: Path) -> None:
        if not keep_weights:
            (folder / WEIGHTS).unlink()
        (folder / name).write_bytes(b"GGUF")

    TABLE.case(f"foreign_{name}", harm, error, *says)


@TABLE.fault(UnsupportedCheckpoint, "a GGUF model", "expected a folder", "use mlx-community/")
def gguf_file(folder: Path) -> Path:
    (folder / "a.gguf").write_bytes(b"GGUF")
    return folder / "a.gguf"


@TABLE.fault(CheckpointError, "an empty folder", "config.json and model*.safetensors", "download again")
def empty_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


foreign("a.gguf", UnsupportedCheckpoint, "a GGUF model", "model*.safetensors", "mlx_lm.convert")
foreign(
    "pytorch_model-00001-of-00002.bin", UnsupportedCheckpoint, "PyTorch .bin", "expected", "mlx_lm.convert --hf-path"
)
foreign("model.pt", UnsupportedCheckpoint, "PyTorch weights", "expected", "mlx_lm.convert --hf-path")
foreign("weights.npz", UnsupportedCheckpoint, "early MLX", "expected", "mlx_lm.convert -q")
foreign("consolidated.safetensors", UnsupportedCheckpoint, "another library", "expected", "mlx_lm.convert --hf-path")
foreign("adapters.safetensors", UnsupportedCheckpoint, "an adapter", "expected", "mlx_lm.fuse --model BASE")
foreign("adapter_config.json", UnsupportedCheckpoint, "an adapter", "expected", "mlx_lm.fuse --model BASE")
foreign("x.incomplete", UnsupportedCheckpoint, "an unfinished download", "expected", "finish the download")
foreign("readme.txt", CheckpointError, "no model*.safetensors", "expected a folder", "check the path")
TABLE.case(
    "no_config",
    lambda f: (f / "config.json").unlink(),
    CheckpointError,
    "no config.json",
    "expected",
    "copy config.json",
)


# config.json as a file


def raw_config(name: str, text: bytes, *says: str) -> None:
    TABLE.case(f"config_{name}", lambda f: (f / "config.json").write_bytes(text), CheckpointError, "config.json", *says)


raw_config("cut", b'{"model_type": "qwen3', "expected one JSON object", "again")
raw_config("array", b"[1, 2]", "found a JSON list, expected an object", "again")
raw_config("repeated_key", b'{"a": 1, "a": 2}', "'a' appears twice", "expected unique keys")
raw_config("nan", b'{"a": NaN}', "NaN is not JSON", "expected one JSON object")
raw_config("latin1", b'{"a": "\xe9"}', "byte 7 is not UTF-8", "expected JSON text")
raw_config("deep", b'{"a": ' + b"[" * 200_000, "nested too deeply", "expected a few levels")
raw_config("digits", b'{"a": ' + b"9" * 10_000 + b"}", "no valid JSON", "expected one JSON object")


@TABLE.fault(CheckpointError, "no readable regular file", "expected a JSON file", "again")
def config_is_a_folder(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


@TABLE.fault(CheckpointError, "68,719,476,736 bytes", "expected at most 67,108,864", "again")
def config_is_huge(folder: Path) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(64 << 30)


# The architecture in config.json


def text_config(name: str, error: type[CheckpointError], *says: str, **values: Any) -> None:
    TABLE.case(f"text_{name}", lambda f: edit_text_config(f, **values), error, *says)


def top_config(name: str, change: Callable[[Json], object], error: type[CheckpointError], *says: str) -> None:
    TABLE.case(f"top_{name}", lambda f: edit_config(f, change), error, *says)


USE = "use mlx-community/Qwen3.6-35B-A3B-4bit"
FIX = "correct config.json"
top_config("no_model_type", lambda c: c.pop("model_type"), CheckpointError, "no model_type", "expected", "take config")
top_config("llama", lambda c: c.update(model_type="llama"), UnsupportedCheckpoint, "'llama'", "'qwen3_5_moe'", USE)
top_config("dense", lambda c: c.update(model_type="qwen3_5"), UnsupportedCheckpoint, "'qwen3_5'", "lily runs", USE)
top_config("text_list", lambda c: c.update(text_config=[1]), CheckpointError, "a list", "expected an object", FIX)
top_config("tied", lambda c: c.update(tie_word_embeddings=True), UnsupportedCheckpoint, "is True", "False only", USE)
text_config("model_type", UnsupportedCheckpoint, "'qwen3_next'", "lily runs", USE, model_type="qwen3_next")
text_config("tied", UnsupportedCheckpoint, "tie_word_embeddings is True", "False only", USE, tie_word_embeddings=True)
text_config("gelu", UnsupportedCheckpoint, "hidden_act is 'gelu'", "'silu' only", USE, hidden_act="gelu")
text_config("bias", UnsupportedCheckpoint, "attention_bias is True", "False only", USE, attention_bias=True)
text_config("no_gate", UnsupportedCheckpoint, "attn_output_gate is False", "True only", USE, attn_output_gate=False)
text_config("interval", UnsupportedCheckpoint, "interval is 2", "4 only", USE, full_attention_interval=2)
text_config("dense_steps", UnsupportedCheckpoint, "decoder_sparse_step is 2", "1 only", USE, decoder_sparse_step=2)
text_config("mlp_layers", UnsupportedCheckpoint, "mlp_only_layers is [0]", "[] only", USE, mlp_only_layers=[0])
text_config("no_hidden", CheckpointError, "lacks hidden_size", "needs", "take config.json", hidden_size=...)
text_config("no_experts", CheckpointError, "lacks num_experts", "needs", "take config.json", num_experts=...)
text_config("hidden_text", CheckpointError, "is '64'", "expected an integer", FIX, hidden_size="64")
text_config("hidden_true", CheckpointError, "is True", "expected an integer", FIX, hidden_size=True)
text_config("hidden_minus", CheckpointError, "is -64", "from 1 to 16,777,216", FIX, hidden_size=-64)
text_config("layers_huge", CheckpointError, "is 1000000000", "from 1 to 1,024", FIX, num_hidden_layers=10**9)
text_config("vocab_huge", CheckpointError, "vocab_size is", "from 1 to 16,777,216", FIX, vocab_size=10**30)
text_config("hidden_65", UnsupportedCheckpoint, "hidden_size is 65", "multiple of 64", USE, hidden_size=65)
text_config(
    "width_32", UnsupportedCheckpoint, "moe_intermediate_size is 32", "multiple of 64", USE, moe_intermediate_size=32
)
text_config(
    "kv_heads", CheckpointError, "no multiple of num_key_value_heads 3", "whole groups", FIX, num_key_value_heads=3
)
text_config("key_heads", CheckpointError, "of linear_num_key_heads 3", "whole groups", FIX, linear_num_key_heads=3)
text_config("top_k", CheckpointError, "num_experts_per_tok is 9", "at most num_experts, 4", FIX, num_experts_per_tok=9)
text_config("conv_1", UnsupportedCheckpoint, "is 1", "expected 2 or more", USE, linear_conv_kernel_dim=1)
text_config("eps_0", CheckpointError, "rms_norm_eps is 0.0", "between 0 and 1", FIX, rms_norm_eps=0)
text_config("eps_text", CheckpointError, "rms_norm_eps is 'x'", "a finite number", FIX, rms_norm_eps="x")
text_config("eps_inf", CheckpointError, "rms_norm_eps is 1000", "a finite number", FIX, rms_norm_eps=10**400)
text_config("topk_prob", CheckpointError, "norm_topk_prob is 'yes'", "true or false", FIX, norm_topk_prob="yes")
text_config("positions", CheckpointError, "is '262144'", "a positive integer", FIX, max_position_embeddings="262144")
text_config("rope_list", CheckpointError, "rope_parameters is [1]", "expected an object", FIX, rope_parameters=[1])
text_config("no_theta", CheckpointError, "rope_theta is None", "a finite number", FIX, rope_parameters={})
text_config(
    "yarn", UnsupportedCheckpoint, "'yarn'", "'default' (no scaling)", "restore", rope_parameters={"rope_type": "yarn"}
)
text_config(
    "scaling", UnsupportedCheckpoint, "rope_scaling is", "without scaling", "remove", rope_scaling={"factor": 4}
)
text_config(
    "rotary_odd", CheckpointError, "rotate 1.0", "an even count", FIX,
    rope_parameters={"rope_theta": 1e6, "partial_rotary_factor": 1 / 32},
)  # fmt: skip
text_config("types_short", CheckpointError, "has 1 entries", "a list of 4", FIX, layer_types=["linear_attention"])
text_config("types_text", CheckpointError, "has a str", "a list of 4", FIX, layer_types="linear_attention")
text_config(
    "types_every_2", UnsupportedCheckpoint, "layer_types[1] is 'full_attention'", "expected 'linear_attention'", USE,
    layer_types=["linear_attention", "full_attention"] * 2,
)  # fmt: skip


# Quantisation


def quantization(name: str, change: Callable[[Json], object], error: type[CheckpointError], *says: str) -> None:
    TABLE.case(f"quantization_{name}", lambda f: edit_quantization(f, change), error, *says)


LIST = "lily runs MLX affine quantisation, group size 64"
CONVERT = "mlx_lm.convert --hf-path Qwen/Qwen3.6-35B-A3B"
ONE = "use the config.json and weights of one conversion"
quantization("mxfp4", lambda q: q.update(mode="mxfp4"), UnsupportedCheckpoint, "mode 'mxfp4'", LIST, CONVERT)
quantization("nvfp4", lambda q: q.update(mode="nvfp4"), UnsupportedCheckpoint, "mode 'nvfp4'", LIST, CONVERT)
quantization("one_mxfp8", lambda q: q.update({QUERY: {"mode": "mxfp8"}}), UnsupportedCheckpoint, QUERY, LIST, CONVERT)
quantization("group_32", lambda q: q.update(group_size=32), UnsupportedCheckpoint, "group size 32", LIST, CONVERT)
quantization("3_bits", lambda q: q.update(bits=3), UnsupportedCheckpoint, "3 bits", LIST, CONVERT)
quantization("text_bits", lambda q: q.update(bits="4"), CheckpointError, "bits '4'", "two integers", CONVERT)
quantization("gptq", lambda q: q.update(quant_method="gptq"), UnsupportedCheckpoint, "'gptq'", LIST, CONVERT)
quantization("all_8", lambda q: q.update(bits=8), CheckpointError, "at 4 bits", "expected the 8", ONE)
quantization("one_8", lambda q: q.update({QUERY: {"bits": 8}}), CheckpointError, QUERY, "expected the 8", ONE)
quantization("router_4", lambda q: q.update({ROUTER: {"bits": 4}}), CheckpointError, ROUTER, "expected the 4", ONE)
top_config(
    "list",
    lambda c: c.update(quantization=[], quantization_config=[]),
    CheckpointError,
    "a list",
    "expected an object",
    CONVERT,
)
top_config(
    "two", lambda c: c.update(quantization={"bits": 4}), CheckpointError, "differ", "the same content", "restore"
)


@TABLE.fault(UnsupportedCheckpoint, "has no quantization, so the weights are unquantised", LIST, CONVERT)
def unquantised_config(folder: Path) -> None:
    edit_config(folder, lambda c: (c.pop("quantization"), c.pop("quantization_config")))


# Stop ids and the small files


def small_file(name: str, change: Callable[[Json], object], file: str, *says: str) -> None:
    TABLE.case(f"stop_{name}", lambda f: edit_json(f / file, change), CheckpointError, *says)


TAKE = "correct the file or take it"
GENERATION, TOKENIZER = "generation_config.json", "tokenizer_config.json"
small_file("beyond", lambda g: g.update(eos_token_id=320), GENERATION, "has 320", "ids from 0 to 319", TAKE)
small_file("negative", lambda g: g.update(eos_token_id=[1, -1]), GENERATION, "has -1", "ids from 0 to 319", TAKE)
small_file("text", lambda g: g.update(eos_token_id="1"), GENERATION, "has '1'", "ids from 0 to 319", TAKE)
small_file("config", lambda c: c.update(eos_token_id=True), "config.json", "has True", "ids from 0 to 319", TAKE)
small_file(
    "unknown", lambda t: t.update(eos_token="</s>"), TOKENIZER, "no token '</s>'", "expected the eos_token", TAKE
)
small_file("number", lambda t: t.update(eos_token=7), TOKENIZER, "eos_token is 7", "expected a string", TAKE)
small_file(
    "decoder", lambda t: t.update(added_tokens_decoder={"999": {"content": "<|im_end|>"}}), TOKENIZER,
    "has id 999", "at most 319", TAKE,
)  # fmt: skip
small_file(
    "digits", lambda t: t.update(added_tokens_decoder={"9" * 5000: {"content": "<|im_end|>"}}), TOKENIZER,
    "has the key '999", "expected a token id", TAKE,
)  # fmt: skip


@TABLE.fault(CheckpointError, "tokenizer.json: found no readable regular file", "expected a tokenizer", TAKE)
def tokenizer_is_a_pipe(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


@TABLE.fault(CheckpointError, "found no readable regular file", "expected a JSON file", "again")
def generation_config_is_a_device(folder: Path) -> None:
    (folder / GENERATION).unlink()
    (folder / GENERATION).symlink_to("/dev/zero")


TABLE.case(
    "tokenizer_cut",
    lambda f: (f / "tokenizer.json").write_text('{"a'),
    CheckpointError,
    "JSONDecodeError",
    "expected",
    TAKE,
)
TABLE.case(
    "tokenizer_odd", lambda f: (f / "tokenizer.json").write_text("{}"), CheckpointError, "KeyError", "expected", TAKE
)
TABLE.case(
    "generation_cut",
    lambda f: (f / GENERATION).write_text("{"),
    CheckpointError,
    GENERATION,
    "expected one JSON",
    "again",
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("sound") / "model", SMALL, seed=1)


def test_the_sound_checkpoint_opens(sound: Path) -> None:
    """Otherwise any error would do in the test below."""
    open_checkpoint(sound).close()


def test_the_table_is_long_enough() -> None:
    assert len(TABLE.faults) >= 40


@TABLE.parametrize()
def test_fault(fault: Fault, sound: Path, tmp_path: Path) -> None:
    fault.check(sound, tmp_path)
