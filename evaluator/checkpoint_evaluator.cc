#include "evaluator/checkpoint_evaluator.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include "shared/base/log.h"
#include "shared/dataset/dataset.h"
#include "shared/model/load_weights.h"
#include "shared/model/model.h"
#include "shared/model/torch_dtype.h"
#include "shared/task/sample_text.h"
#include "shared/task/task.h"

namespace stoker::evaluator {
namespace {

// Host memory for one batch of a data set, reused, and the tensors that lie over it.
class BatchBuffer {
 public:
  BatchBuffer(const dataset::Dataset& data, uint64_t batch) : data_(data) {
    for (const TensorSpec& spec : data.spec()) memory_.emplace_back(spec.bytes() * batch);
  }

  // Samples [first, first + count).
  Result<task::Batch> read(uint64_t first, uint64_t count) {
    std::vector<std::span<std::byte>> row(memory_.size());
    for (uint64_t i = 0; i < count; ++i) {
      for (size_t t = 0; t < memory_.size(); ++t) {
        const size_t bytes = data_.spec()[t].bytes();
        row[t] = std::span(memory_[t]).subspan(i * bytes, bytes);
      }
      STOKER_RETURN_IF_ERROR(data_.read(first + i, dataset::DrawKey{.sample = first + i}, row));
    }
    task::Batch batch;
    for (size_t t = 0; t < memory_.size(); ++t) {
      std::vector<int64_t> shape{static_cast<int64_t>(count)};
      const TensorSpec& spec = data_.spec()[t];
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      batch.push_back(at::from_blob(memory_[t].data(), shape,
                                    at::TensorOptions().dtype(model::scalar_type_of(spec.dtype))));
    }
    return batch;
  }

 private:
  const dataset::Dataset& data_;
  std::vector<std::vector<std::byte>> memory_;
};

Status status_of(const std::exception& error) {
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
    const bool memory = dynamic_cast<const c10::OutOfMemoryError*>(torch) != nullptr;
    return Status(memory ? Code::kOutOfMemory : Code::kInternal, torch->what_without_backtrace());
  }
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return Status(memory ? Code::kOutOfMemory : Code::kInternal, error.what());
}

}  // namespace

struct CheckpointEvaluator::State {
  struct Set {
    std::string name;
    std::unique_ptr<dataset::Dataset> data;
  };

  State(config::Config settings, Clock& time) : config(std::move(settings)), clock(time) {}

  Status load(const checkpoint::VerifiedCheckpoint& checkpoint) {
    STOKER_ASSIGN_OR_RETURN(const auto weights, checkpoint.open_tensors("model.safetensors"));
    return model::load_weights(*model, *weights)
        .with_context(checkpoint.path() + "/model.safetensors");
  }

  Result<run::SetResult> evaluate_set(const Set& set, std::stop_token stop,
                                      std::chrono::nanoseconds deadline) {
    const auto batch = static_cast<uint64_t>(config.eval.batch);
    const uint64_t limit =
        config.eval.max_samples == 0 ? set.data->size() : config.eval.max_samples;
    const uint64_t samples = std::min(limit, set.data->size());
    BatchBuffer buffer(*set.data, batch);
    const auto evaluation = task->start_evaluation();
    for (uint64_t first = 0; first < samples; first += batch) {
      if (stop.stop_requested())
        return Status(Code::kCancelled, "stopped while evaluating " + set.name);
      if (clock.monotonic() > deadline) {
        return Status(Code::kTimedOut, "evaluation took longer than eval.timeout_seconds (" +
                                           std::to_string(first) + " of " +
                                           std::to_string(samples) + " samples done)");
      }
      const auto tensors = buffer.read(first, std::min(batch, samples - first));
      // Damaged data is not a damaged checkpoint.
      if (!tensors.ok())
        return Status(Code::kIoError, "data set " + set.name + ": " + tensors.status().message());
      evaluation->add(*model, *tensors);
    }
    return run::SetResult{set.name, samples, evaluation->result()};
  }

  const config::Config config;
  Clock& clock;
  std::vector<Set> sets;
  model::ModelPtr model;
  std::unique_ptr<task::Task> task;
};

CheckpointEvaluator::CheckpointEvaluator(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointEvaluator::~CheckpointEvaluator() = default;

Result<std::unique_ptr<CheckpointEvaluator>> CheckpointEvaluator::create(
    const config::Config& config, const std::string& index_dir, Clock& clock) {
  at::set_num_threads(std::max(1, config.eval.threads));
  auto state = std::make_unique<State>(config, clock);
  for (const std::string& name : config.eval.sets) {
    STOKER_ASSIGN_OR_RETURN(auto data, dataset::open_dataset(name, config.data, index_dir, {}));
    log_info("data set opened", {{"set", name},
                                 {"samples", data->size()},
                                 {"fingerprint", data->fingerprint().substr(0, 12)}});
    state->sets.push_back({name, std::move(data)});
  }
  if (state->sets.empty())
    return Status(Code::kInvalidArgument, "eval.sets: is empty; there is nothing to evaluate on");
  const dataset::Dataset& first = *state->sets.front().data;
  STOKER_ASSIGN_OR_RETURN(state->model,
                          model::make_model(config.model, first.spec(), first.classes()));
  STOKER_ASSIGN_OR_RETURN(state->task, task::make_task(config.task, first.spec(), first.classes()));
  state->model->eval();
  return std::unique_ptr<CheckpointEvaluator>(new CheckpointEvaluator(std::move(state)));
}

Result<run::EvalResult> CheckpointEvaluator::evaluate(
    const checkpoint::VerifiedCheckpoint& checkpoint, std::stop_token stop) {
  const auto began = state_->clock.monotonic();
  const auto limit = std::chrono::duration<double>(state_->config.eval.timeout_seconds);
  const auto deadline = began + std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
  run::EvalResult result;
  result.step = checkpoint.manifest().step;
  result.manifest_sha256 = checkpoint.manifest_sha256();
  try {
    const at::NoGradGuard no_grad;
    STOKER_RETURN_IF_ERROR(state_->load(checkpoint));
    for (const auto& set : state_->sets) {
      STOKER_ASSIGN_OR_RETURN(run::SetResult one, state_->evaluate_set(set, stop, deadline));
      result.sets.push_back(std::move(one));
    }
  } catch (const std::exception& error) {
    return status_of(error).with_context(checkpoint.path());
  }
  result.seconds = seconds_between(began, state_->clock.monotonic());
  result.created = to_iso8601(state_->clock.wall());
  return result;
}

Result<std::string> CheckpointEvaluator::sample_text(
    const checkpoint::VerifiedCheckpoint& checkpoint, const std::string& prompt, int bytes,
    double temperature, uint64_t seed) {
  if (state_->config.task.kind != config::TaskKind::kLanguageModel ||
      state_->config.model.vocab != 256) {
    return Status(
        Code::kInvalidArgument,
        "--sample: text can be sampled from a language model over bytes (model.vocab 256) only");
  }
  try {
    const at::NoGradGuard no_grad;
    STOKER_RETURN_IF_ERROR(state_->load(checkpoint));
    return task::sample_text(*state_->model, prompt, bytes, temperature, seed);
  } catch (const std::exception& error) {
    return status_of(error).with_context(checkpoint.path());
  }
}

}  // namespace stoker::evaluator
