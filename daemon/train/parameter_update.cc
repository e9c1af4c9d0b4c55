#include "daemon/train/parameter_update.h"

#include <utility>

namespace stoker::train {

ParameterUpdate::ParameterUpdate(const config::Config& config, TrainingState& state,
                                 NonfiniteGuard& guard, Coordination& ranks,
                                 StepInstrumentation& instrumentation)
    : config_(config),
      state_(state),
      guard_(guard),
      ranks_(ranks),
      instrumentation_(instrumentation),
      uses_tree_(config.distributed.reduction == config::Reduction::kOrdered),
      num_parts_(static_cast<int64_t>(ranks.share().length())),
      step_(state.model(), state.task(), state.optimizer(), config.train, state.loss_scale(),
            num_parts_) {}

StepEngine::Calls ParameterUpdate::calls(StepEngine::Release release,
                                         Coordination::Updates updates) {
  updates.update = [this] { update(); };
  if (state_.ema_weights() != nullptr) updates.update_ema = [this] { update_ema(); };
  return {.prepare =
              [this](task::Batch batch, uint64_t ticket, MicroBatchInfo micro_batch) {
                const PhaseScope copying(observer_of(micro_batch), Phase::kCopy);
                return state_.task().mixed(std::move(batch), config_.run.seed, ticket);
              },
          .work = [this](const task::Batch& batch,
                         MicroBatchInfo micro_batch) { work(batch, micro_batch); },
          .release = std::move(release),
          .exchanges = ranks_.exchanges(step_, std::move(updates)),
          .sums = ranks_.sums()};
}

void ParameterUpdate::start(StepEngine& engine) {
  engine_ = &engine;
  if (!engine.is_asynchronous()) return;
  state_.optimizer().use_device_lr();
  if (state_.ema_weights() != nullptr) state_.ema_weights()->use_device_weight();
}

// ---- A step

void ParameterUpdate::begin() {
  if (num_parts_ > 1) engine_->submit([this] { step_began_ = state_.mark(); });
}

void ParameterUpdate::run(const feed::ReceivedBatch& batch, int64_t part, double lr) {
  const MicroBatchInfo micro_batch{.is_first = part == 0,
                                   .is_last = part + 1 == num_parts_,
                                   .is_instrumented = instrumentation_.maybe_observer() != nullptr,
                                   .level = uses_tree_ ? SumTree::level_of(part) : 0};
  if (micro_batch.is_last)
    engine_->submit([this, lr, step = state_.step + 1] {
      state_.optimizer().set_lr(lr);
      if (state_.ema_weights() != nullptr) state_.ema_weights()->set_step(step);
    });
  seed_generators(batch.ticket);
  engine_->run(batch, micro_batch);
}

// The state does not depend on which micro-batches this process has trained on.
void ParameterUpdate::end() { seed_generators(state_.ticket); }

void ParameterUpdate::undo() {
  engine_->submit([this] {
    state_.rewind(*step_began_);
    step_.drop();
  });
}

void ParameterUpdate::seed_generators(uint64_t ticket) {
  if (config_.run.rng != config::Rng::kPerTicket) return;
  engine_->submit([this, ticket] { state_.seed_generators(config_.run.seed, ticket); });
}

// ---- Called by the engine

// Other steps may run later than the call, when another step is instrumented or none.
StepObserver* ParameterUpdate::observer_of(MicroBatchInfo micro_batch) {
  return micro_batch.is_instrumented ? instrumentation_.maybe_observer() : nullptr;
}

void ParameterUpdate::work(const task::Batch& batch, MicroBatchInfo micro_batch) {
  if (micro_batch.is_instrumented) instrumentation_.on_micro_batch(batch);
  step_.set_observer(observer_of(micro_batch));
  if (micro_batch.is_first) state_.begin_step();
  if (micro_batch.is_last)
    ranks_.begin_sums([this](size_t sum) { engine_->on_gradients_complete(sum); });
  step_.add(batch, micro_batch.is_first || uses_tree_);
  if (micro_batch.is_last) ranks_.end_sums();
  if (uses_tree_) step_.add_to_tree(micro_batch.level, micro_batch.is_last);
  if (micro_batch.is_last && !ranks_.shares_steps()) update();
}

void ParameterUpdate::update() {
  guard_.finish(step_);
  const at::Tensor& maybe_skipped = state_.optimizer().skipped();
  if (maybe_skipped.defined() && (engine_->is_asynchronous() || is_skipped()))
    state_.undo_if(maybe_skipped);
  if (!state_.optimizer().is_sharded()) update_ema();
}

void ParameterUpdate::update_ema() {
  if (state_.ema_weights() == nullptr) return;
  if (engine_->is_asynchronous())
    state_.ema_weights()->update(state_.optimizer().skipped());
  else if (!is_skipped())
    state_.ema_weights()->update();
}

bool ParameterUpdate::is_skipped() const {
  const at::Tensor& maybe_skipped = state_.optimizer().skipped();
  return maybe_skipped.defined() && maybe_skipped.item<double>() != 0;
}

}  // namespace stoker::train
