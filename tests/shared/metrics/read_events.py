"""Prints what TensorBoard reads from a directory of event files, as JSON: scalars and texts per tag and, if
present, images, histograms, precision-recall curves, the graph, the HParams settings and the layout of the Custom
Scalars page."""
import json
import math
import sys

try:
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    from google.protobuf import json_format
    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util
except ImportError as error:
    print(f"cannot import tensorboard: {error}", file=sys.stderr)
    sys.exit(77)


def nodes_of(graph) -> list:
    """Name, operation, inputs, shapes and other attributes of each node."""
    found = []
    for node in graph.node:
        shapes = [[dim.size for dim in shape.dim] for shape in node.attr["_output_shapes"].list.shape]
        others = {key: value.i or value.s.decode() for key, value in node.attr.items() if key != "_output_shapes"}
        found.append([node.name, node.op, list(node.input), shapes, others])
    return found


def read_events(directory: str) -> dict:
    read = event_accumulator.EventAccumulator(directory, size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    # The loader of the web page, which converts every summary to a tensor.
    page = plugin_event_accumulator.EventAccumulator(directory, size_guidance={"tensors": 0}, tensor_size_guidance={"scalars": 0, "text": 0, "images": 0})
    page.Reload()
    number = lambda x: x if math.isfinite(x) else str(x)
    result = {"scalars": {}, "page_scalars": {}, "texts": {}}
    images, histograms, hparams, pr_curves = {}, {}, {}, {}
    for tag in read.Tags()["scalars"]:
        result["scalars"][tag] = [[e.step, number(e.value)] for e in read.Scalars(tag)]
    for tag in page.Tags()["tensors"]:
        plugin = page.SummaryMetadata(tag).plugin_data.plugin_name
        if plugin == "hparams":
            content = plugin_data_pb2.HParamsPluginData.FromString(page.SummaryMetadata(tag).plugin_data.content)
            hparams[tag] = json_format.MessageToDict(content)
            continue
        if plugin == "graphs":
            continue
        if plugin == "custom_scalars":  # as the Custom Scalars page reads it
            content = layout_pb2.Layout.FromString(page.Tensors(tag)[0].tensor_proto.string_val[0])
            result["layout"] = {tag: json_format.MessageToDict(content)}
            continue
        values = [[e.step, tensor_util.make_ndarray(e.tensor_proto)] for e in page.Tensors(tag)]
        if plugin == "scalars":
            result["page_scalars"][tag] = [[step, number(float(value))] for step, value in values]
        elif plugin == "images":  # width, height, encoded image
            images[tag] = [[step, int(value[0]), int(value[1]), len(value[2])] for step, value in values]
        elif plugin == "histograms":  # rows of (left edge, right edge, count)
            histograms[tag] = [[step, value.tolist()] for step, value in values]
        elif plugin == "pr_curves":  # rows: counts of true and false positives and negatives, precision, recall
            pr_curves[tag] = [[step, value.tolist()] for step, value in values]
        else:
            result["texts"][tag] = [[plugin, step, value.tolist()[0].decode()] for step, value in values]
    for name, found in (("images", images), ("histograms", histograms), ("hparams", hparams), ("pr_curves", pr_curves)):
        if found:
            result[name] = found
    if read.Tags()["graph"]:
        result["graph"] = nodes_of(read.Graph())
    return result


if __name__ == "__main__":
    print(json.dumps(read_events(sys.argv[1]), sort_keys=True))
