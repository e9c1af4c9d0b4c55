#include "daemon/daemon_app/training_session.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/checkpoint/checkpoint_writer.h"
#include "daemon/daemon_app/start_point.h"
#include "daemon/daemon_app/version.h"
#include "daemon/feeder/feed_supervisor.h"
#include "daemon/train/device.h"
#include "daemon/train/trainer.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/feed/plan_settings.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/run/eval_result.h"

namespace stoker::daemon_app {
namespace {

using namespace std::chrono_literals;
constexpr auto kGrace = 10s;  // for writers to end after the last of their work was taken
constexpr auto kFirstBatchLook = 100ms;

void set_up_libtorch(const config::Config& config) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  at::set_num_threads(config.train.threads > 0 ? config.train.threads : cores);
  at::globalContext().setDeterministicAlgorithms(config.run.deterministic, /*warn_only=*/false);
  if (config.run.deterministic) at::globalContext().setBenchmarkCuDNN(false);
}

// The steps that retention must not touch: the best that the evaluator has found.
std::vector<uint64_t> protected_steps(const config::Config& config, const run::RunLayout& layout) {
  if (config.checkpoint.keep_best == 0) return {};
  const auto best = run::read_best(layout.best_file());
  if (!best.ok()) return {};
  return {best->step};
}

}  // namespace

struct TrainingSession::Parts {
  Parts(std::unique_ptr<dataset::Dataset> opened, const dataset::PlanSettings& settings)
      : data(std::move(opened)), plan(settings) {}

  std::unique_ptr<dataset::Dataset> data;
  dataset::SamplePlan plan;
  std::unique_ptr<train::TrainingState> state;
  checkpoint::Manifest manifest;  // what all checkpoints of this run share
  uint64_t metrics_bytes = 0;
  std::unique_ptr<ring::ShmRing> ring;
  std::unique_ptr<metrics::MetricsWriter> metrics;
  std::unique_ptr<checkpoint::CheckpointStore> store;
  std::unique_ptr<writer::CheckpointWriter> writer;
  std::unique_ptr<feeder::FeedSupervisor> feed;
  // Ended in the reverse order: first nobody fills the ring, then everything handed to the writers is written.
  Coordinator writers;
  Coordinator feeders;
};

TrainingSession::TrainingSession(const config::Config& config, const CommandLine& command, const run::RunLayout& layout,
                                 train::Mailbox& mailbox, train::StatusBoard& board, Clock& clock)
    : config_(config), command_(command), layout_(layout), mailbox_(mailbox), board_(board), clock_(clock) {}

TrainingSession::~TrainingSession() = default;

// ---- Preparing

Result<std::unique_ptr<dataset::Dataset>> TrainingSession::open_data(std::stop_token stop) {
  auto progress = [this, stop](uint64_t files) {
    board_.note_progress();
    set_live_line("indexing data.train: " + std::to_string(files) + " files");
  };
  auto data = dataset::open_dataset("train", config_.data.at("train"), layout_.index(), progress);
  set_live_line("");
  if (!data.ok()) return data.status();
  log_info("data set opened", {{"set", "train"},
                               {"samples", (*data)->size()},
                               {"fingerprint", (*data)->fingerprint().substr(0, 12)}});
  return data;
}

Status TrainingSession::prepare(std::stop_token stop) {
  STOKER_ASSIGN_OR_RETURN(auto data, open_data(stop));
  STOKER_ASSIGN_OR_RETURN(const c10::Device device, train::open_device(config_.train.device));
  set_up_libtorch(config_);
  auto parts = std::make_unique<Parts>(std::move(data), feed::plan_settings(config_, data->size()));
  return {};
}

}  // namespace stoker::daemon_app
