#include "daemon/daemon_app/run_views.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/daemon_app/model_parts.h"
#include "daemon/daemon_app/sample_views.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/feed/batch_shapes.h"
#include "shared/metrics/event_file.h"
#include "shared/metrics/hparams.h"
#include "shared/ring/batch_layout.h"

namespace stoker::daemon_app {
namespace {

double seconds_of(Clock& clock) {
  return std::chrono::duration<double>(clock.wall().time_since_epoch()).count();
}

// What YAML takes a text for.
metrics::Setting setting_of(const std::string& key, const std::string& yaml) {
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
  auto file = metrics::EventFile::create(real_files(), clock, layout.tb(), std::nullopt);
  Status written = file.status();
  if (file.ok()) {
    add(**file);
    written = (*file)->flush();
  }
  if (!written.ok()) log_warn("tensorboard write failed", {{"error", written.to_string()}});
}

// The first samples of a batch, copied out of the ring.
struct Samples {
  std::vector<std::vector<std::byte>> components;
  size_t count = 0;
};

Samples copy_first(const ring::BatchLayout& layout, std::span<const std::byte> slot, size_t most) {
  Samples samples;
  samples.count = std::min<size_t>(most, layout.batch());
  for (size_t t = 0; t < layout.sample().size(); ++t) {
    const auto bytes = layout.whole(slot, t).first(samples.count * layout.sample()[t].bytes());
    samples.components.emplace_back(bytes.begin(), bytes.end());
  }
  return samples;
}

void report(const Result<SampleViews>& views, metrics::MetricsWriter& metrics) {
  if (!views.ok())
    return log_warn("sample summary not written", {{"error", views.status().to_string()}});
  metrics.report_text("samples", 0, views->table);
  if (!views->png.empty()) metrics.report_image("samples_image", 0, views->png);
}

}  // namespace

void show_begin(const config::Config& config, const model::Model& model,
                const run::RunLayout& layout, Clock& clock) {
  if (!config.metrics.tensorboard) return;
  std::vector<metrics::Setting> settings;
  for (const auto& [key, yaml] : config::result_affecting_settings(config))
    settings.push_back(setting_of(key, yaml));
  write_events(layout, clock, [&](metrics::EventFile& file) {
    file.add_graph(metrics::encode_graph(graph_of(model, "model")));
    file.add_hparams(metrics::kHparamsStartTag,
                     metrics::encode_hparams_start(settings, seconds_of(clock)));
  });
}

void show_end(const config::Config& config, const run::RunLayout& layout, Clock& clock) {
  if (!config.metrics.tensorboard) return;
  write_events(layout, clock, [&](metrics::EventFile& file) {
    file.add_hparams(metrics::kHparamsEndTag,
                     metrics::encode_hparams_end(/*is_success=*/true, seconds_of(clock)));
  });
}

std::function<void(const ring::ReadyBatch&)> first_batch_view(const config::Config& config,
                                                              const dataset::Dataset& data,
                                                              const dataset::SamplePlan& plan,
                                                              metrics::MetricsWriter& metrics) {
  if (!config.metrics.tensorboard || config.metrics.num_logged_samples == 0) return {};
  const auto most = static_cast<size_t>(config.metrics.num_logged_samples);
  return [shapes = feed::BatchShapes(data, plan), most, names = data.class_names(),
          &metrics](const ring::ReadyBatch& batch) {
    const ring::BatchLayout& layout = shapes.of(batch.ticket);
    const auto samples = std::make_shared<const Samples>(copy_first(layout, batch.slot, most));
    (void)metrics.post([samples, spec = layout.sample(), names, &metrics] {
      report(views_of_samples(spec, samples->components, samples->count, names), metrics);
    });
  };
}

}  // namespace stoker::daemon_app
