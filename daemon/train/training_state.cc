#include "daemon/train/training_state.h"

#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <boost/json.hpp>
#include <c10/util/Exception.h>

#include "daemon/train/load_matching.h"
#include "shared/base/exact_json.h"
#include "shared/base/log.h"
#include "shared/model/load_weights.h"
#include "shared/model/torch_dtype.h"

namespace stoker::train {
namespace {

constexpr const char* kRngCpu = "rng.cpu";
constexpr const char* kLossSum = "interval.loss_sum";
constexpr const char* kLossSteps = "interval.steps";

// A tensor over host memory of ours, to copy to or from.
at::Tensor host_view(std::span<std::byte> bytes, const at::Tensor& like) {
  return at::from_blob(bytes.data(), like.sizes(),
                       like.options().device(at::kCPU).requires_grad(false));
}

void copy_out(writer::Snapshot& snapshot, writer::Part part, const std::string& name,
              const at::Tensor& tensor) {
  const at::Tensor source = tensor.detach();
  host_view(snapshot.add(part, model::spec_of(name, source)), source).copy_(source);
}

at::Tensor cpu_generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_cpu_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

Status read_into(const checkpoint::SafetensorsFile& file, const std::string& name,
                 at::Tensor& tensor) {
  const TensorSpec* const found = file.find(name);
  const TensorSpec expected = model::spec_of(name, tensor);
  if (found == nullptr)
    return Status(Code::kMismatch, "state.safetensors: " + name + " is missing");
  if (*found != expected) {
    return Status(Code::kMismatch, "state.safetensors: is " + to_string(*found) + ", needed is " +
                                       to_string(expected));
  }
  return file.read(name, {static_cast<std::byte*>(tensor.data_ptr()), expected.bytes()});
}

// What changed while the run was going: `live` of the manifest.
struct Live {
  double lr_scale = 1.0;
  uint64_t skipped_steps = 0;
  uint64_t nonfinite_in_a_row = 0;
  uint64_t rollbacks = 0;
  LossTrend loss_trend;
  std::vector<uint64_t> quarantined;
};

boost::json::object to_object(const LossTrend& trend) {
  boost::json::object object{{"sum", trend.sum}, {"weight", trend.weight}};
  if (trend.maybe_base) object["base"] = *trend.maybe_base;
  return object;
}

LossTrend trend_of(const boost::json::object& object) {
  LossTrend trend{.sum = object.at("sum").to_number<double>(),
                  .weight = object.at("weight").to_number<double>()};
  if (const auto* base = object.if_contains("base")) trend.maybe_base = base->to_number<double>();
  return trend;
}

std::string live_text(const TrainingState& state) {
  return boost::json::serialize(boost::json::object{
      {"lr_scale", state.lr_scale},
      {"skipped_steps", state.skipped_steps},
      {"nonfinite_in_a_row", state.nonfinite_in_a_row},
      {"rollbacks", state.rollbacks},
      {"loss_trend", to_object(state.loss_trend)},
      {"quarantined", boost::json::array(state.quarantined.begin(), state.quarantined.end())}});
}

Result<Live> parse_live(const std::string& text) {
  const auto corrupt = [](const std::string& what) {
    return Status(Code::kCorrupt, "manifest.json: live: " + what);
  };
  boost::system::error_code error;
  const boost::json::value value = parse_json(text, error);
  if (error || !value.is_object()) return corrupt("not a JSON object");
  Live live;
  try {
    const boost::json::object& fields = value.as_object();
    if (const auto* scale = fields.if_contains("lr_scale"))
      live.lr_scale = scale->to_number<double>();
    if (const auto* steps = fields.if_contains("skipped_steps"))
      live.skipped_steps = steps->to_number<uint64_t>();
    if (const auto* in_a_row = fields.if_contains("nonfinite_in_a_row"))
      live.nonfinite_in_a_row = in_a_row->to_number<uint64_t>();
    if (const auto* trend = fields.if_contains("loss_trend"))
      live.loss_trend = trend_of(trend->as_object());
    if (const auto* times = fields.if_contains("rollbacks"))
      live.rollbacks = times->to_number<uint64_t>();
    if (const auto* samples = fields.if_contains("quarantined"))
      for (const auto& sample : samples->as_array())
        live.quarantined.push_back(sample.to_number<uint64_t>());
  } catch (const std::exception& wrong) {
    return corrupt(wrong.what());
  }
  if (!(live.lr_scale > 0)) return corrupt("lr_scale is not a positive number");
  return live;
}

void log_groups(const Optimizer& optimizer) {
  for (const Optimizer::Group& group : optimizer.groups()) {
    int64_t elements = 0;
    for (const at::Tensor& parameter : group.parameters) elements += parameter.numel();
    log_info("optimizer group", {{"match", group.match.empty() ? "(all others)" : group.match},
                                 {"parameters", group.parameters.size()},
                                 {"elements", elements},
                                 {"lr_scale", group.lr_scale},
                                 {"weight_decay", group.weight_decay}});
  }
}

}  // namespace

Result<std::unique_ptr<TrainingState>> TrainingState::create(const config::Config& config,
                                                             const dataset::Dataset& data,
                                                             c10::Device device) {
  std::unique_ptr<TrainingState> state(new TrainingState);
  state->device_ = device;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(config.run.seed);
  }
  STOKER_ASSIGN_OR_RETURN(state->model_,
                          model::make_model(config.model, data.spec(), data.classes()));
  STOKER_ASSIGN_OR_RETURN(state->task_, task::make_task(config.task, data.spec(), data.classes()));
  STOKER_RETURN_IF_ERROR(model::freeze(*state->model_, config.model.freeze));
  state->model_digest_ = model::digest(*state->model_);
  try {
    state->model_->to(device);
    state->model_->train();
    state->loss_sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
  } catch (const c10::Error& error) {
    return Status(Code::kOutOfMemory,
                  std::string("move the model to the device: ") + error.what_without_backtrace());
  }
  model::NamedTensors trainable;
  for (const auto& parameter : state->model_->named_parameters())
    if (parameter.value().requires_grad())
      trainable.emplace_back(parameter.key(), parameter.value());
  STOKER_ASSIGN_OR_RETURN(state->optimizer_,
                          Optimizer::create(config.optimizer, std::move(trainable)));
  if (!config.optimizer.groups.empty()) log_groups(*state->optimizer_);
  return state;
}

void TrainingState::capture(writer::Snapshot& snapshot) const {
  snapshot.begin();
  for (const auto& [name, tensor] : model::named_tensors(*model_))
    copy_out(snapshot, writer::Part::kModel, name, tensor);
  for (const auto& [name, tensor] : optimizer_->state())
    copy_out(snapshot, writer::Part::kOptim, name, tensor);
  copy_out(snapshot, writer::Part::kState, kRngCpu, cpu_generator_state());
  copy_out(snapshot, writer::Part::kState, kLossSum, loss_sum);
  copy_out(snapshot, writer::Part::kState, kLossSteps, at::zeros({}, at::kLong) + loss_steps);
  checkpoint::Manifest& manifest = snapshot.manifest();
  manifest.step = step;
  manifest.ticket = ticket;
  manifest.model_digest = model_digest_;
  manifest.live = live_text(*this);
}

TrainingState::Mark TrainingState::mark() { return {cpu_generator_state()}; }

void TrainingState::rewind(const Mark& mark) { set_cpu_generator_state(mark.generator); }

Status TrainingState::load_pretrained(const config::ModelConfig& config, model::InitPlan& plan) {
  return model::load_pretrained(*model_, config, plan);
}

Result<TrainingState::Restored> TrainingState::restore(const checkpoint::VerifiedCheckpoint& saved,
                                                       bool may_differ) {
  bool is_whole = true;
  try {
    STOKER_ASSIGN_OR_RETURN(const auto weights, saved.open_tensors("model.safetensors"));
    STOKER_ASSIGN_OR_RETURN(const auto optim, saved.open_tensors("optim.safetensors"));
    if (may_differ) {
      STOKER_ASSIGN_OR_RETURN(const bool same_model,
                              load_matching(model::named_tensors(*model_), *weights, "the model"));
      STOKER_ASSIGN_OR_RETURN(const bool same_optimizer,
                              load_matching(optimizer_->state(), *optim, "the optimizer"));
      is_whole = same_model && same_optimizer;
    } else {
      STOKER_RETURN_IF_ERROR(
          model::load_weights(*model_, *weights).with_context(saved.path() + "/model.safetensors"));
      STOKER_RETURN_IF_ERROR(
          optimizer_->load(*optim).with_context(saved.path() + "/optim.safetensors"));
    }
    STOKER_ASSIGN_OR_RETURN(const auto rest, saved.open_tensors("state.safetensors"));
    at::Tensor rng = cpu_generator_state();
    STOKER_RETURN_IF_ERROR(read_into(*rest, kRngCpu, rng).with_context(saved.path()));
    set_cpu_generator_state(rng);
    at::Tensor sum = at::zeros({}, at::kDouble);
    at::Tensor steps = at::zeros({}, at::kLong);
    STOKER_RETURN_IF_ERROR(read_into(*rest, kLossSum, sum).with_context(saved.path()));
    STOKER_RETURN_IF_ERROR(read_into(*rest, kLossSteps, steps).with_context(saved.path()));
    loss_sum.copy_(sum);
    loss_steps = steps.item<int64_t>();
    STOKER_ASSIGN_OR_RETURN(Live live, parse_live(saved.manifest().live));
    lr_scale = live.lr_scale;
    skipped_steps = live.skipped_steps;
    nonfinite_in_a_row = live.nonfinite_in_a_row;
    rollbacks = live.rollbacks;
    loss_trend = live.loss_trend;
    quarantined = std::move(live.quarantined);
  } catch (const c10::Error& error) {
    return Status(Code::kInternal,
                  "restore " + saved.path() + ": " + error.what_without_backtrace());
  }
  step = saved.manifest().step;
  ticket = saved.manifest().ticket;
  return is_whole ? Restored::kWholly : Restored::kPartly;
}

}  // namespace stoker::train
