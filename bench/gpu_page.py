"""gpu_page.py RESULTS [PAGE]: writes the tables of docs/gpu.md from the results of gpu_check.py.

Without PAGE, prints them. In PAGE, they replace what is between the two lines of MARKS. For gpt2, the model FLOPs
utilization (MFU) is added if the GPU is known: 6 operations per token and parameter outside of embeddings, as in
"Scaling Laws for Neural Language Models", divided by the dense bf16 peak of the data sheet.
"""
import json
import re
import sys
from pathlib import Path

MARKS = ("<!-- measured: gpu_page.py -->", "<!-- end of measured -->")
# Without sparsity. The first name that is part of the GPU's counts.
PEAK_BF16 = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H200 NVL": 835e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
GOALS = {("gpt2", "compiled"): 1.0, ("resnet50", "compiled"): 1.0, ("mlp", "eager"): 1.5}


def format_number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def mib(count):
    return f"{count / 2**20:,.0f} MiB"


def text_of(value):
    value = ", ".join(value) if isinstance(value, (list, dict)) else value
    return str(value).replace("|", "\\|").replace("\n", " ")


def mfu(result, gpu):
    peak = next((peak for name, peak in PEAK_BF16.items() if name in gpu), None)
    parameters = re.search(r"of (\d+) parameters, (\d+) of them embeddings", result.get("metric", ""))
    if peak is None or not parameters:
        return ""
    return f" (MFU {6 * (int(parameters[1]) - int(parameters[2])) * result['value'] / peak:.1%})"


def check_rows(results):
    rows = ["| check | result | seconds | |", "|---|---|---|---|"]
    shown = ("version", "glibc", "torch", "cuda", "cudnn", "first_start_s", "start_s", "graphs", "value", "unit", "interrupted_at", "steps",
             "released_mib", "files", "errors", "accuracy", "training_s", "samples_per_second", "copy_gb_per_s", "skipped", "kernels_passed", "reason",
             "warnings")
    for result in results.values():
        if result["part"] in ("gpt2", "resnet50", "steps", "published", "memory") and result["status"] == "passed" and \
                "warnings" not in result:
            continue
        values = [f"{key} {text_of(result[key])}" for key in shown if key in result]
        if "passed" in result:
            values.insert(0, f"{result['passed']} tests passed")
        rows.append(f"| {result['check']} | {result['status']} | {result['seconds']:.0f} | {'; '.join(values)} |")
    return rows


def passed(results, check):
    result = results.get(check)
    return result if result and result["status"] == "passed" else None


def own_steps(results, name):
    """The lower one if stoker was measured before and after the others."""
    measured = [result for check in (f"{name} stoker", f"{name} stoker again") if (result := passed(results, check))]
    return min(measured, key=lambda result: result["value"], default=None)


def step_rows(results, gpu):
    rows = ["| model | stoker | eager PyTorch | torch.compile | power, stoker | goal |", "|---|---|---|---|---|---|"]
    for name in ("gpt2", "resnet50", "mlp", "blstm"):
        own = own_steps(results, name)
        if own is None:
            continue
        peers = {how: passed(results, f"{name} {how}") for how in ("eager", "compiled")}
        cells = [text_of(own["metric"]), f"{format_number(own['value'])} {own['unit']}{mfu(own, gpu)}"]
        goal = ""
        for how, peer in peers.items():
            if peer is None:
                cells.append("-")
                continue
            ratio = own["value"] / peer["value"]
            cells.append(f"{format_number(peer['value'])}: {ratio:.2f} x")
            if (name, how) in GOALS:
                least = GOALS[name, how]
                goal = f"{least:g} x {how}: {'reached' if ratio >= least else 'not reached'}"
        own_parameters = re.search(r"of (\d+) parameters", own["metric"])
        different = [how for how, peer in peers.items() if peer and own_parameters and peer["parameters"] != int(own_parameters[1])]
        if different:
            goal += f" (invalid: {', '.join(different)} has another number of parameters)"
        cells += [f"{own['power_w']:.0f} W" if "power_w" in own else "-", goal]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def kernel_lines(results):
    plain, fused = own_steps(results, "gpt2"), results.get("gpt2 fused kernels")
    if plain is None or fused is None or "kernels" not in fused:
        return []

    def compared(value):
        if isinstance(value, str):
            return text_of(value)
        return f"{format_number(value)} {plain['unit']}, {value / plain['value']:.2f} x without"

    title = f"gpt2 with `train.fused_kernels` {text_of(fused['kernels'])}"
    if fused["status"] == "passed":
        return ["", f"{title}: {compared(fused['value'])}."]
    return ["", f"{title}: {text_of(fused['reason'])}. One by one:", "", "| kernel | gpt2 |", "|---|---|",
            *(f"| {kernel} | {compared(value)} |" for kernel, value in fused.get("singly", {}).items())]


def published_rows(results):
    rows = ["| experiment | row | total | per step | input wait | cores | accuracy after |", "|---|---|---|---|---|---|---|"]
    for name, result in results.items():
        if result["part"] == "published" and result["status"] == "passed":
            wait = "-" if result.get("wait_ms") is None else f"{result['wait_ms']:.3f} ms"
            cells = [name.split()[0], result["row"], f"{result['seconds_total']:.2f} s", f"{result['step_ms']:.3f} ms", wait,
                     f"{result['cores']:.2f}", str(result.get("after", "-"))]
            rows.append("| " + " | ".join(cells) + " |")
    return rows


def exported_rows(results):
    rows = ["| exported module | stoker | eager PyTorch | torch.compile |", "|---|---|---|---|"]
    for result in results.values():
        if result["part"] == "exported" and result["status"] == "passed":
            cells = [result["module"], f"{result['stokerd_ms']:.3f} ms per step"]
            for how in ("eager", "compiled"):
                cells.append(f"{result[f'{how}_ms']:.3f} ms: {result[f'stokerd_per_{how}']:.2f} x" if f"{how}_ms" in result else "-")
            rows.append("| " + " | ".join(cells) + " |")
    return rows


def memory_lines(result, copies):
    """What was measured, also before a failure."""
    lines = []
    before, after = result.get("before"), result.get("after")
    if before and after:
        lines += ["| GPT-2 in stokerd | before a profile | after |", "|---|---|---|"]
        for title in ("allocated", "peak_allocated", "reserved"):
            key = f"device_{title}_bytes"
            lines.append(f"| {title.replace('_', ' ')} | {mib(before[key])} | {mib(after[key])} |")
        step_ms, device_ms = result["step_time_ms"], result["device_time_ms"]
        idle = 1 - device_ms / step_ms if step_ms else 0
        lines += ["", f"Step {step_ms:.2f} ms, of which the device works {device_ms:.2f} ms (idle {idle:.1%}; goal: under 1 %).",
                  f"Graphs captured: {text_of(result['graphs'])}."]
    if "checkpoint_bytes" in result:
        stall_ms = result["stall_ms"]
        lines.append(f"Checkpoint of {mib(result['checkpoint_bytes'])}: stall {stall_ms:.0f} ms.")
        if copies:
            times = stall_ms / (result["checkpoint_bytes"] / copies["copy_gb_per_s"] / 1e6)
            lines.append(f"That is {times:.2f} x the copy to page-locked memory at {copies['copy_gb_per_s']} GB/s (goal: at most 1.2).")
    if "released" in result:
        released = result["released"]
        lines.append(f"`pause --release`: {mib(released['reserved_bytes'])} reserved; by nvidia-smi {released['used_mib']:,.0f} MiB in use.")
    sampled = {"power_w": "power {:.0f} W", "busy_percent": "device busy {:.0f} % of the time", "memory_mib": "memory at most {:,.0f} MiB"}
    if texts := [text.format(result[key]) for key, text in sampled.items() if key in result]:
        lines.append(f"By nvidia-smi: {', '.join(texts)}.")
    if result.get("trace_idle") is not None:
        lines.append(f"In the trace of a profile, whose steps run without graphs, the device is idle for {result['trace_idle']:.1%}.")
    if result.get("kernels"):
        lines += ["", "| kernel | share of the device's time |", "|---|---|"]
        lines += [f"| `{text_of(kernel['name'])}` | {kernel['share']:.1%} |" for kernel in result["kernels"]]
    return lines


def read_results(path):
    """Without a line that was not written to its end, because a call was ended."""
    results = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            results.append(json.loads(line))
        except ValueError:
            pass
    return results


def page_of(all_results):
    """The tables, one section per device; of repeated checks, the last one counts."""
    lines = []
    for gpu in dict.fromkeys(result["gpu"] for result in all_results):
        results = {result["check"]: result for result in all_results if result["gpu"] == gpu}
        kind = " (`--quick`: tiny sizes, which measure nothing)" if any(result["quick"] for result in results.values()) else ""
        lines += [f"### {gpu}{kind}", "", *check_rows(results)]
        for rows in (step_rows(results, gpu), exported_rows(results), published_rows(results)):
            if len(rows) > 2:
                lines += ["", *rows]
        lines += kernel_lines(results)
        memory = results.get("gpt2 in stokerd")
        if memory:
            lines += ["", *memory_lines(memory, passed(results, "copies to the host"))]
        lines.append("")
    return "\n".join(lines)


def replace_section(page, tables):
    start, end = (page.index(mark) for mark in MARKS)
    return page[: start + len(MARKS[0])] + "\n\n" + tables + "\n" + page[end:]


def main():
    tables = page_of(read_results(Path(sys.argv[1])))
    if len(sys.argv) < 3:
        print(tables)
        return
    path = Path(sys.argv[2])
    path.write_text(replace_section(path.read_text(), tables))


if __name__ == "__main__":
    main()
