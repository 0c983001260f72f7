"""Draws the pictures of docs/concepts.md: python docs/pictures/concepts.py"""

from __future__ import annotations

import itertools
from pathlib import Path

HERE = Path(__file__).parent
INK, GREY, LINE, PALE = "#1f2933", "#52606d", "#9aa5b1", "#f5f7fa"
BLUE, LIGHT_BLUE, ORANGE, LIGHT_ORANGE, GREEN, LIGHT_GREEN = (
    "#1d4ed8", "#e8f0fe", "#c2410c", "#fff1e6", "#15803d", "#e8f7ee",
)  # fmt: skip
DISCOUNT, STAGE = 0.9, 5
REWARD = {"root": 0.0, "a": 0.0, "b": 1.0, "c": 0.0}
VALUE = {"root": 2.0, "a": 3.0, "b": 4.0, "c": 1.0}
PARENT = {"a": "root", "b": "a", "c": "root"}


class Picture:
    """An SVG document; coordinates are pixels."""

    def __init__(self, name: str, title: str, width: int, height: int) -> None:
        self.path, self.parts = HERE / f"{name}.svg", []
        heads = "".join(
            f'<marker id="{color[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{color}"/></marker>'
            for color in (GREY, BLUE, ORANGE, GREEN)
        )
        self.add(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="15" fill="{INK}" '
            f"font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\"><title>{title}</title><defs>{heads}</defs>"
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        )

    def add(self, part: str) -> None:
        self.parts.append(part)

    def text(self, x: float, y: float, words: str, *, color: str = INK, size: int = 15, style: str = "") -> None:
        self.add(
            f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="{size}" text-anchor="middle" {style}>{words}</text>'
        )

    def left(self, x: float, y: float, words: str, *, color: str = INK, size: int = 15) -> None:
        self.text(x, y, words, color=color, size=size, style='style="text-anchor:start"')

    def box(self, x: float, y: float, width: float, height: float, fill: str, line: str, *lines: str) -> None:
        """A box with lines of text in its middle; the first is bold if there are more."""
        self.add(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" fill="{fill}" stroke="{line}"/>'
        )
        for number, words in enumerate(lines):
            middle = y + height / 2 + 5 + 19 * (number - (len(lines) - 1) / 2)
            self.text(x + width / 2, middle, words, style='font-weight="bold"' if not number and len(lines) > 1 else "")

    def circle(self, x: float, y: float, radius: float, fill: str, line: str, words: str) -> None:
        self.add(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{line}" stroke-width="2"/>')
        self.text(x, y + 5, words, style='font-weight="bold"')

    def arrow(
        self, points: list[tuple[float, float]], color: str = GREY, *, dashed: bool = False, wide: float = 2
    ) -> None:
        path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="5 5"' if dashed else ""
        self.add(
            f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{wide:g}"{dash} '
            f'marker-end="url(#{color[1:]})"/>'
        )

    def write(self) -> None:
        self.path.write_text("\n".join([*self.parts, "</svg>"]) + "\n", encoding="utf-8")


def rollout_return(first: str, last: str) -> float:
    """Equation 1: the rewards on the path from ``first`` to ``last``, and the value at its end."""
    path = [last]
    while path[0] != first:
        path.insert(0, PARENT[path[0]])
    rewards = sum(DISCOUNT**depth * REWARD[node] for depth, node in enumerate(path))
    return rewards + DISCOUNT ** len(path) * VALUE[last]


def below(node: str) -> list[str]:
    """``node`` and all nodes of its subtree."""
    return [node, *(one for child, parent in PARENT.items() if parent == node for one in below(child))]


def stage() -> None:
    """One stage over time: depth in the tree downwards."""
    picture = Picture("stage", "A stage: four imaginary steps and one real step", 1000, 400)
    rows = [150, 225, 300]
    places = {0: 150, 1: 310, 2: 470, 3: 630, 4: 790}
    for depth, y in enumerate(rows):
        picture.add(f'<line x1="110" y1="{y}" x2="880" y2="{y}" stroke="{LINE}" stroke-dasharray="2 6"/>')
        picture.text(55, y + 5, "root" if not depth else f"depth {depth}", color=GREY, size=14)
    picture.box(85, 30, 130, 48, LIGHT_ORANGE, ORANGE, "real state s")
    picture.box(855, 30, 130, 48, LIGHT_ORANGE, ORANGE, "next real state")
    picture.arrow([(215, 54), (853, 54)], ORANGE, wide=3)
    picture.text(534, 42, "the real step: the environment moves and pays its reward", color=ORANGE)
    picture.arrow([(150, 78), (150, 128)], GREY)
    picture.left(160, 108, "model.root", color=GREY, size=14)
    visited = [
        (places[0], 0, "root"),
        (places[1], 1, "a"),
        (places[2], 2, "b"),
        (places[3], 1, "c"),
        (places[4], 1, "a"),
    ]
    resets = {2, 3}
    for number, ((x, depth, _), (next_x, next_depth, _)) in enumerate(itertools.pairwise(visited)):
        start = rows[0] if number in resets else rows[depth]
        if number in resets:
            picture.arrow([(x + 24, rows[depth] - 12), (x + 55, rows[0] + 4)], GREY, dashed=True)
            picture.add(f'<circle cx="{x + 60}" cy="{rows[0]}" r="6" fill="{INK}"/>')
            picture.text(x + 8, (rows[depth] + rows[0]) / 2 - 8, "reset", color=GREY, size=14)
            x += 64
        picture.arrow([(x + (4 if number in resets else 20), start + 6), (next_x - 20, rows[next_depth] - 10)], BLUE)
    for number, (x, depth, name) in enumerate(visited):
        known = number == 4
        picture.circle(x, rows[depth], 22, "#ffffff" if known else LIGHT_BLUE, BLUE, name)
    picture.arrow([(790, 200), (790, 59)], ORANGE, wide=3)
    labels = ["k = 1", "k = 2", "k = 3", "k = 4", "k = 5"]
    actions = ["imagine →", "imagine →, reset", "imagine ←, reset", "imagine →", "real action →"]
    for number, x in places.items():
        picture.text(x, 345, labels[number], style='font-weight="bold"')
        picture.text(x, 366, actions[number], color=ORANGE if number == 4 else BLUE, size=14)
    picture.text(
        500, 391, "a is known when it is reached again, so the model is not asked a second time", color=GREY, size=14
    )
    picture.write()


def tree() -> None:
    """The tree at the end of that stage, and what the agent sees of it."""
    picture = Picture("tree", "The search tree and its representation", 1000, 440)
    places = {"root": (255, 95), "a": (375, 225), "c": (135, 225), "b": (375, 355)}
    for child, parent in PARENT.items():
        (x, y), (end, bottom) = places[parent], places[child]
        picture.arrow(
            [(x + (end - x) * 0.2, y + (bottom - y) * 0.2), (x + (end - x) * 0.78, y + (bottom - y) * 0.78)], BLUE
        )
    picture.text(330, 150, "→", color=BLUE, size=18)
    picture.text(180, 150, "←", color=BLUE, size=18)
    picture.text(392, 296, "→", color=BLUE, size=18)
    visits = {"a": 2, "b": 1, "c": 1}
    for name, (x, y) in places.items():
        picture.circle(x, y, 25, LIGHT_BLUE, BLUE, name)
        side = x + 34
        picture.left(side, y - 8, f"r = {REWARD[name]:g}, v = {VALUE[name]:g}", size=14)
        if name in visits:
            picture.left(side, y + 11, f"visits {visits[name]}", size=14)
        if name == "root":
            returns = [rollout_return("root", one) for one in below("root")]
            picture.left(side, y + 11, f"mean return {sum(returns) / len(returns):.2f}", size=14)
            picture.left(side, y + 30, f"max. return {max(returns):.2f}, of b", size=14, color=GREEN)
    picture.text(255, 40, "The tree after four imaginary steps", style='font-weight="bold"')
    lines = [
        f"g(root, b) = 0 + γ·0 + γ²·1 + γ³·4 = {rollout_return('root', 'b'):.2f}",
        f"g(root, c) = 0 + γ·0 + γ²·1 = {rollout_return('root', 'c'):.2f}  (γ = {DISCOUNT:g})",
    ]
    picture.left(40, 395, lines[0], size=14, color=GREEN)
    picture.left(40, 417, lines[1], size=14, color=GREY)
    picture.text(770, 40, "What the agent sees of it: 10A + K + 9 numbers", style='font-weight="bold"')
    parts = [
        (62, LIGHT_GREEN, GREEN, "the root: 5A + 2", "r, v, policy, action; children: mean, max, visits"),
        (62, LIGHT_BLUE, BLUE, "the current node: 5A + 2", "the same of the node just reached"),
        (62, PALE, LINE, "the rollout: 4", "its return, its rewards, the best return, γ^(d+1)"),
        (62, PALE, LINE, "time: K", "which of the K steps this is"),
        (62, PALE, LINE, "reset: 1", "whether the search is back at the root"),
    ]
    y = 62
    for height, fill, line, name, content in parts:
        picture.box(555, y, 430, height, fill, line, name, content)
        y += height + 9
    picture.write()


def dual() -> None:
    """The dual network, unrolled for two steps."""
    picture = Picture("dual", "The dual network, unrolled for two steps", 1000, 500)
    columns = [215, 500, 785]
    width, top, bottom = 150, 290, 130
    picture.left(18, top - 4 + 40, "state-reward", color=BLUE)
    picture.left(18, top + 15 + 40, "network", color=BLUE)
    picture.left(18, bottom + 36, "value-policy", color=GREEN)
    picture.left(18, bottom + 55, "network", color=GREEN)
    steps = ["t", "t+1", "t+2"]
    for number, (x, step) in enumerate(zip(columns, steps)):
        picture.box(
            x - width / 2,
            bottom,
            width,
            74,
            LIGHT_GREEN,
            GREEN,
            "h<tspan dy='-5' font-size='11'>vp</tspan><tspan dy='5'> </tspan>",
        )
        picture.box(
            x - width / 2,
            top,
            width,
            74,
            LIGHT_BLUE,
            BLUE,
            "h<tspan dy='-5' font-size='11'>sr</tspan><tspan dy='5'> </tspan>",
        )
        picture.arrow([(x, bottom), (x, 78)], GREEN)
        picture.text(x, 66, f"v̂, π̂ at {step}", color=GREEN)
        picture.arrow([(x - 40, top), (x - 40, bottom + 76)], BLUE)
        if number:
            picture.text(x - 48, 252, f"ŝ at {step}", color=BLUE, style='style="text-anchor:end"')
            picture.arrow([(x + 40, top), (x + 40, 262)], BLUE)
            picture.text(x + 44, 252, "r̂, end?", color=BLUE)
        else:
            picture.text(x - 48, 252, "s", color=ORANGE, style='style="text-anchor:end"')
        if number < 2:
            for y in (bottom + 37, top + 37):
                picture.arrow([(x + width / 2, y), (columns[number + 1] - width / 2 - 2, y)], GREY)
        if number:
            middle = (columns[number - 1] + x) / 2
            picture.text(middle, 458, f"action {number}", color=GREY)
            picture.arrow([(middle, 440), (middle, top + 62), (x - width / 2 - 2, top + 62)], GREY)
            picture.arrow([(middle, top + 62), (middle, bottom + 62), (x - width / 2 - 2, bottom + 62)], GREY)
    picture.box(140, 420, 150, 48, LIGHT_ORANGE, ORANGE, "real state s")
    picture.arrow([(215, 420), (215, top + 76)], ORANGE)
    picture.text(
        500,
        26,
        "The base policy π̂ and value v̂ learn from the agent's play; ŝ, r̂ and the end learn from the environment.",
    )
    picture.write()


if __name__ == "__main__":
    stage()
    tree()
    dual()
