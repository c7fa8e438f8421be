"""A chat in the terminal on one session: a turn reads only what the session does not hold yet, where the new prompt
begins with what it holds. After each answer stands how much was held, and if nothing was, why not: an answer that was
cut off, or thinking that the template leaves out of earlier turns, makes another prompt of the same conversation.

Run: python examples/chat.py MODEL
"""

from __future__ import annotations

import argparse

import lily


def main() -> None:
    """Answers line after line until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a checkpoint's folder, or a repository of the hub")
    parser.add_argument("--max-tokens", type=int, default=256)
    options = parser.parse_args()

    messages: list[dict[str, str]] = []
    with lily.Engine.load(options.model) as engine, engine.session() as session:
        while True:
            try:
                messages.append({"role": "user", "content": input("> ")})
            except EOFError:
                break
            answer = ""
            for piece in engine.stream(messages, max_tokens=options.max_tokens, session=session):
                answer += piece.text
                print(piece.text, end="", flush=True)
                if piece.stats is not None:
                    print(f"\n[{piece.stats.cached_tokens} of {piece.stats.prompt_tokens} prompt tokens were held]")
                    if piece.stats.cache_miss is not None:
                        print(f"[read from the start: {piece.stats.cache_miss}]")
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()
