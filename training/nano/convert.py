"""Turns exported weights into the checkpoint that ships, with mlx-lm's own converter: the path of the large model.

Needs mlx and mlx-lm. The tokenizer's files are put beside the weights as they are, because the converter's library
writes them anew.

    python -m training.nano.convert --weights run/out --tokenizer tokenizer --out python/lily/models/nano
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

KEPT = ("config.json", "model.safetensors")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def convert(weights: Path, tokenizer: Path, out: Path) -> None:
    """Writes config.json, model.safetensors, generation_config.json and the tokenizer's files into `out`."""
    from mlx_lm.convert import convert as quantise

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "source", Path(name) / "target"
        shutil.copytree(weights, source)
        for file in TOKENIZER:
            shutil.copy(tokenizer / file, source / file)
        quantise(str(source), str(target), quantize=True)
        for file in KEPT:
            shutil.copy(target / file, out / file)
            (out / file).chmod(0o644)
    for file in TOKENIZER:
        shutil.copy(tokenizer / file, out / file)
    stop = json.loads((out / "config.json").read_text("utf-8"))["text_config"]["eos_token_id"]
    ends = json.loads((tokenizer / "tokenizer_config.json").read_text("utf-8"))
    generation = {
        "do_sample": True,
        "eos_token_id": [stop, ends["pad_token_id"]],
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.9,
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", "utf-8")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Converts exported weights with mlx-lm's converter.")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    convert(args.weights, args.tokenizer, args.out)


if __name__ == "__main__":
    main()
