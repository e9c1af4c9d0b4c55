#include "daemon/app/tensorboard_summary.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/app/run_graph.h"
#include "daemon/app/sample_summary.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/tensorboard_messages.h"
#include "shared/ring/batch_layout.h"

namespace stoker::app {
namespace {

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

template <typename Add>
void write_events(const run::RunLayout& layout, Clock& clock, Add&& add) {
  auto file = metrics::EventFile::create(default_file_system(), clock, layout.tensorboard_dir(),
                                         std::nullopt);
  Status written = file.status();
  if (file.ok()) {
    add(**file);
    written = (*file)->flush();
  }
  if (!written.ok()) log_warn("tensorboard write failed", {{"error", written.to_string()}});
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

void write_start_summary(const config::Config& config, const run::RunLayout& layout, Clock& clock) {
  if (!config.metrics.tensorboard) return;
  std::vector<metrics::Setting> hparams;
  for (const auto& [key, yaml] : config::result_affecting_settings(config))
    hparams.push_back(to_hparam(key, yaml));
  write_events(layout, clock, [&](metrics::EventFile& file) {
    file.add_hparams(metrics::kHparamsStartTag,
                     metrics::encode_hparams_start(hparams, to_seconds(clock)));
  });
}

void write_graph(const config::Config& config, const data::Dataset& data, train::TracedGraph traced,
                 const run::RunLayout& layout, Clock& clock, metrics::MetricsWriter& metrics) {
  std::string graph = metrics::encode_graph(build_run_graph(config, data, std::move(traced)));
  const bool is_posted = metrics.post([&layout, &clock, graph = std::move(graph)] {
    write_events(layout, clock, [&](metrics::EventFile& file) { file.add_graph(graph); });
  });
  if (!is_posted) log_warn("tensorboard write failed", {{"error", "the disk is too slow"}});
}

void write_end_summary(const config::Config& config, const run::RunLayout& layout, Clock& clock) {
  if (!config.metrics.tensorboard) return;
  write_events(layout, clock, [&](metrics::EventFile& file) {
    file.add_hparams(metrics::kHparamsEndTag,
                     metrics::encode_hparams_end(/*is_success=*/true, to_seconds(clock)));
  });
}

std::function<void(const feed::ReceivedBatch&)> first_batch_summarizer(
    const config::Config& config, const data::Dataset& data, metrics::MetricsWriter& metrics) {
  if (!config.metrics.tensorboard || config.metrics.num_logged_samples == 0) return {};
  const auto max_index = static_cast<size_t>(config.metrics.num_logged_samples);
  return [max_index, names = data.class_names(), &metrics](const feed::ReceivedBatch& batch) {
    const auto samples = std::make_shared<const Samples>(copy_first(batch, max_index));
    (void)metrics.post([samples, spec = batch.layout.sample(), names, &metrics] {
      report(summarize_samples(spec, samples->components, samples->count, names), metrics);
    });
  };
}

}  // namespace stoker::app
