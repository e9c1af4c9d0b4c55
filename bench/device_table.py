"""device_table.py LINES [GPU]: prints the lines of stoker-bench-device as a Markdown table.

For gpt2, the model FLOPs utilization (MFU) is added if GPU is a known device: 6 operations per token and parameter
outside of embeddings, as in "Scaling Laws for Neural Language Models", divided by the dense bf16 peak of the data sheet.
"""
import json
import re
import sys

PEAK_BF16 = {"H100": 989e12, "H200": 989e12, "A100": 312e12}


def mfu(line, value, gpu):
    peak = next((peak for name, peak in PEAK_BF16.items() if name in gpu), None)
    parameters = re.search(r"of (\d+) parameters, (\d+) of them embeddings", line["metric"])
    if peak is None or line["bench"] != "device-gpt2" or not parameters:
        return ""
    return f" (MFU {6 * (int(parameters.group(1)) - int(parameters.group(2))) * value / peak:.1%})"


def format_number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main():
    gpu = sys.argv[2] if len(sys.argv) > 2 else ""
    print("| benchmark | stoker | baseline | ratio |\n|---|---|---|---|")
    with open(sys.argv[1]) as lines:
        for line in map(json.loads, lines):
            value = f"{format_number(line['value'])} {line['unit']}{mfu(line, line['value'], gpu)}"
            baseline, ratio = "none", ""
            if line.get("baseline"):
                baseline, ratio = f"{line['baseline']}: {format_number(line['baseline_value'])}", f"{line['ratio']:.2f}"
            print(f"| {line['metric']} | {value} | {baseline} | {ratio} |")


if __name__ == "__main__":
    main()
