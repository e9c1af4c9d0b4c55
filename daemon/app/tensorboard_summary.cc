#include "daemon/app/tensorboard_summary.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/app/sample_summary.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/tensorboard_messages.h"
#include "shared/ring/batch_layout.h"

namespace stoker::app {
namespace {

// ---- Graph

using metrics::GraphNode;

constexpr const char* kWorkers = "feed/workers";
constexpr const char* kRing = "feed/ring";

std::string output_name(const std::string& node, size_t output) {
  return output == 0 ? node : node + ":" + std::to_string(output);
}

GraphNode files_node(const std::string& name, const config::DatasetConfig& dataset) {
  return {.name = "feed/" + name, .type = std::string(config::to_string(dataset.format()))};
}

// One node, or one for each dataset of a mixture.
std::vector<GraphNode> files_nodes(const config::Config& config) {
  const config::DatasetConfig& train = config.data.at("train");
  if (!train.combines_datasets()) return {files_node("files", train)};
  std::vector<GraphNode> nodes;
  for (const std::string& name : train.components())
    nodes.push_back(files_node("files_" + name, config.data.at(name)));
  return nodes;
}

// The outputs are the tensors of a sample.
GraphNode workers_node(const config::FeedConfig& feed, const data::DatasetInfo& data) {
  GraphNode node{.name = kWorkers, .type = "worker_processes"};
  if (feed.producers == config::ProducerMode::kExternal) {
    node.type = "external_producers";
  } else if (feed.num_processes == 0) {
    node.type = "worker_threads";
  }
  node.attributes.emplace_back("num_processes", int64_t{feed.num_processes});
  if (feed.num_workers) node.attributes.emplace_back("num_workers", int64_t{*feed.num_workers});
  node.attributes.emplace_back("num_samples", static_cast<int64_t>(data.size));
  for (const TensorSpec& spec : data.spec) node.output_shapes.push_back(spec.shape);
  return node;
}

// The outputs are the tensors of a batch.
GraphNode ring_node(const config::Config& config, const data::DatasetInfo& data) {
  GraphNode node{.name = kRing, .type = "ring"};
  node.attributes.emplace_back("prefetch_batches", int64_t{config.feed.prefetch_batches});
  for (size_t i = 0; i < data.spec.size(); ++i) {
    node.inputs.push_back(output_name(kWorkers, i));
    std::vector<int64_t> shape{config.train.micro_batch_size};
    const std::vector<int64_t>& sample = data.spec[i].shape;
    shape.insert(shape.end(), sample.begin(), sample.end());
    node.output_shapes.push_back(std::move(shape));
  }
  return node;
}

// The data flow of a run: files, worker processes, ring, the traced part from the batch to the loss,
// and the optimizer.
std::vector<GraphNode> build_run_graph(const config::Config& config, const data::DatasetInfo& data,
                                       train::TracedGraph traced) {
  std::vector<GraphNode> nodes = files_nodes(config);
  GraphNode workers = workers_node(config.feed, data);
  for (const GraphNode& files : nodes) workers.inputs.push_back(files.name);
  nodes.push_back(std::move(workers));
  nodes.push_back(ring_node(config, data));
  size_t output = 0;
  for (GraphNode& node : traced.nodes) {
    if (node.name.starts_with("batch/")) node.inputs = {output_name(kRing, output++)};
    nodes.push_back(std::move(node));
  }
  GraphNode optimizer{
      .name = "optimizer/" + std::string(config::to_string(config.optimizer.name())),
      .type = std::string(config::to_string(config.optimizer.name()))};
  if (!traced.loss.empty()) optimizer.inputs = {traced.loss};
  nodes.push_back(std::move(optimizer));
  return nodes;
}

// ---- Event files and samples

double to_seconds(Clock& clock) {
  return std::chrono::duration<double>(clock.wall().time_since_epoch()).count();
}

// Converts a YAML scalar to the type that YAML gives it.
metrics::Setting to_hparam(const std::string& key, const std::string& yaml) {
  if (yaml == "true" || yaml == "false") return {key, yaml == "true"};
  double number = 0;
  const char* const end = yaml.data() + yaml.size();
  const auto parsed = std::from_chars(yaml.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) return {key, number};
  const bool is_quoted = yaml.size() >= 2 && yaml.front() == '"' && yaml.back() == '"';
  return {key, is_quoted ? yaml.substr(1, yaml.size() - 2) : yaml};
}

// Charts with the curves of training and of all evaluated datasets, and with the parts of a step.
std::vector<metrics::ChartCategory> make_layout(const std::vector<std::string>& training_metrics) {
  metrics::ChartCategory results{.title = "training and validation", .charts = {}};
  results.charts.push_back({.title = "loss", .tags = {"^loss$"}});
  for (const std::string& name : training_metrics)
    results.charts.push_back({.title = name, .tags = {"^(train/)?" + name + "$"}});
  metrics::ChartCategory step{.title = "time of a step", .charts = {}};
  step.charts.push_back(
      {.title = "ms",
       .tags = {"^perf/step_time_ms$", "^perf/data_wait_ms$", "^perf/checkpoint_stall_ms$"}});
  return {results, step};
}

// The first samples of a batch.
struct Samples {
  std::vector<std::vector<std::byte>> components;
  size_t count = 0;
};

Samples copy_first(const feed::ReceivedBatch& batch, size_t max_index) {
  const ring::BatchLayout& layout = batch.layout;
  Samples samples;
  samples.count = std::min<size_t>(max_index, layout.batch());
  for (size_t t = 0; t < layout.sample().size(); ++t) {
    const auto bytes = batch.tensors[t].first(samples.count * layout.sample()[t].bytes());
    samples.components.emplace_back(bytes.begin(), bytes.end());
  }
  return samples;
}

void report(const Result<SampleSummary>& views, metrics::MetricsWriter& metrics) {
  if (!views.ok())
    return log_warn("sample summary not written", {{"error", views.status().to_string()}});
  metrics.report_text("samples", 0, views->table);
  if (!views->png.empty()) metrics.report_image("samples_image", 0, views->png);
}

}  // namespace

void write_start_summary(const config::Config& config,
                         const std::vector<std::string>& training_metrics, Clock& clock,
                         metrics::MetricsWriter& metrics) {
  std::vector<metrics::Setting> hparams;
  for (const auto& [key, yaml] : config::result_affecting_settings(config))
    hparams.push_back(to_hparam(key, yaml));
  metrics.report_events([content = metrics::encode_hparams_start(hparams, to_seconds(clock)),
                         layout = make_layout(training_metrics)](metrics::EventFile& file) {
    file.add_hparams(metrics::kHparamsStartTag, content);
    file.add_layout(layout);
  });
}

void write_graph(const config::Config& config, const data::DatasetInfo& data,
                 train::TracedGraph traced, metrics::MetricsWriter& metrics) {
  metrics.report_events(
      [graph = metrics::encode_graph(build_run_graph(config, data, std::move(traced)))](
          metrics::EventFile& file) { file.add_graph(graph); });
}

void write_end_summary(Clock& clock, metrics::MetricsWriter& metrics) {
  metrics.report_events(
      [content = metrics::encode_hparams_end(/*is_success=*/true, to_seconds(clock))](
          metrics::EventFile& file) { file.add_hparams(metrics::kHparamsEndTag, content); });
}

std::function<void(const feed::ReceivedBatch&)> first_batch_summarizer(
    const config::Config& config, const data::DatasetInfo& data, metrics::MetricsWriter& metrics) {
  if (!config.metrics.tensorboard || config.metrics.num_logged_samples == 0) return {};
  const auto max_index = static_cast<size_t>(config.metrics.num_logged_samples);
  return [max_index, names = data.class_names, &metrics](const feed::ReceivedBatch& batch) {
    const auto samples = std::make_shared<const Samples>(copy_first(batch, max_index));
    (void)metrics.post([samples, spec = batch.layout.sample(), names, &metrics] {
      report(summarize_samples(spec, samples->components, samples->count, names), metrics);
    });
  };
}

}  // namespace stoker::app
