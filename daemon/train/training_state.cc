#include "daemon/train/training_state.h"

#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "daemon/train/parameter_kinds.h"
#include "daemon/train/schedule.h"
#include "daemon/train/stream_tensors.h"
#include "daemon/train/training_error.h"
#include "shared/base/log.h"
#include "shared/checkpoint/store.h"
#include "shared/config/epochs.h"
#include "shared/data/counter_rng.h"
#include "shared/model/channels_last.h"
#include "shared/model/load_weights.h"
#include "shared/model/lora.h"
#include "shared/model/torch_dtype.h"

namespace stoker::train {
namespace {

constexpr const char* kRngCpu = "rng.cpu";
constexpr const char* kRngDevice = "rng.device";
constexpr const char* kLossSum = "interval.loss_sum";
constexpr const char* kLossSteps = "interval.steps";

// The metric is part of the names, so that the values of another one are never continued.
struct MetricNames {
  explicit MetricNames(std::string_view metric)
      : sum("interval." + std::string(metric) + "_sum"),
        count("interval." + std::string(metric) + "_count") {}

  std::string sum, count;
};

const c10::Device kCpu(c10::DeviceType::CPU);

// A tensor view of host memory owned by this process, used for copies.
at::Tensor host_view(std::span<std::byte> bytes, const at::Tensor& like) {
  return at::from_blob(bytes.data(), like.sizes(),
                       like.options().device(at::kCPU).requires_grad(false));
}

at::Tensor generator_state(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(c10::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void seed_generator(c10::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

Status read_into(const checkpoint::SafetensorsFile& file, const std::string& name,
                 at::Tensor& tensor) {
  const TensorSpec* const found = file.find(name);
  const TensorSpec expected = model::to_tensor_spec(name, tensor);
  if (found == nullptr)
    return Status(StatusCode::kMismatch, "trainer_state.safetensors: " + name + " is missing");
  if (*found != expected) {
    return Status(StatusCode::kMismatch, "trainer_state.safetensors: found " + to_string(*found) +
                                             ", expected " + to_string(expected));
  }
  return file.read(name, {static_cast<std::byte*>(tensor.data_ptr()), expected.bytes()});
}

// The checkpoint of a run without fp16 has no loss scale. The scale then keeps its initial value.
Status restore_scale(const checkpoint::SafetensorsFile& file, const LossScale& scale) {
  for (const auto& [name, tensor] : scale.state()) {
    if (file.find(name) == nullptr) {
      log_info("loss scale reset", {{"reason", "not in the checkpoint"}});
      return {};
    }
    at::Tensor value = tensor.cpu();
    STOKER_RETURN_IF_ERROR(read_into(file, name, value));
    at::Tensor(tensor).copy_(value);
  }
  return {};
}

void log_groups(const config::OptimizerConfig& config, const Optimizer& optimizer) {
  for (const Optimizer::Group& group : optimizer.groups()) {
    std::string match = group.match.empty() ? "(all others)" : group.match;
    if (group.name != config.name()) match += ", of which adamw";  // muon's rest
    log_info("parameter group configured", {{"params", match},
                                            {"parameters", group.num_parameters},
                                            {"elements", group.num_elements},
                                            {"lr_scale", group.lr_scale},
                                            {"weight_decay", group.weight_decay}});
  }
}

void make_trainable(model::Model& model, const std::set<std::string>& names) {
  for (auto& parameter : model.named_parameters())
    if (names.contains(parameter.key())) parameter.value().set_requires_grad(true);
}

constexpr size_t kMaxNamed = 5;

std::string first_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMaxNamed; ++i)
    text += (text.empty() ? "" : ", ") + names[i];
  return names.size() > kMaxNamed ? text + ", …" : text;
}

// Loads each tensor that the file contains with the same name, shape and dtype; the others are
// unchanged. Of `complete`, the state of all ranks, this one has `tensors`, some of which are ranges.
// Returns whether the file and `complete` match completely; otherwise logs the differences. After
// kCorrupt or kIoError some tensors can be loaded and others not.
Result<bool> load_partial(const model::NamedTensors& tensors,
                          const checkpoint::TensorRanges& ranges,
                          const std::vector<TensorSpec>& complete,
                          const checkpoint::TensorRangeSource& file, const std::string& owner) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> fresh;
  for (const TensorSpec& needed : complete) {
    const TensorSpec* const found = file.find(needed.name);
    if (found == nullptr || *found != needed) fresh.push_back(needed.name);
  }
  const std::set<std::string> differing(fresh.begin(), fresh.end());
  for (const auto& [name, tensor] : tensors)
    if (!differing.contains(name))
      STOKER_RETURN_IF_ERROR(model::read_tensor_range(name, tensor, ranges, file));
  const size_t loaded = complete.size() - fresh.size();
  const size_t unused = file.tensors().size() - loaded;
  if (fresh.empty() && unused == 0) return true;
  log_warn("checkpoint partially loaded", {{"component", owner},
                                           {"loaded", loaded},
                                           {"missing", fresh.size()},
                                           {"unexpected", unused},
                                           {"first_missing", first_of(fresh)}});
  return false;
}

}  // namespace

model::NamedTensors trained_parameters(const model::Model& model) {
  model::NamedTensors trained;
  for (const auto& parameter : model.named_parameters())
    if (parameter.value().requires_grad()) trained.emplace_back(parameter.key(), parameter.value());
  return trained;
}

Result<std::unique_ptr<TrainingState>> TrainingState::create(const config::Config& config,
                                                             const data::DatasetInfo& data,
                                                             c10::Device device,
                                                             const Optimizer::Shard& shard) {
  std::unique_ptr<TrainingState> state(new TrainingState);
  state->device_ = device;
  for (const c10::Device each : {kCpu, device}) seed_generator(each, config.run.seed);
  STOKER_ASSIGN_OR_RETURN(state->model_, model::make_model(config.model, data.spec, data.classes));
  STOKER_ASSIGN_OR_RETURN(
      state->task_,
      task::make_task(config.task, config::training_normalization(config), data.spec, data.classes,
                      config.data.at("train").batch_transforms, config.model.has_loss()));
  STOKER_RETURN_IF_ERROR(state->model_->prepare_training(config.train, device));
  STOKER_ASSIGN_OR_RETURN(std::set<std::string> frozen,
                          model::freeze(*state->model_, config.model.freeze));
  state->unfreeze_at_step_ = config.model.unfreeze_at_step;
  // The optimizer has their state from the start, so that the contents of checkpoints are the same
  // on both sides.
  if (state->unfreeze_at_step_)
    make_trainable(*state->model_, frozen);
  else
    frozen.clear();
  state->model_digest_ = model::digest(*state->model_);
  try {
    state->model_->to(device);
    if (config.train.channels_last) model::use_channels_last(*state->model_);
    state->model_->train();
    if (config.train.precision == config::Precision::kFp16)
      state->loss_scale_ = std::make_unique<LossScale>(device);
    state->loss_sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
    state->training_metrics_ = state->task_->training_metrics(*state->model_);
    if (const auto metrics = std::ssize(state->training_metrics_); metrics > 0) {
      state->metric_sum = at::zeros({metrics}, state->loss_sum.options());
      state->metric_count = at::zeros_like(state->metric_sum);
    }
  } catch (const c10::Error& error) {
    return to_status(error).with_context("move the model to " + device.str());
  }
  state->buffers_ = std::make_unique<StepBuffers>(*state->model_);
  const model::NamedTensors trainable = trained_parameters(*state->model_);
  STOKER_ASSIGN_OR_RETURN(const LrScales lr_scales,
                          layer_lr_scales(*state->model_, config.optimizer.layer_decay));
  Optimizer::Shard sharded = shard;
  // Loss scaling needs complete gradients: it divides them, and finds overflows in all of them.
  sharded.sums_own_gradients = shard.count > 1 && state->loss_scale_ == nullptr &&
                               config.distributed.reduction == config::Reduction::kAllReduce;
  STOKER_ASSIGN_OR_RETURN(
      state->optimizer_,
      Optimizer::create(config.optimizer, config.train, trainable, frozen, sharded, lr_scales,
                        embedding_parameters(*state->model_)));
  const auto* const classification = std::get_if<config::ClassificationTask>(&config.task.task);
  if (classification != nullptr && classification->class_weights.is_balanced)
    state->balanced_weights_ = at::tensor(classification->class_weights.values, at::kDouble);
  state->monitors_training_loss_ = monitors_training_loss(config.scheduler);
  if (config.train.ema_decay)
    state->ema_ = std::make_unique<EmaWeights>(*state->model_, config.train);
  if (!config.optimizer.param_groups.empty() || config.optimizer.layer_decay ||
      config.optimizer.name() == config::OptimizerName::kMuon)
    log_groups(config.optimizer, *state->optimizer_);
  if (state->unfreeze_at_step_) state->optimizer_->set_frozen(true);
  return state;
}

bool TrainingState::must_be_frozen() const {
  return unfreeze_at_step_ && step < *unfreeze_at_step_;
}

bool TrainingState::changes_frozen() const { return must_be_frozen() != optimizer_->is_frozen(); }

void TrainingState::update_frozen() {
  optimizer_->set_frozen(must_be_frozen());
  if (step != unfreeze_at_step_) return;  // frozen, or resumed after it
  uint64_t parameters = 0;
  uint64_t elements = 0;
  for (const Optimizer::Group& group : optimizer_->groups()) {
    if (!group.can_be_frozen) continue;
    parameters += group.num_parameters;
    elements += group.num_elements;
  }
  log_info("parameters unfrozen",
           {{"step", step}, {"parameters", parameters}, {"elements", elements}});
}

// The tensors of a snapshot in their order.
template <typename Visit>
void TrainingState::for_each_tensor(const Visit& visit) const {
  using writer::Part;
  if (has_model_parts_)
    for (const auto& [name, tensor] : model::named_tensors(*model_))
      visit(Part::kModel, name, tensor);
  for (const auto& [name, tensor] : optimizer_->state()) visit(Part::kOptimizer, name, tensor);
  if (!has_model_parts_) return;
  if (ema_)
    for (const auto& [name, tensor] : ema_->tensors()) visit(Part::kEma, name, tensor);
  if (const model::NamedTensors averages = optimizer_->averages(); !averages.empty()) {
    const std::map<std::string, at::Tensor> by_name(averages.begin(), averages.end());
    for (const auto& [name, tensor] : model::named_tensors(*model_)) {
      const auto average = by_name.find(name);
      visit(Part::kEma, name, average == by_name.end() ? tensor : average->second);
    }
  }
  visit(Part::kTrainerState, kRngCpu, generator_state(kCpu));
  if (!device_.is_cpu()) visit(Part::kTrainerState, kRngDevice, generator_state(device_));
  visit(Part::kTrainerState, kLossSum, loss_sum);
  visit(Part::kTrainerState, kLossSteps, at::zeros({}, at::kLong) + loss_steps);
  for (size_t i = 0; i < training_metrics_.size(); ++i) {
    const MetricNames names(training_metrics_[i]);
    visit(Part::kTrainerState, names.sum, metric_sum.select(0, static_cast<int64_t>(i)));
    visit(Part::kTrainerState, names.count, metric_count.select(0, static_cast<int64_t>(i)));
  }
  if (loss_scale_)
    for (const auto& [name, tensor] : loss_scale_->state())
      visit(Part::kTrainerState, name, tensor);
  if (balanced_weights_.defined())
    visit(Part::kTrainerState, checkpoint::kClassWeights, balanced_weights_);
}

void TrainingState::copy_to(writer::Snapshot& snapshot) const {
  if (optimizer_->is_sharded()) {
    uint64_t bytes = 0;
    for (const TensorSpec& spec : optimizer_->complete_state()) bytes += spec.bytes();
    snapshot.set_shard(optimizer_->num_shards(), bytes, optimizer_->state_ranges());
  }
  for_each_tensor(
      [&snapshot](writer::Part part, const std::string& name, const at::Tensor& tensor) {
        const at::Tensor source = tensor.detach();
        host_view(snapshot.add(part, model::to_tensor_spec(name, source)), source)
            .copy_(source, /*non_blocking=*/!source.is_cpu());
      });
}

uint64_t TrainingState::snapshot_bytes() const {
  uint64_t bytes = 0;
  for_each_tensor([&bytes](writer::Part, const std::string&, const at::Tensor& tensor) {
    bytes += writer::Snapshot::aligned(tensor.nbytes());
  });
  return bytes;
}

void TrainingState::describe(checkpoint::Manifest& manifest) const {
  manifest.step = step;
  manifest.next_ticket = ticket;
  manifest.model_digest = model_digest_;
  manifest.live_settings = to_json(*this);
}

// A replayed graph uses the seed too: it reads it from device memory, which a replay fills.
void TrainingState::seed_generators(uint64_t run_seed, uint64_t of_ticket) const {
  const data::RandomKey key{.seed = run_seed, .sample = of_ticket};
  const uint64_t seed = data::CounterRng(key, data::RandomStream::kGenerator).next();
  seed_generator(kCpu, seed);
  if (!device_.is_cpu()) seed_generator(device_, seed);
}

TrainingState::Mark TrainingState::mark() const {
  Mark mark{.generator = generator_state(kCpu)};
  if (!device_.is_cpu()) mark.of_device = generator_state(device_);
  return mark;
}

void TrainingState::rewind(const Mark& mark) {
  buffers_->restore();
  set_generator_state(kCpu, mark.generator);
  if (!device_.is_cpu()) set_generator_state(device_, mark.of_device);
}

std::string TrainingState::first_nonfinite() const {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, at::Tensor>> tensors = trained_parameters(*model_);
  tensors.insert(tensors.end(), buffers_->finite().begin(), buffers_->finite().end());
  for (const auto& [name, tensor] : optimizer_->state())
    tensors.emplace_back("the optimizer's " + name, tensor);
  if (ema_)
    for (const auto& [name, tensor] : ema_->averages())
      tensors.emplace_back("the average of " + name, tensor);
  std::erase_if(tensors, [](const auto& each) {
    return !each.second.is_floating_point() || each.second.numel() == 0;
  });
  if (tensors.empty()) return {};
  // One pass over the memory, and one wait. The sum of finite values can overflow, too.
  std::vector<at::Tensor> sums;
  for (const auto& [name, tensor] : tensors)
    sums.push_back(
        tensor.sum(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).to(at::kDouble));
  const at::Tensor on_host = at::stack(sums).cpu();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!std::isfinite(on_host.const_data_ptr<double>()[i]) &&
        tensors[i].second.isfinite().logical_not().any().item<bool>())
      return tensors[i].first;
  return {};
}

Status TrainingState::load_pretrained(const config::ModelConfig& config,
                                      pretrained::StateDictMapping& mapping) {
  STOKER_RETURN_IF_ERROR(model::load_pretrained(*model_, config, mapping));
  if (config.lora && config.lora->path)
    STOKER_RETURN_IF_ERROR(model::load_adapter(*model_, config));
  if (ema_) ema_->reset_to_parameters();
  return {};
}

Status TrainingState::restore_ema(const checkpoint::VerifiedCheckpoint& saved, bool may_differ) {
  ema_->reset_to_parameters();
  const auto file = saved.open_tensors("ema.safetensors");
  if (file.status().code() == StatusCode::kNotFound) {
    log_info("ema weights reset", {{"reason", "not in the checkpoint"}});
    return {};
  }
  if (!file.ok()) return file.status();
  // The file is of a complete model. Only the averages are loaded: the other tensors are the model's own, which
  // model.safetensors sets.
  const auto complete = model::to_tensor_specs(ema_->tensors());
  if (may_differ)
    return load_partial(ema_->averages(), {}, complete, **file, "the average").status();
  return model::load_tensor_ranges(ema_->averages(), {}, complete, **file, "the average")
      .with_context(saved.path() + "/ema.safetensors");
}

Result<TrainingState::Restored> TrainingState::restore_model(
    const checkpoint::VerifiedCheckpoint& saved, bool may_differ) {
  STOKER_ASSIGN_OR_RETURN(const auto weights, saved.open_tensors("model.safetensors"));
  STOKER_ASSIGN_OR_RETURN(const auto optim, saved.open_optimizer());
  if (may_differ) {
    const model::NamedTensors tensors = model::named_tensors(*model_);
    STOKER_ASSIGN_OR_RETURN(
        const bool same_model,
        load_partial(tensors, {}, model::to_tensor_specs(tensors), *weights, "the model"));
    STOKER_ASSIGN_OR_RETURN(const bool same_optimizer,
                            load_partial(optimizer_->state(), optimizer_->state_ranges(),
                                         optimizer_->complete_state(), *optim, "the optimizer"));
    return same_model && same_optimizer ? Restored::kFully : Restored::kPartially;
  }
  STOKER_RETURN_IF_ERROR(
      model::load_weights(*model_, *weights).with_context(saved.path() + "/model.safetensors"));
  STOKER_RETURN_IF_ERROR(optimizer_->load(*optim).with_context(
      saved.path() + (optim->num_files() > 1 ? "/optimizer-*" : "/optimizer") + ".safetensors"));
  return Restored::kFully;
}

Status TrainingState::restore_rest(const checkpoint::SafetensorsFile& rest) {
  at::Tensor rng = generator_state(kCpu);
  STOKER_RETURN_IF_ERROR(read_into(rest, kRngCpu, rng));
  set_generator_state(kCpu, rng);
  // The checkpoint of a CPU run has no device generator.
  if (!device_.is_cpu() && rest.find(kRngDevice) != nullptr) {
    rng = generator_state(device_);
    STOKER_RETURN_IF_ERROR(read_into(rest, kRngDevice, rng));
    set_generator_state(device_, rng);
  }
  at::Tensor sum = at::zeros({}, at::kDouble);
  at::Tensor steps = at::zeros({}, at::kLong);
  STOKER_RETURN_IF_ERROR(read_into(rest, kLossSum, sum));
  STOKER_RETURN_IF_ERROR(read_into(rest, kLossSteps, steps));
  loss_sum.copy_(sum);
  loss_steps = steps.item<int64_t>();
  STOKER_RETURN_IF_ERROR(restore_metrics(rest));
  return loss_scale_ ? restore_scale(rest, *loss_scale_) : Status();
}

// Checkpoints of earlier releases have no metric; it then covers the steps after the checkpoint only.
Status TrainingState::restore_metrics(const checkpoint::SafetensorsFile& rest) {
  for (size_t i = 0; i < training_metrics_.size(); ++i) {
    const MetricNames names(training_metrics_[i]);
    if (rest.find(names.sum) == nullptr) continue;
    at::Tensor sum = at::zeros({}, at::kDouble);
    at::Tensor count = at::zeros({}, at::kDouble);
    STOKER_RETURN_IF_ERROR(read_into(rest, names.sum, sum));
    STOKER_RETURN_IF_ERROR(read_into(rest, names.count, count));
    metric_sum.select(0, static_cast<int64_t>(i)).copy_(sum);
    metric_count.select(0, static_cast<int64_t>(i)).copy_(count);
  }
  return {};
}

void TrainingState::reset_interval() {
  loss_sum.zero_();
  if (!metric_sum.defined()) return;
  metric_sum.zero_();
  metric_count.zero_();
}

Result<TrainingState::Restored> TrainingState::restore(const checkpoint::VerifiedCheckpoint& saved,
                                                       bool may_differ) {
  Restored restored = Restored::kFully;
  try {
    STOKER_ASSIGN_OR_RETURN(restored, restore_model(saved, may_differ));
    if (ema_) STOKER_RETURN_IF_ERROR(restore_ema(saved, may_differ));
    STOKER_ASSIGN_OR_RETURN(const auto rest, saved.open_tensors("trainer_state.safetensors"));
    STOKER_RETURN_IF_ERROR(restore_rest(*rest).with_context(saved.path()));
    STOKER_ASSIGN_OR_RETURN(stream, read_stream(*rest));
    STOKER_ASSIGN_OR_RETURN(stream_history, read_history(*rest));
    STOKER_ASSIGN_OR_RETURN(static_cast<LiveState&>(*this),
                            parse_live_state(saved.manifest().live_settings));
    if (!monitors_training_loss_) plateau = Plateau();  // of an earlier scheduler
  } catch (const c10::Error& error) {
    return Status(StatusCode::kInternal,
                  "restore " + saved.path() + ": " + error.what_without_backtrace());
  }
  step = saved.manifest().step;
  ticket = saved.manifest().next_ticket;
  return restored;
}

double learning_rate(const config::Config& config, const TrainingState& state) {
  return state.lr_scale * learning_rate(config.scheduler, config.optimizer.lr(),
                                        config::schedule_step(config, state.step),
                                        config::schedule_step(config, config.train.max_steps));
}

Status nonfinite_error(const std::string& found, uint64_t step, const std::string& after) {
  return Status(
      StatusCode::kCorrupt,
      "training diverged: " + found + " is not finite at step " + std::to_string(step) + after +
          "; this state is not saved, and a restart repeats it from the newest checkpoint; "
          "try a smaller optimizer.lr or train.max_grad_norm");
}

}  // namespace stoker::train
