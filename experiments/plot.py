#!/usr/bin/env python3
"""The generalisation curve of docs/results.md, from experiments/results/ (see collect.py): success on three sets of tasks by the
number of training tasks, means and 95 % intervals over seeds, as docs/images/generalisation.svg. Standard library only."""

import statistics
from pathlib import Path

from table import STUDENT_95, generalised

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 110, 30, 60
# the colours of a run's curve.png, which colour-blind readers tell apart
PARTS = {"training": ("trained", "#0072b2"), "unseen": ("unseen", "#d55e00"), "held_out": ("held-out", "#009e73")}


def text(x, y, content, anchor="middle", colour="#444", rotated=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{rotated}>{content}</text>'


def line(x1, y1, x2, y2, colour, width=1.0, dashes=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def main():
    runs = generalised()
    if not runs:
        return
    numbers = list(runs)
    step = (WIDTH - LEFT - RIGHT) / len(numbers)
    across = {tasks: LEFT + step * (index + 0.5) for index, tasks in enumerate(numbers)}
    right = WIDTH - RIGHT

    def up(success):
        return HEIGHT - BOTTOM - success * (HEIGHT - TOP - BOTTOM)

    drawn = []
    for tenths in range(0, 11, 2):
        drawn.append(line(LEFT, up(tenths / 10), right, up(tenths / 10), "#ddd"))
        drawn.append(text(LEFT - 8, up(tenths / 10) + 4, f"{tenths / 10:.1f}", "end"))
    for tasks in numbers:
        drawn.append(text(across[tasks], HEIGHT - BOTTOM + 20, f"{int(tasks):,}".replace(",", " ") if tasks.isdigit() else tasks))
    drawn.append(text((LEFT + right) / 2, HEIGHT - 14, "number of training tasks (12 800 episodes in every run)"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    drawn.append(text(16, middle, "success", rotated=f' transform="rotate(-90 16 {middle})"'))
    for part, (name, colour) in PARTS.items():
        begun = [float(first[part]) for seeds in runs.values() for first, _ in seeds.values() if first[part]]
        points = []
        for tasks, seeds in runs.items():
            ended = [float(last[part]) for _, last in seeds.values() if last[part]]
            if not ended:
                continue
            mean = statistics.mean(ended)
            half = STUDENT_95[len(ended)] * statistics.stdev(ended) / len(ended) ** 0.5 if len(ended) > 1 else 0.0
            points.append((across[tasks], mean))
            drawn.append(line(across[tasks], up(max(mean - half, 0.0)), across[tasks], up(min(mean + half, 1.0)), colour, 2))
            drawn.append(f'<circle cx="{across[tasks]:.1f}" cy="{up(mean):.1f}" r="4" fill="{colour}"/>')
        if not points:
            continue
        path = " ".join(f"{x:.1f},{up(mean):.1f}" for x, mean in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        last_x, last_mean = points[-1]
        drawn.append(text(last_x + 14, up(last_mean) + (-6 if part == "training" else 4), name, "start", colour))
        if part != "training" and begun:
            base = up(statistics.mean(begun))
            drawn.append(line(LEFT, base, right, base, colour, 1.5, ' stroke-dasharray="4 4"'))
            drawn.append(text(right + 6, base + 4, f"base, {name}", "start", colour))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">'
    body = "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *drawn, "</svg>"])
    path = Path(__file__).parent.parent / "docs" / "images" / "generalisation.svg"
    path.write_text(body + "\n")
    print(path)


if __name__ == "__main__":
    main()
