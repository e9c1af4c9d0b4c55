// minimal-run RUN_DIR STEPS SAVE_EVERY: a run without a model, fast enough for thousands of runs
// per minute. It uses the run directory like stokerd, with the same code in the same order: lock,
// cleanup, resume, records, checkpoints, retention, end. Prints "saved STEP" when a checkpoint is
// acknowledged.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>

#include "daemon/app/resume_checkpoint.h"
#include "daemon/service/run_directory.h"
#include "daemon/writer/checkpoint_writer.h"
#include "daemon/writer/retention_manager.h"
#include "shared/base/coordinator.h"
#include "shared/checkpoint/store.h"
#include "shared/config/run_metrics.h"
#include "shared/metrics/metrics_writer.h"
#include "shared/run/run_layout.h"
#include "tests/reliability/minimal_state.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

// A single unbuffered write, so that a kill cannot separate the acknowledgement from its output.
void print_line(const std::string& line) {
  if (::write(STDOUT_FILENO, (line + "\n").c_str(), line.size() + 1) < 0) std::abort();
}

class MinimalRun {
 public:
  MinimalRun(const std::string& run_dir, uint64_t steps, uint64_t save_every)
      : layout_(run_dir),
        steps_(steps),
        save_every_(save_every),
        store_(layout_.checkpoints_dir(), default_file_system()) {}

  Status run() {
    STOKER_ASSIGN_OR_RETURN(auto directory, service::RunDirectory::open(layout_, system_clock(),
                                                                        default_file_system()));
    STOKER_RETURN_IF_ERROR(store_.clean_up());
    STOKER_ASSIGN_OR_RETURN(const auto resume, restore());
    STOKER_RETURN_IF_ERROR(
        write_file_atomically(default_file_system(), layout_.config_file(), "minimal: 1\n"));
    STOKER_RETURN_IF_ERROR(open_outputs(resume));
    const Status status = train();
    writers_.request_stop();
    STOKER_RETURN_IF_ERROR(writers_.join(60s));
    STOKER_RETURN_IF_ERROR(status);
    return directory.save_exit_status(
        {run::RunOutcome::kFinished, state_.step, "all steps done", 0}, /*is_accepted=*/true);
  }

 private:
  Result<std::optional<metrics::ResumePosition>> restore() {
    STOKER_ASSIGN_OR_RETURN(
        const auto start,
        app::find_resume_checkpoint(store_, layout_, "", {.pause = [](const std::string&) {
                                      return Status(StatusCode::kBusy, "a checkpoint is locked");
                                    }}));
    if (!start) return std::optional<metrics::ResumePosition>();
    STOKER_ASSIGN_OR_RETURN(state_, MinimalState::read_from(*start));
    STOKER_RETURN_IF_ERROR(
        app::archive_later_checkpoints(default_file_system(), store_, layout_, state_.step));
    app::record_resumed_checkpoint(default_file_system(), store_, layout_, *start);
    parent_ = store_.checkpoint_name(state_.step);
    return std::optional(metrics::ResumePosition{state_.step, start->manifest().metrics_bytes});
  }

  Status open_outputs(std::optional<metrics::ResumePosition> resume) {
    STOKER_ASSIGN_OR_RETURN(
        records_,
        metrics::MetricsWriter::open(default_file_system(), system_clock(),
                                     {.train_metrics_path = layout_.train_metrics_file()}, resume));
    writer::WriterOptions saving;
    config::Config config;
    config.checkpoint.keep_last = 2;
    retention_manager_.emplace(config, config::task_metrics(config), store_, layout_,
                               system_clock());
    saving.delete_expired = [this](bool is_disk_full) {
      retention_manager_->delete_expired(is_disk_full);
    };
    saving.before_commit = [this] {
      static_cast<void>(records_->flush(60s));
      return Status();
    };
    saving.after_commit = [this](const checkpoint::Manifest& committed) {
      writer::record_last_checkpoint(default_file_system(), layout_, committed);
    };
    writer_ = std::make_unique<writer::CheckpointWriter>(store_, std::move(saving));
    writers_.start("metrics", [this](std::stop_token stop) { return records_->run(stop); });
    writers_.start("checkpoints", [this](std::stop_token stop) { return writer_->run(stop); });
    return {};
  }

  Status train() {
    while (state_.step < steps_) {
      state_.advance();
      metrics::TrainMetrics record;
      record.step = state_.step;
      record.loss = state_.loss();
      records_->report(record);
      if (state_.step % save_every_ == 0) STOKER_RETURN_IF_ERROR(save());
    }
    return {};
  }

  // Waits for the writer, so that the order of the system calls is about the same in each run.
  Status save() {
    writer::Snapshot* const snapshot = writer_->try_begin();
    state_.put_into(*snapshot);
    snapshot->manifest().step = state_.step;
    snapshot->manifest().live_settings = "{}";
    snapshot->manifest().parent_checkpoint = parent_;
    snapshot->manifest().metrics_bytes = records_->position();
    std::promise<Status> done;
    writer_->submit([&done](const Result<checkpoint::Manifest>& saved) {
      if (saved.ok()) print_line("saved " + std::to_string(saved->step));
      done.set_value(saved.status());
    });
    STOKER_RETURN_IF_ERROR(done.get_future().get());
    if (!writer_->wait_idle(60s)) return Status(StatusCode::kTimedOut, "the writer is not idle");
    parent_ = store_.checkpoint_name(state_.step);
    return {};
  }

  const run::RunLayout layout_;
  const uint64_t steps_;
  const uint64_t save_every_;
  checkpoint::CheckpointStore store_;
  MinimalState state_;
  std::string parent_;
  std::unique_ptr<metrics::MetricsWriter> records_;
  std::optional<writer::RetentionManager> retention_manager_;
  std::unique_ptr<writer::CheckpointWriter> writer_;
  Coordinator writers_;  // last member: its threads use the others
};

}  // namespace
}  // namespace stoker::test

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  stoker::test::MinimalRun run(argv[1], std::stoull(argv[2]), std::stoull(argv[3]));
  const stoker::Status status = run.run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
