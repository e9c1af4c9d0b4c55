"""published_table.py LINES [SVG]: prints the rows of scripts/published.sh as Markdown tables, and plots their totals.

Each number is the median over the rounds; the total is followed by its least and its greatest.
"""
import json
import statistics
import sys

BAR, GAP, LEFT, WIDTH = 18, 8, 190, 720


def median(rounds, field):
    values = [each[field] for each in rounds if each.get(field) is not None]
    return statistics.median(values) if values else None


def text(value, digits, suffix=""):
    return "-" if value is None else f"{value:.{digits}f}{suffix}"


def spread(rounds):
    seconds = [each["seconds"] for each in rounds]
    return "" if len(seconds) == 1 else f" [{min(seconds):.2f}, {max(seconds):.2f}]"


def wait_share(rounds):
    wait, step = median(rounds, "wait_ms"), median(rounds, "step_ms")
    return None if wait is None else 100 * wait / step


def print_table(rows):
    print("| row | total | per step | input wait | of the step | cores | accuracy before | after |")
    print("|---|---|---|---|---|---|---|---|")
    for name, rounds in rows.items():
        cells = [
            name,
            text(median(rounds, "seconds"), 2, " s") + spread(rounds),
            text(median(rounds, "step_ms"), 2, " ms"),
            text(median(rounds, "wait_ms"), 3, " ms"),
            text(wait_share(rounds), 1, " %"),
            text(median(rounds, "cores"), 2),
            text(median(rounds, "before"), 3),
            text(median(rounds, "after"), 3),
        ]
        print("| " + " | ".join(cells) + " |")
    print()


def plot(groups):
    """A horizontal bar for the total of each row, one group per table."""
    lines, y = [], 10
    for title, rows in groups.items():
        totals = {name: median(rounds, "seconds") for name, rounds in rows.items()}
        scale = (WIDTH - LEFT - 70) / max(totals.values())
        lines.append(f'<text x="0" y="{y + 12}" font-weight="bold">{title}</text>')
        y += BAR + GAP
        for name, total in totals.items():
            color = "#0b6e99" if name.startswith("stoker") else "#9aa5b1"
            lines.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{name}</text>')
            lines.append(f'<rect x="{LEFT}" y="{y}" width="{total * scale:.1f}" height="{BAR}" fill="{color}"/>')
            lines.append(f'<text x="{LEFT + total * scale + 6:.1f}" y="{y + 13}">{total:.2f} s</text>')
            y += BAR + GAP
        y += GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif" font-size="12">'
    background = f'<rect width="{WIDTH}" height="{y}" fill="white"/>'
    return "\n".join([head, background, *lines, "</svg>"]) + "\n"


def main():
    groups = {}
    with open(sys.argv[1]) as lines:
        for line in map(json.loads, lines):
            title = line["experiment"] + (", simulated device" if line["simulated"] else "")
            groups.setdefault(title, {}).setdefault(line["row"], []).append(line)
    for title, rows in groups.items():
        first = next(iter(rows.values()))
        print(f"### {title}: {first[0]['steps']} steps, median of {len(first)}\n")
        print_table(rows)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w") as file:
            file.write(plot(groups))


if __name__ == "__main__":
    main()
