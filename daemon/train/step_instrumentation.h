// StepInstrumentation: runs the profiles, inspections and histograms that are active during
// training, and traces the graph of a new run.
//
// Threads:   the trainer thread only.
// Blocking:  never for the disk or a client; for the device only while instrumentation is active.
// Ownership: what the constructor takes by reference must outlive this object.
// Errors:    on_begin() and end_step() pass on LibTorch's exceptions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/train/graph_tracer.h"
#include "daemon/train/histograms.h"
#include "daemon/train/inspection_board.h"
#include "daemon/train/mailbox.h"
#include "daemon/train/metrics_sink.h"
#include "daemon/train/step_observer.h"
#include "daemon/train/step_profiler.h"
#include "daemon/train/tensor_inspector.h"
#include "shared/base/clock.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/run_config.h"

namespace stoker::train {

class StepInstrumentation final : private StepObserver {
 public:
  // `sample`: the tensors of a batch. `files_of`: see TensorInspector::on_batch().
  StepInstrumentation(const config::MetricsConfig& config, MetricsSink& sink,
                      InspectionBoard& inspections, Clock& clock, const model::Model& model,
                      c10::Device device, const std::vector<TensorSpec>& sample,
                      TensorInspector::FilesOf files_of);

  // Null while no instrumentation is active.
  StepObserver* maybe_observer() { return is_active() ? this : nullptr; }

  // Replies kBusy while another profile is being recorded.
  void profile(const control::Profile& command, Done done, OnProgress on_progress = {});
  // `step`: the last completed step.
  void open_inspection(const control::OpenInspection& command, uint64_t step, const Done& done);

  // Traces the first forward pass that follows and reports its graph after the step.
  void trace_graph() { tracer_.emplace(model_); }

  // Starts the time of a step, right after the previous step. Call it again after a pause, so that
  // the pause is not counted.
  void begin_step() {
    if (profiler_) [[unlikely]]
      profiler_->begin_step();
  }
  // Call when pending requests are handled and `step` is about to run.
  void enter_step(uint64_t step) {
    histograms_.begin_step(step);
    if (inspector_.any()) [[unlikely]]
      inspector_.begin_step(step);
  }
  // Call with the first batch of the step, before it is trained on.
  void on_batch(const feed::ReceivedBatch& batch) {
    if (inspector_.any()) [[unlikely]]
      inspector_.on_batch(batch, files_of_);
  }
  // Call with the tensors of each micro-batch, on the device, before its forward pass.
  void on_micro_batch(const task::Batch& batch) {
    if (tracer_) [[unlikely]]
      tracer_->set_batch(batch, input_names_);
  }
  void end_step(uint64_t step) {
    if (is_active()) [[unlikely]]
      end_instrumented_step(step);
  }
  // Ends all profiles and inspections; no more steps follow.
  void finish(const std::string& why);
  // The same after an error, with this reply to the request for a profile, whose end would wait for the device.
  void abandon(const std::string& why, const Status& reply);

 private:
  bool is_active() const {
    return profiler_ || inspector_.any() || histograms_.is_active() || tracer_;
  }
  void on_begin(Phase phase) override;
  void on_end(Phase phase) noexcept override;
  void end_instrumented_step(uint64_t step);
  void deliver();

  MetricsSink& sink_;
  Clock& clock_;
  const model::Model& model_;
  const c10::Device device_;
  const std::vector<std::string> input_names_;
  const TensorInspector::FilesOf files_of_;
  std::optional<StepProfiler> profiler_;
  TensorInspector inspector_;
  Histograms histograms_;
  std::optional<GraphTracer> tracer_;  // until the graph is reported
  Done profile_done_;                  // of the one that is being recorded
  OnProgress profile_progress_;        // the same
};

}  // namespace stoker::train
