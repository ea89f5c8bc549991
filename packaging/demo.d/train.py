"""Logistic regression by stochastic gradient descent on made-up data: train.py EPOCHS CHECKPOINT.

Told to stop (SIGTERM), it saves what it has learned, and goes on from there when it's started again.
"""

import json
import math
import random
import signal
import sys
from pathlib import Path

FEATURES = 20
EXAMPLES = 2000
RATE = 0.02


def main(epochs: int, checkpoint: Path) -> None:
    stop = False

    def on_sigterm(signum: int, frame: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, on_sigterm)

    examples = make_examples(random.Random(4318))
    first, weights = load(checkpoint)
    for epoch in range(first, epochs + 1):
        loss, right = train(weights, examples)
        # One line that is drawn over and over, as people's progress bars do.
        bar = "#" * (30 * epoch // epochs)
        sys.stdout.write(f"\repoch {epoch}/{epochs} [{bar:<30}] loss {loss:.4f} accuracy {right:.1%}")
        sys.stdout.flush()
        if stop:
            save(checkpoint, epoch, weights)
            sys.stdout.write(f"\ntold to stop: saved epoch {epoch} to {checkpoint}\n")
            return
    save(checkpoint, epochs, weights)
    sys.stdout.write(f"\ndone: saved epoch {epochs} to {checkpoint}\n")


def make_examples(rng: random.Random) -> list[tuple[list[float], float]]:
    """Points on both sides of a hidden plane, some of them on the wrong one."""
    plane = [rng.gauss(0, 1) for _ in range(FEATURES)]
    examples = []
    for _ in range(EXAMPLES):
        point = [rng.gauss(0, 1) for _ in range(FEATURES)]
        side = sum(a * b for a, b in zip(plane, point, strict=True)) + rng.gauss(0, 1) > 0
        examples.append((point, float(side)))
    return examples


def train(weights: list[float], examples: list[tuple[list[float], float]]) -> tuple[float, float]:
    """One pass over the examples; the mean loss and the share that was told right."""
    loss, right = 0.0, 0
    for point, side in examples:
        guess = 1 / (1 + math.exp(-sum(a * b for a, b in zip(weights, point, strict=True))))
        loss -= math.log(guess if side else 1 - guess)
        right += (guess > 0.5) == (side > 0.5)
        for index, value in enumerate(point):
            weights[index] += RATE * (side - guess) * value
    return loss / len(examples), right / len(examples)


def load(checkpoint: Path) -> tuple[int, list[float]]:
    """The epoch to begin with, and the weights so far."""
    if not checkpoint.exists():
        return 1, [0.0] * FEATURES
    saved = json.loads(checkpoint.read_text())
    sys.stdout.write(f"going on after epoch {saved['epoch']}\n")
    return saved["epoch"] + 1, saved["weights"]


def save(checkpoint: Path, epoch: int, weights: list[float]) -> None:
    # Whoever reads it finds the old one or the new one, never a half.
    draft = checkpoint.with_suffix(".new")
    draft.write_text(json.dumps({"epoch": epoch, "weights": weights}))
    draft.replace(checkpoint)


main(int(sys.argv[1]), Path(sys.argv[2]))
