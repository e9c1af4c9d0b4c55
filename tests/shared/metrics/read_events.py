"""Prints what TensorBoard reads of a directory of event files, as JSON: scalars and texts per tag."""
import json
import math
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"cannot import tensorboard: {error}", file=sys.stderr)
    sys.exit(77)


def main(directory: str) -> None:
    read = event_accumulator.EventAccumulator(directory, size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    # The loader behind the web page: there every summary is a tensor.
    page = plugin_event_accumulator.EventAccumulator(directory, size_guidance={"tensors": 0}, tensor_size_guidance={"scalars": 0, "text": 0, "images": 0})
    page.Reload()
    number = lambda x: x if math.isfinite(x) else str(x)
    result = {"scalars": {}, "page_scalars": {}, "texts": {}}
    images = {}
    for tag in read.Tags()["scalars"]:
        result["scalars"][tag] = [[e.step, number(e.value)] for e in read.Scalars(tag)]
    for tag in page.Tags()["tensors"]:
        plugin = page.SummaryMetadata(tag).plugin_data.plugin_name
        values = [[e.step, tensor_util.make_ndarray(e.tensor_proto)] for e in page.Tensors(tag)]
        if plugin == "scalars":
            result["page_scalars"][tag] = [[step, number(float(value))] for step, value in values]
        elif plugin == "images":  # width, height, the picture
            images[tag] = [[step, int(value[0]), int(value[1]), len(value[2])] for step, value in values]
        else:
            result["texts"][tag] = [[plugin, step, value.tolist()[0].decode()] for step, value in values]
    if images:
        result["images"] = images
    print(json.dumps(result, sort_keys=True))


main(sys.argv[1])
