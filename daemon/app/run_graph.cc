#include "daemon/app/run_graph.h"

#include <string>
#include <utility>

namespace stoker::app {
namespace {

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
GraphNode workers_node(const config::FeedConfig& feed, const data::Dataset& data) {
  GraphNode node{.name = kWorkers, .type = "worker_processes"};
  if (feed.producers == config::ProducerMode::kExternal) {
    node.type = "external_producers";
  } else if (feed.num_processes == 0) {
    node.type = "worker_threads";
  }
  node.attributes.emplace_back("num_processes", int64_t{feed.num_processes});
  if (feed.num_workers) node.attributes.emplace_back("num_workers", int64_t{*feed.num_workers});
  node.attributes.emplace_back("num_samples", static_cast<int64_t>(data.size()));
  for (const TensorSpec& spec : data.spec()) node.output_shapes.push_back(spec.shape);
  return node;
}

// The outputs are the tensors of a batch.
GraphNode ring_node(const config::Config& config, const data::Dataset& data) {
  GraphNode node{.name = kRing, .type = "ring"};
  node.attributes.emplace_back("prefetch_batches", int64_t{config.feed.prefetch_batches});
  for (size_t i = 0; i < data.spec().size(); ++i) {
    node.inputs.push_back(output_name(kWorkers, i));
    std::vector<int64_t> shape{config.train.micro_batch_size};
    const std::vector<int64_t>& sample = data.spec()[i].shape;
    shape.insert(shape.end(), sample.begin(), sample.end());
    node.output_shapes.push_back(std::move(shape));
  }
  return node;
}

}  // namespace

std::vector<GraphNode> build_run_graph(const config::Config& config, const data::Dataset& data,
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

}  // namespace stoker::app
