#!/usr/bin/env python3
"""Draws docs/images/modules.svg: the modules, their sizes and their dependencies.

Usage: scripts/draw_modules.py [--check]

A module is a folder with sources below shared, feeder, daemon, evaluator or ctl. An arrow stands for at least one
#include. Transitive arrows are omitted: A to C if A includes B and B includes C.
--check writes nothing and exits with 1 if the committed diagram is not current.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGE = ROOT / "docs/images/modules.svg"
INCLUDE = re.compile(r'^#include "([^"]+)/[^/"]+"', re.M)
COLORS = {"shared": "#dbe7f3", "feeder": "#e3f0da", "daemon": "#fbe5d0", "evaluator": "#eadcf4", "ctl": "#f8dfe4"}
WIDTH, ROW, BOX_HEIGHT, GAP, MARGIN = 1180, 104, 46, 18, 16


def read_modules():
    """Number of lines and files of each module, and the modules that it includes."""
    lines, files = collections.Counter(), collections.Counter()
    uses = collections.defaultdict(set)
    for top in COLORS:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            module = str(path.parent.relative_to(ROOT))
            text = path.read_text(encoding="utf-8")
            lines[module] += text.count("\n")
            files[module] += 1
            uses[module] |= {name for name in INCLUDE.findall(text) if name != module}
    return lines, files, {module: sorted(uses[module] & lines.keys()) for module in sorted(lines)}


def reduce_edges(uses):
    """The transitive reduction: removes edges that a longer path implies."""

    def reachable(start, seen):
        for module in uses[start]:
            if module not in seen:
                seen.add(module)
                reachable(module, seen)
        return seen

    below = {module: reachable(module, set()) for module in uses}
    return {module: [low for low in direct if not any(low in below[other] for other in direct if other != low)]
            for module, direct in uses.items()}


def layers_of(uses):
    """Modules by level: each is above all modules that it includes."""
    level = {}

    def level_of(module):
        if module not in level:
            level[module] = 1 + max((level_of(low) for low in uses[module]), default=-1)
        return level[module]

    for module in uses:
        level_of(module)
    # Move each module as close to its users as possible, so that arrows are short.
    for module in sorted(uses, key=lambda m: -level[m]):
        level[module] = min((level[user] - 1 for user in uses if module in uses[user]), default=level[module])
    rows = collections.defaultdict(list)
    for module in uses:
        rows[level[module]].append(module)
    return [rows[i] for i in sorted(rows)]


def order_rows(rows, edges):
    """Sorts each row by the mean position of its neighbors, repeatedly, to reduce crossing arrows."""
    users = collections.defaultdict(list)
    for module, lows in edges.items():
        for low in lows:
            users[low].append(module)
    place = {module: (i + 0.5) / len(row) for row in rows for i, module in enumerate(row)}
    for turn in range(24):
        neighbors = edges if turn % 2 == 0 else users
        for row in rows if turn % 2 == 0 else reversed(rows):
            row.sort(key=lambda m: (sum(place[n] for n in neighbors[m]) / len(neighbors[m]) if neighbors[m] else place[m], m))
            place.update({module: (i + 0.5) / len(row) for i, module in enumerate(row)})


def draw(lines, files, uses):
    edges = reduce_edges(uses)
    rows = layers_of(uses)
    order_rows(rows, edges)
    box = {}
    for level, row in enumerate(rows):
        widths = [max(9 * len(module) + 22, 3.2 * lines[module] ** 0.5, 124) for module in row]
        free = WIDTH - 2 * MARGIN - sum(widths)
        gap = max(GAP, free / (len(row) + 1))
        x = MARGIN + (WIDTH - 2 * MARGIN - sum(widths) - gap * (len(row) - 1)) / 2
        y = MARGIN + (len(rows) - 1 - level) * ROW
        for module, width in zip(row, widths):
            box[module] = (x, y, width)
            x += width + gap
    height = MARGIN * 2 + (len(rows) - 1) * ROW + BOX_HEIGHT
    left = min(x for x, _, _ in box.values()) - MARGIN
    right = max(x + width for x, _, width in box.values()) + MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{min(0, left):.0f} 0 {max(WIDTH, right) - min(0, left):.0f} {height}" '
           'font-family="sans-serif" font-size="13">',
           "<title>Modules of stoker, their sizes, and which include which</title>",
           f'<rect x="{min(0, left):.0f}" width="{max(WIDTH, right) - min(0, left):.0f}" height="{height}" fill="#ffffff"/>',
           '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
           '<path d="M0,1 L7,4 L0,7 z" fill="#8a8f98"/></marker></defs>']
    for module, lows in edges.items():
        x, y, width = box[module]
        for i, low in enumerate(sorted(lows, key=lambda m: box[m][0])):
            low_x, low_y, low_width = box[low]
            x1, y1 = x + width * (i + 1) / (len(lows) + 1), y + BOX_HEIGHT
            x2, y2 = low_x + low_width / 2, low_y - 1
            bend = (y2 - y1) / 2
            out.append(f'<path d="M{x1:.1f},{y1} C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2}" fill="none" '
                       'stroke="#8a8f98" stroke-width="1.2" marker-end="url(#arrow)"/>')
    for module, (x, y, width) in box.items():
        color = COLORS[module.split("/")[0]]
        out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BOX_HEIGHT}" rx="6" fill="{color}" stroke="#5b626d"/>')
        out.append(f'<text x="{x + width / 2:.1f}" y="{y + 19}" text-anchor="middle" font-weight="600">{module}</text>')
        out.append(f'<text x="{x + width / 2:.1f}" y="{y + 36}" text-anchor="middle" font-size="11" fill="#444a52">'
                   f"{files[module]} files, {lines[module]:,} lines</text>")
    return "\n".join(out) + "\n</svg>\n"


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    image = draw(*read_modules())
    if not arguments:
        IMAGE.write_text(image, encoding="utf-8")
        return
    edges = lambda svg: re.findall(r'font-weight="600">([^<]+)<|marker-end', svg)
    if not IMAGE.exists() or edges(IMAGE.read_text(encoding="utf-8")) != edges(image):
        sys.exit(f"{IMAGE.relative_to(ROOT)} is out of date; run scripts/draw_modules.py")


if __name__ == "__main__":
    main(sys.argv[1:])
