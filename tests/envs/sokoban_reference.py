"""The rules of Sokoban in obvious plain Python, to compare the native engine with."""

from __future__ import annotations

import numpy as np

SYMBOLS = "# .$*@+"
DIRECTIONS = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}


class ReferenceSokoban:
    """One board: a set of open squares, a set of targets, a set of boxes and the player's square."""

    def __init__(self, text: str) -> None:
        rows = text.split("\n")
        self.height, self.width = len(rows), len(rows[0])
        squares = {(y, x): symbol for y, row in enumerate(rows) for x, symbol in enumerate(row)}
        self.open = {square for square, symbol in squares.items() if symbol != "#"}
        self.targets = {square for square, symbol in squares.items() if symbol in ".*+"}
        self.boxes = {square for square, symbol in squares.items() if symbol in "$*"}
        self.player = next(square for square, symbol in squares.items() if symbol in "@+")

    def step(self, action: int) -> tuple[float, bool]:
        """Returns the reward and whether this step has solved the board."""
        was_solved = self.boxes <= self.targets
        on_target = len(self.boxes & self.targets)
        dy, dx = DIRECTIONS[action]
        ahead = (self.player[0] + dy, self.player[1] + dx)
        behind = (ahead[0] + dy, ahead[1] + dx)
        if action != 0:
            if ahead in self.boxes and behind in self.open and behind not in self.boxes:
                self.boxes = (self.boxes - {ahead}) | {behind}
            if ahead in self.open and ahead not in self.boxes:
                self.player = ahead
        gain = len(self.boxes & self.targets) - on_target
        solved = self.boxes <= self.targets and not was_solved
        return -0.01 + gain + (10 if solved else 0), solved

    def text(self) -> str:
        rows = []
        for y in range(self.height):
            row = ""
            for x in range(self.width):
                square, on_target = (y, x), (y, x) in self.targets
                if square not in self.open:
                    row += "#"
                elif square in self.boxes:
                    row += "*" if on_target else "$"
                elif square == self.player:
                    row += "+" if on_target else "@"
                else:
                    row += "." if on_target else " "
            rows.append(row)
        return "\n".join(rows)

    def planes(self) -> np.ndarray:
        """The one-hot observation, uint8 [7, H, W]."""
        observation = np.zeros((len(SYMBOLS), self.height, self.width), np.uint8)
        for y, row in enumerate(self.text().split("\n")):
            for x, symbol in enumerate(row):
                observation[SYMBOLS.index(symbol), y, x] = 1
        return observation
