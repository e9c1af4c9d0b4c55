"""Prints what the pages of TensorBoard that compare runs show of all runs below a directory, as JSON: of HParams the
settings that differ and the settings and metrics of each run, of PR Curves the last curve of each tag and run; and the names of
all runs."""
import json
import os
import sys

try:
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups
    from tensorboard.plugins.pr_curve import pr_curves_plugin
    from google.protobuf import json_format
except ImportError as error:
    print(f"cannot import tensorboard: {error}", file=sys.stderr)
    sys.exit(77)


def hparams_page(context, request) -> dict:
    page = backend_context.Context(context)
    experiment = get_experiment.Handler(request, page, "", api_pb2.GetExperimentRequest()).run()
    columns = [api_pb2.ColParams(metric=metric.name) for metric in experiment.metric_infos]
    asked = api_pb2.ListSessionGroupsRequest(col_params=columns, slice_size=100, allowed_statuses=list(range(4)))
    groups = list_session_groups.Handler(request, page, "", asked).run().session_groups
    shown = {}
    for group in groups:
        metrics = {f"{value.name.group}/{value.name.tag}": value.value for value in group.metric_values}
        shown[group.name] = {"hparams": {key: json_format.MessageToDict(value) for key, value in group.hparams.items()}, "metrics": metrics}
    return {"differs": sorted(info.name for info in experiment.hparam_infos if info.differs), "runs": shown}


def pr_curves_page(context, request) -> dict:
    page = pr_curves_plugin.PrCurvesPlugin(context)
    return {run: {tag: page.pr_curves_impl(request, "", [run], tag)[run][-1] for tag in tags} for run, tags in page.tags_impl(request, "").items()}


def main(directory: str) -> None:
    runs = plugin_event_multiplexer.EventMultiplexer().AddRunsFromDirectory(directory)
    runs.Reload()
    context = base_plugin.TBContext(logdir=os.path.abspath(directory), data_provider=data_provider.MultiplexerDataProvider(runs, directory))
    request = RequestContext()
    print(json.dumps({"hparams": hparams_page(context, request), "pr_curves": pr_curves_page(context, request), "names": sorted(runs.Runs())}, sort_keys=True))


main(sys.argv[1])
