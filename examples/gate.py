"""Sends a request to a model elsewhere without what is personal in it, and puts the values back into the answer.

Run: python examples/gate.py examples/request.txt
The model elsewhere is played by a function here, so that the example needs no network and no key.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lily


def elsewhere(request: str) -> str:
    """What a service in the cloud would see, and an answer that uses some of it."""
    print(f"--- what leaves ---\n{request}")
    return "Sehr geehrter [PERSON_2], bitte antworten Sie an [EMAIL_2]. Mit freundlichen Grüßen, [PERSON_1]"


def main() -> None:
    """Shows what leaves and what comes back, or why nothing leaves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--policy", type=Path, help="a policy in TOML; left out, the balanced one")
    parser.add_argument("--audit", type=Path, help="record the decision in this audit log")
    options = parser.parse_args()

    policy = None if options.policy is None else lily.Policy.load(options.policy)
    audit = None if options.audit is None else lily.AuditLog(options.audit)
    with lily.Gate(policy, audit) as gate:
        session = gate.session()  # a conversation goes on in one session
        try:
            answer = session.send(options.file.read_text(encoding="utf-8"), elsewhere)
        except lily.errors.PolicyBlocked as blocked:
            print(f"nothing leaves: {blocked}")
            return
    print(f"--- what comes back ---\n{answer}")
    if answer.unknown:
        print(f"placeholders of no value: {', '.join(answer.unknown)}")


if __name__ == "__main__":
    main()
