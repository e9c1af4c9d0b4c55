#include "daemon/train/optimizer.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/set.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "daemon/train/muon.h"
#include "daemon/train/parameter_kinds.h"
#include "daemon/train/update_rules.h"
#include "shared/base/glob.h"
#include "shared/model/fused_kernels.h"
#include "shared/model/load_weights.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"

namespace stoker::train {

using config::OptimizerName;

Result<std::unique_ptr<Optimizer>> Optimizer::create(
    const config::OptimizerConfig& config, const config::TrainConfig& train,
    const NamedTensors& parameters, const std::set<std::string>& frozen, const Shard& shard,
    const LrScales& lr_scales, const std::set<std::string>& embeddings, const IsOwn& is_own) {
  const auto can_be_frozen = [&frozen](const auto& each) { return frozen.contains(each.first); };
  if (std::ranges::all_of(parameters, can_be_frozen))
    return Status(StatusCode::kInvalidArgument,
                  "there is no parameter to train (see model.freeze)");
  try {
    const at::NoGradGuard no_grad;
    std::unique_ptr<Optimizer> optimizer(new Optimizer(config, train, shard));
    STOKER_RETURN_IF_ERROR(
        optimizer->make_groups(parameters, frozen, lr_scales, embeddings, is_own));
    return optimizer;
  } catch (const c10::Error& error) {
    return model::to_status(error, "make the optimizer");
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "make the optimizer: not enough host memory");
  }
}

size_t Optimizer::create_groups() {
  groups_ = {Group{.name = config_.name(), .weight_decay = config_.weight_decay()}};
  for (const config::ParamGroup& group : config_.param_groups) {
    std::string match = group.params;
    if (group.kind)
      match += (match.empty() ? "kind " : ", kind ") + std::string(config::to_string(*group.kind));
    groups_.push_back({.name = config_.name(),
                       .match = std::move(match),
                       .lr_scale = group.lr_scale,
                       .weight_decay = group.weight_decay.value_or(config_.weight_decay())});
  }
  const size_t rows = groups_.size();
  if (config_.name() != OptimizerName::kMuon) return rows;
  for (size_t i = 0; i < rows; ++i) {
    Group rest = groups_[i];
    rest.name = OptimizerName::kAdamW;
    groups_.push_back(std::move(rest));
  }
  return rows;
}

Status Optimizer::make_groups(const NamedTensors& parameters, const std::set<std::string>& frozen,
                              const LrScales& lr_scales, const std::set<std::string>& embeddings,
                              const IsOwn& is_own) {
  const size_t rows = create_groups();
  const size_t never_frozen = groups_.size();
  for (size_t i = 0; i < never_frozen && !frozen.empty(); ++i) {
    Group group = groups_[i];
    group.can_be_frozen = true;
    groups_.push_back(std::move(group));
  }
  const ParameterKinds kinds(parameters, embeddings);
  std::vector<NameGlob> globs;
  for (const config::ParamGroup& group : config_.param_groups)
    globs.emplace_back(group.params.empty() ? "*" : group.params);
  const auto is_in = [&](size_t group, const std::string& name, const at::Tensor& parameter) {
    const std::optional<config::ParamKind> kind = config_.param_groups[group].kind;
    return globs[group].matches(name) && (!kind || kinds.is(*kind, name, parameter));
  };
  std::optional<MuonParamFilter> maybe_muon;
  if (const auto* const muon = std::get_if<config::MuonConfig>(&config_.method))
    maybe_muon.emplace(*muon);
  std::vector<size_t> group_of;
  for (const auto& [name, parameter] : parameters) {
    size_t first = 0;
    while (first < globs.size() && !is_in(first, name, parameter)) ++first;
    const size_t row = first == globs.size() ? 0 : first + 1;
    const bool uses_adamw = maybe_muon && !maybe_muon->matches(name, parameter);
    const size_t first_of_set = frozen.contains(name) ? never_frozen : 0;
    group_of.push_back(first_of_set + (uses_adamw ? row + rows : row));
    if (frozen.contains(name)) freezable_.push_back(parameter);
  }
  STOKER_RETURN_IF_ERROR(check_matches(rows, group_of, parameters));
  if (!lr_scales.empty()) divide_groups(parameters, lr_scales, group_of);
  NamedTensors own;
  std::vector<size_t> group_of_own;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (is_own && !is_own(i)) continue;
    own.push_back(parameters[i]);
    group_of_own.push_back(group_of[i]);
  }
  allocate_gradients(own);
  add_parameters(own, group_of_own);
  std::erase_if(groups_, [](const Group& group) { return group.num_parameters == 0; });
  if (!parameters.front().second.is_cpu()) {
    use_device_lr();
    scale_in_kernels();
  }
  return {};
}

// Replaces each group by those with the same factor of the learning rate.
void Optimizer::divide_groups(const NamedTensors& parameters, const LrScales& lr_scales,
                              std::vector<size_t>& group_of) {
  std::map<std::pair<size_t, double>, size_t> divided;  // group and factor -> new group
  const auto key_of = [&](size_t i) {
    return std::pair(group_of[i], lr_scales.at(parameters[i].first));
  };
  for (size_t i = 0; i < parameters.size(); ++i) divided[key_of(i)] = 0;
  std::vector<Group> groups;
  for (auto& [key, index] : divided) {
    index = groups.size();
    groups.push_back(groups_[key.first]);
    groups.back().lr_scale *= key.second;
  }
  for (size_t i = 0; i < parameters.size(); ++i) group_of[i] = divided.at(key_of(i));
  groups_ = std::move(groups);
}

void Optimizer::use_device_lr() {
  const c10::Device device = parameters_.front().device();
  const auto options = at::TensorOptions().device(device).dtype(
      device.is_cpu() ? at::kDouble : at::kFloat);  // the kernels require these types
  for (Group& group : groups_) group.device_lr = at::zeros({}, options);
}

// Each of the first `rows` groups must have parameters, counting those of the same row that Muon
// leaves to adamw and those that can be frozen.
Status Optimizer::check_matches(size_t rows, const std::vector<size_t>& group_of,
                                const NamedTensors& parameters) const {
  for (size_t i = 1; i < rows; ++i) {
    if (std::ranges::any_of(group_of, [&](size_t group) { return group % rows == i; })) continue;
    return Status(StatusCode::kInvalidArgument,
                  "optimizer.param_groups: '" + groups_[i].match +
                      "' matches no trained parameter that an earlier group left; the names "
                      "begin with '" +
                      parameters.front().first + "' and end with '" + parameters.back().first +
                      "'");
  }
  return {};
}

namespace {

// Elements from the start of a gradient to that of the next one: each begins at a multiple of 64
// bytes, as a separate allocation does.
int64_t padded_size(const at::Tensor& parameter) {
  constexpr int64_t kAlignment = 64;
  const int64_t elements = kAlignment / static_cast<int64_t>(parameter.element_size());
  return (parameter.numel() + elements - 1) / elements * elements;
}

}  // namespace

// The gradients have the layout of their parameters. They are no views for autograd, which would
// check each accumulation.
void Optimizer::allocate_gradients(const NamedTensors& parameters) {
  std::map<at::ScalarType, int64_t> sizes;
  for (const auto& [name, parameter] : parameters)
    sizes[parameter.scalar_type()] += padded_size(parameter);
  std::map<at::ScalarType, at::Tensor> flat;
  for (const auto& [type, size] : sizes) {
    flat[type] = at::zeros({size}, parameters.front().second.options().dtype(type));
    flat_gradients_.push_back(flat[type]);
  }
  std::map<at::ScalarType, int64_t> offsets;
  for (const auto& [name, parameter] : parameters) {
    assert(parameter.is_leaf() && parameter.requires_grad());
    const at::ScalarType type = parameter.scalar_type();
    const at::Tensor gradient = at::empty({0}, flat[type].options());
    const at::Tensor layout = at::empty_like(parameter, parameter.options().device(at::kMeta));
    gradient.set_(flat[type].storage(), offsets[type], parameter.sizes(), layout.strides());
    offsets[type] += padded_size(parameter);
    parameter.mutable_grad() = gradient;
  }
}

namespace {

// The shape of a state relative to its parameter.
enum class StateShape {
  kParameter,
  kScalar,
  kDoubleScalar,  // a sum, to which F32 at last adds nothing
  kRows,          // of the parameter without its last dimension; 1 there
  kColumns,       // of the parameter without its last dimension but one; 1 there
};

constexpr const char* kZOffset = "z_offset.";

// State that an optimizer has for each parameter.
struct StateKind {
  const char* prefix;
  std::vector<at::Tensor> Optimizer::Group::*tensors;
  StateShape shape = StateShape::kParameter;
  double initial = 0;
  std::optional<bool> of_matrices =
      {};  // only of parameters with two dimensions or more, or only of others

  bool belongs_to(const at::Tensor& parameter) const {
    return !of_matrices || *of_matrices == (parameter.dim() >= 2);
  }
  bool is_scalar() const {
    return shape == StateShape::kScalar || shape == StateShape::kDoubleScalar;
  }
  at::ScalarType type_for(const at::Tensor& parameter) const {
    if (!is_scalar()) return parameter.scalar_type();
    return shape == StateShape::kScalar ? at::kFloat : at::kDouble;
  }
  std::vector<int64_t> shape_for(const at::Tensor& parameter) const {
    std::vector<int64_t> sizes = parameter.sizes().vec();
    if (is_scalar()) sizes.clear();
    if (shape == StateShape::kRows) sizes[sizes.size() - 1] = 1;
    if (shape == StateShape::kColumns) sizes[sizes.size() - 2] = 1;
    return sizes;
  }
  // `own`: the elements of the parameter that this process updates.
  at::Tensor make(const at::Tensor& own) const {
    if (shape == StateShape::kParameter) return at::full_like(own, initial);
    return at::full(shape_for(own), initial, own.options().dtype(type_for(own)));
  }
};

using States = std::vector<at::Tensor> Optimizer::Group::*;
constexpr States kStates[] = {&Optimizer::Group::exp_avgs,
                              &Optimizer::Group::exp_avg_sqs,
                              &Optimizer::Group::square_avgs,
                              &Optimizer::Group::sums,
                              &Optimizer::Group::momentum_buffers,
                              &Optimizer::Group::mu_products,
                              &Optimizer::Group::exp_infs,
                              &Optimizer::Group::acc_deltas,
                              &Optimizer::Group::row_vars,
                              &Optimizer::Group::col_vars,
                              &Optimizer::Group::variances,
                              &Optimizer::Group::z_offsets,
                              &Optimizer::Group::weight_sums,
                              &Optimizer::Group::lr_maxs,
                              &Optimizer::Group::steps};

// The names are those of PyTorch, and of timm for lamb and lars.
std::vector<StateKind> state_kinds(const config::OptimizerConfig& config, OptimizerName name) {
  using Group = Optimizer::Group;
  const StateKind momentum{"momentum_buffer.", &Group::momentum_buffers};
  const StateKind exp_avg{"exp_avg.", &Group::exp_avgs};
  const StateKind exp_avg_sq{"exp_avg_sq.", &Group::exp_avg_sqs};
  const StateKind square_avg{"square_avg.", &Group::square_avgs};
  const StateKind step{"step.", &Group::steps, StateShape::kScalar};
  switch (name) {
    case OptimizerName::kSgd:
      if (std::get<config::SgdConfig>(config.method).momentum > 0) return {momentum};
      return {};
    case OptimizerName::kLars:
      if (std::get<config::LarsConfig>(config.method).momentum > 0) return {momentum};
      return {};
    case OptimizerName::kMuon:
      return {momentum};
    case OptimizerName::kAdam:
    case OptimizerName::kAdamW:
    case OptimizerName::kRadam:
    case OptimizerName::kLamb:
      return {exp_avg, exp_avg_sq, step};
    case OptimizerName::kNadam:
      return {
          exp_avg, exp_avg_sq, {"mu_product.", &Group::mu_products, StateShape::kScalar, 1}, step};
    case OptimizerName::kAdamax:
      return {exp_avg, {"exp_inf.", &Group::exp_infs}, step};
    case OptimizerName::kAdadelta:
      return {square_avg, {"acc_delta.", &Group::acc_deltas}, step};
    case OptimizerName::kAdafactor:
      return {{"row_var.", &Group::row_vars, StateShape::kRows, 0, true},
              {"col_var.", &Group::col_vars, StateShape::kColumns, 0, true},
              {"variance.", &Group::variances, StateShape::kParameter, 0, false},
              step};
    case OptimizerName::kScheduleFreeAdamW:
      return {{kZOffset, &Group::z_offsets},
              exp_avg_sq,
              {"weight_sum.", &Group::weight_sums, StateShape::kDoubleScalar},
              {"lr_max.", &Group::lr_maxs, StateShape::kScalar},
              step};
    case OptimizerName::kRmsprop:
      if (std::get<config::RmspropConfig>(config.method).momentum > 0)
        return {square_avg, momentum, step};
      return {square_avg, step};
    case OptimizerName::kAdagrad:
      return {{"sum.", &Group::sums}, step};
    case OptimizerName::kLion:
      return {exp_avg};
  }
  return {};
}

}  // namespace

void Optimizer::add_parameters(const NamedTensors& parameters, const std::vector<size_t>& groups) {
  std::vector<ShardedParameter> sizes;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].second;
    const bool can_be_cut =
        !config::updates_whole_parameters(groups_[groups[i]].name) && parameter.is_contiguous();
    sizes.push_back(
        {parameter.numel(), static_cast<int64_t>(parameter.element_size()), can_be_cut});
  }
  const std::vector<ShardCut> cuts = cut_into_shards(sizes, shard_.count);
  const auto own = static_cast<size_t>(shard_.index);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    parameters_.push_back(parameter);
    names_.push_back(name);
    gradients_.push_back(parameter.grad());
    Group& group = groups_[groups[i]];
    ++group.num_parameters;
    group.num_elements += static_cast<uint64_t>(parameter.numel());
    for (const StateKind& kind : state_kinds(config_, group.name)) {
      if (!kind.belongs_to(parameter)) continue;
      TensorSpec spec = model::to_tensor_spec(kind.prefix + name, parameter);
      if (kind.is_scalar())
        spec.dtype = kind.shape == StateShape::kScalar ? DType::kF32 : DType::kF64;
      spec.shape = kind.shape_for(parameter);
      complete_state_.push_back(std::move(spec));
    }
    if (const auto range = shard_range(sizes, cuts, own, i))
      add_own(group, name, parameter, *range);
  }
  find_shard_ends(cuts);
  for (const at::Tensor& gradient : gradients_) versions_.push_back(gradient._version());
}

// The positions of the cuts in the memory of the gradients.
void Optimizer::find_shard_ends(const std::vector<ShardCut>& cuts) {
  for (const at::Tensor& flat : flat_gradients_) {
    std::vector<int64_t>& ends = shard_ends_.emplace_back();
    for (const ShardCut& cut : cuts) {
      size_t at = cut.parameter;
      while (at < gradients_.size() && !gradients_[at].is_alias_of(flat)) ++at;
      const int64_t within = at == cut.parameter ? cut.element : 0;
      ends.push_back(at < gradients_.size() ? gradients_[at].storage_offset() + within
                                            : flat.numel());
    }
  }
}

void Optimizer::add_own(Group& group, const std::string& name, const at::Tensor& parameter,
                        ElementRange range) {
  const bool is_complete = range == ElementRange{0, parameter.numel()};
  const auto range_of = [&](const at::Tensor& tensor) {
    return is_complete ? tensor
                       : tensor.detach().view({-1}).narrow(0, range.begin, range.end - range.begin);
  };
  const at::Tensor own = range_of(parameter);
  group.parameters.push_back(own);
  group.indexes.push_back(parameters_.size() - 1);
  group.gradients.push_back(range_of(parameter.grad()));
  for (const StateKind& kind : state_kinds(config_, group.name)) {
    const at::Tensor tensor = kind.belongs_to(parameter) ? kind.make(own) : at::Tensor();
    (group.*kind.tensors).push_back(tensor);
    if (!tensor.defined()) continue;
    state_.emplace_back(kind.prefix + name, tensor);
    if (!is_complete && kind.shape == StateShape::kParameter)
      ranges_[kind.prefix + name] = {.shape = parameter.sizes().vec(),
                                     .first_element = static_cast<uint64_t>(range.begin)};
  }
}

// Of Defazio et al., 2024, with the parameters y, z = y + z_offset and beta: x with y = (1 - beta) z + beta x.
NamedTensors Optimizer::averages() const {
  const at::NoGradGuard no_grad;
  NamedTensors averages;
  if (!config_.averages()) return averages;
  const double beta = std::get<config::ScheduleFreeAdamWConfig>(config_.method).betas.at(0);
  std::map<std::string, at::Tensor> offsets;
  for (const auto& [name, tensor] : state_)
    if (name.starts_with(kZOffset)) offsets[name.substr(std::strlen(kZOffset))] = tensor;
  for (size_t i = 0; i < parameters_.size(); ++i)
    averages.emplace_back(names_[i],
                          parameters_[i].detach() + offsets.at(names_[i]) * (1 - 1 / beta));
  return averages;
}

void Optimizer::set_frozen(bool is_frozen) {
  is_frozen_ = is_frozen;
  for (const at::Tensor& parameter : freezable_) parameter.set_requires_grad(!is_frozen);
}

at::Tensor Optimizer::step(double lr) {
  set_lr(lr);
  return update();
}

void Optimizer::set_lr(double lr) {
  for (Group& group : groups_) {
    group.lr = lr * group.lr_scale;
    if (group.device_lr.defined()) group.device_lr.fill_(group.lr);
  }
}

at::Tensor Optimizer::update() {
  const at::NoGradGuard no_grad;
  found_inf_ = at::Tensor();
  const at::Tensor norm = clip();
  apply();
  return norm;
}

at::Tensor Optimizer::update_if_finite(const at::Tensor& loss, const at::Tensor& maybe_found_inf) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = clip();
  at::Tensor found_inf = (norm + loss).isfinite().logical_not().to(at::kFloat);
  if (maybe_found_inf.defined()) found_inf = at::maximum(found_inf, maybe_found_inf);
  set_found_inf(found_inf);
  apply();
  return norm;
}

at::Tensor Optimizer::update_unless(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = clip();
  set_found_inf(found_inf);
  apply();
  return norm;
}

at::Tensor Optimizer::skip() {
  const at::Tensor norm = gradient_norm();
  set_found_inf(at::ones_like(norm, at::kFloat));
  return norm;
}

void Optimizer::set_found_inf(const at::Tensor& found_inf) {
  if (!found_.defined()) found_ = at::empty_like(found_inf, at::kFloat);
  found_inf_ = found_.copy_(found_inf);
}

at::Tensor Optimizer::gradient_norm() { return norm_of(gradient_norms()); }

at::Tensor Optimizer::gradient_norms() {
  const at::NoGradGuard no_grad;
  return at::stack(at::_foreach_norm(gradients()));
}

at::Tensor Optimizer::clamped_gradient_norms(const at::Tensor& norms) {
  if (!max_value_) return norms;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> clamped;  // of one copy after the other
  for (const at::Tensor& gradient : gradients())
    clamped.push_back(
        at::_foreach_norm(at::TensorList(gradient.clamp(-*max_value_, *max_value_)))[0]);
  return at::stack(clamped);
}

at::Tensor Optimizer::norm_of(const at::Tensor& norms) { return at::linalg_vector_norm(norms); }

void Optimizer::update_by_norm(const at::Tensor& clamped_norm) {
  const at::NoGradGuard no_grad;
  found_inf_ = at::Tensor();
  clamp(gradients());
  if (max_norm_) scale_gradients(clamped_norm);
  apply();
}

void Optimizer::take_gradients() {
  assert(!is_sharded());
  takes_gradients_ = true;
  flat_gradients_.clear();
  zero_grad();
}

const std::vector<at::Tensor>& Optimizer::gradients() {
  if (gradients_.empty()) collect_gradients();
  return gradients_;
}

void Optimizer::collect_gradients() {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters_) {
    if (!parameter.requires_grad()) continue;  // frozen now
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
    gradients_.push_back(parameter.grad());
  }
  for (Group& group : groups_) {
    group.gradients.clear();
    for (const at::Tensor& parameter : group.parameters)
      group.gradients.push_back(parameter.grad());
  }
}

uint64_t Optimizer::gradient_bytes() const {
  uint64_t bytes = 0;
  for (const at::Tensor& parameter : parameters_) bytes += parameter.nbytes();
  return bytes;
}

// Same as torch.nn.utils.clip_grad_value_.
void Optimizer::clamp(const std::vector<at::Tensor>& gradients) const {
  if (!max_value_ || gradients.empty()) return;
  at::_foreach_clamp_min_(gradients, -*max_value_);
  at::_foreach_clamp_max_(gradients, *max_value_);
}

at::Tensor Optimizer::clip() {
  if (sums_own_gradients()) return clip_own();
  const at::Tensor norm = gradient_norm();
  at::Tensor left = norm;
  clamp(gradients_);
  if (max_value_ && max_norm_) left = gradient_norm();
  if (max_norm_) scale_gradients(left);
  return norm;
}

// `limit`: of the values, in copies.
at::Tensor Optimizer::own_squares(std::optional<double> limit) const {
  at::Tensor sum = at::zeros({}, parameters_.front().options().dtype(at::kDouble));
  for (const Group& group : groups_) {
    if (group.gradients.empty()) continue;
    std::vector<at::Tensor> norms;
    if (limit)
      for (const at::Tensor& gradient : group.gradients)
        norms.push_back(at::_foreach_norm(at::TensorList(gradient.clamp(-*limit, *limit)))[0]);
    else
      norms = at::_foreach_norm(group.gradients);
    sum.add_(at::stack(norms).to(at::kDouble).square().sum());
  }
  return sum;
}

const std::vector<at::Tensor>& Optimizer::squares_to_sum() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> squares{own_squares(std::nullopt)};
  if (max_value_) squares.push_back(own_squares(max_value_));
  if (squares_.empty()) return squares_ = squares;
  for (size_t i = 0; i < squares.size(); ++i) squares_[i].copy_(squares[i]);
  return squares_;
}

// By the sums of squares_to_sum().
at::Tensor Optimizer::clip_own() {
  assert(!squares_.empty());
  const auto norm_of = [](const at::Tensor& squares) { return squares.sqrt().to(at::kFloat); };
  for (const Group& group : groups_) clamp(group.gradients);
  if (max_norm_) scale_gradients(norm_of(squares_.back()));
  return norm_of(squares_.front());
}

namespace {

bool has_fused_kernel(const Optimizer::Group& group) {
  switch (group.name) {
    case OptimizerName::kSgd:
    case OptimizerName::kAdam:
    case OptimizerName::kAdamW:
      return true;
    case OptimizerName::kRmsprop:
    case OptimizerName::kAdagrad:
    case OptimizerName::kLion:
    case OptimizerName::kMuon:
    case OptimizerName::kNadam:
    case OptimizerName::kRadam:
    case OptimizerName::kAdamax:
    case OptimizerName::kAdadelta:
    case OptimizerName::kAdafactor:
    case OptimizerName::kLamb:
    case OptimizerName::kLars:
    case OptimizerName::kScheduleFreeAdamW:
      return false;
  }
  return false;
}

}  // namespace

// Same as torch.nn.utils.clip_grad_norm_. Also scales by a factor of 1, which avoids reading the
// factor back from the device.
void Optimizer::scale_gradients(const at::Tensor& norm) {
  const at::Tensor factor = (*max_norm_ / (norm + 1e-6)).clamp_max_(1.0);
  if (!scales_in_kernels_ && !sums_own_gradients()) {
    at::_foreach_mul_(gradients_, factor);
    return;
  }
  if (scales_in_kernels_) grad_scale_ = factor.reciprocal();
  for (const Group& group : groups_)
    if (!group.gradients.empty() && !(scales_in_kernels_ && has_fused_kernel(group)) &&
        !(is_frozen_ && group.can_be_frozen))
      at::_foreach_mul_(group.gradients, factor);
}

namespace {

struct AdamOptions {
  double beta1 = 0, beta2 = 0, eps = 0;
};

// The parameters of adam and adamw, and of the adamw part of muon.
AdamOptions adam_options(const config::OptimizerConfig& config) {
  return std::visit(
      [](const auto& method) {
        AdamOptions options;
        if constexpr (requires {
                        method.betas;
                        method.eps;
                      })
          options = {method.betas.at(0), method.betas.at(1), method.eps};
        return options;
      },
      config.method);
}

// Calls `kernel` with the group's learning rate: the device tensor if there is one, else the
// double.
template <typename Kernel>
void with_lr(const Optimizer::Group& group, Kernel&& kernel) {
  if (group.device_lr.defined())
    kernel(group.device_lr);
  else
    kernel(group.lr);
}

using Group = Optimizer::Group;
using Tensors = std::vector<at::Tensor>;

// All tensors that an update changes.
Tensors parameters_and_state(const Group& group) {
  Tensors all = group.parameters;
  for (const auto tensors : kStates)
    for (const at::Tensor& tensor : group.*tensors)
      if (tensor.defined()) all.push_back(tensor);
  return all;
}

// Updates the group's parameters and state once from its gradients, at the group's learning rate.
// If `found_inf`, an F32 scalar on the device, is 1, they stay bit-for-bit unchanged.
void apply_update(const config::OptimizerConfig& config, Group& group,
                  const std::optional<at::Tensor>& found_inf) {
  if (!found_inf) {
    apply_update_rule(config, group);
    return;
  }
  // Only the device knows whether the step is skipped. The update therefore always runs, and a
  // skipped step is undone by restoring the previous values.
  const Tensors tensors = parameters_and_state(group);
  Tensors before;
  for (const at::Tensor& tensor : tensors) before.push_back(tensor.clone());
  apply_update_rule(config, group);
  const at::Tensor is_skipped = found_inf->to(at::kBool);
  for (size_t i = 0; i < tensors.size(); ++i)
    tensors[i].copy_(at::where(is_skipped, before[i], tensors[i]));
}

}  // namespace

// The parameters of the group that the step has reached, with their state; nullopt: all.
std::optional<Optimizer::Group> Optimizer::reached_part(const Group& group) const {
  const auto is_reached = [this](size_t index) { return reached_[index] != 0; };
  if (reached_.empty() || std::ranges::all_of(group.indexes, is_reached)) return std::nullopt;
  Group part = group;
  const auto keep_reached = [&](std::vector<at::Tensor>& tensors) {
    if (tensors.empty()) return;  // the optimizer does not have this state
    const std::vector<at::Tensor> all = std::exchange(tensors, {});
    for (size_t i = 0; i < all.size(); ++i)
      if (is_reached(group.indexes[i])) tensors.push_back(all[i]);
  };
  keep_reached(part.parameters);
  keep_reached(part.gradients);
  for (const auto tensors : kStates) keep_reached(part.*tensors);
  return part;
}

void Optimizer::apply() {
  const std::optional<at::Tensor> found_inf =
      found_inf_.defined() ? std::optional(found_inf_) : std::nullopt;
  for (Group& group : groups_) {
    if (is_frozen_ && group.can_be_frozen) continue;
    std::optional<Group> part = reached_part(group);
    apply(part ? *part : group, found_inf);
  }
}

void Optimizer::apply(Group& group, const std::optional<at::Tensor>& found_inf) {
  if (group.parameters.empty()) return;
  switch (group.name) {
    case OptimizerName::kSgd:
      apply_sgd(group, found_inf);
      break;
    case OptimizerName::kAdam:
    case OptimizerName::kAdamW:
      apply_adam(group, found_inf);
      break;
    case OptimizerName::kRmsprop:
    case OptimizerName::kAdagrad:
    case OptimizerName::kLion:
    case OptimizerName::kMuon:
    case OptimizerName::kNadam:
    case OptimizerName::kRadam:
    case OptimizerName::kAdamax:
    case OptimizerName::kAdadelta:
    case OptimizerName::kAdafactor:
    case OptimizerName::kLamb:
    case OptimizerName::kLars:
    case OptimizerName::kScheduleFreeAdamW:
      apply_update(config_, group, found_inf);
      break;
  }
}

std::optional<at::Tensor> Optimizer::maybe_grad_scale() const {
  return grad_scale_.defined() ? std::optional(grad_scale_) : std::nullopt;
}

void Optimizer::apply_sgd(Group& group, const std::optional<at::Tensor>& found_inf) {
  // With a zero-initialized buffer the first step is the same as in PyTorch, which initializes the
  // buffer from the gradient. Without momentum there is no buffer, and a Nesterov step is a plain
  // step.
  const auto& sgd = std::get<config::SgdConfig>(config_.method);
  const bool has_momentum = !group.momentum_buffers.empty();
  with_lr(group, [&](const auto& lr) {
    at::_fused_sgd_(group.parameters, group.gradients, group.momentum_buffers, group.weight_decay,
                    sgd.momentum, lr,
                    /*dampening=*/0.0, sgd.nesterov && has_momentum,
                    /*maximize=*/false, /*is_first_step=*/false, maybe_grad_scale(), found_inf);
  });
}

void Optimizer::apply_adam(Group& group, const std::optional<at::Tensor>& found_inf) {
  const AdamOptions adam = adam_options(config_);
  at::_foreach_add_(group.steps, 1);
  if (found_inf)
    at::_foreach_sub_(group.steps, std::vector<at::Tensor>(group.steps.size(), *found_inf));
  const model::KernelTable& kernels = model::fused_kernels(group.parameters.front().device());
  if (kernels.adamw != nullptr && group.name == OptimizerName::kAdamW &&
      apply_fused_adamw(group, kernels, found_inf))
    return;
  with_lr(group, [&](const auto& lr) {
    const auto kernel = [&](auto&& fused) {
      fused(group.parameters, group.gradients, group.exp_avgs, group.exp_avg_sqs,
            /*max_exp_avg_sqs=*/at::TensorList{}, group.steps, lr, adam.beta1, adam.beta2,
            group.weight_decay, adam.eps, /*amsgrad=*/false,
            /*maximize=*/false, maybe_grad_scale(), found_inf);
    };
    if (group.name == OptimizerName::kAdamW)
      kernel([](auto&&... each) { at::_fused_adamw_(each...); });
    else
      kernel([](auto&&... each) { at::_fused_adam_(each...); });
  });
  for (const at::Tensor& parameter : group.parameters) weight_copies_.convert(parameter);
}

namespace {

// Whether elements of the same index are at the same offset of each tensor's memory. The stride of a
// dimension of one element is arbitrary.
bool has_layout_of(const at::Tensor& tensor, const at::Tensor& parameter) {
  if (tensor.scalar_type() != at::kFloat || tensor.sizes() != parameter.sizes()) return false;
  if (tensor.is_contiguous() && parameter.is_contiguous()) return true;
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1 && tensor.stride(i) != parameter.stride(i)) return false;
  return tensor.is_non_overlapping_and_dense();
}

const float* maybe_floats(const std::optional<at::Tensor>& maybe_scalar) {
  return maybe_scalar ? maybe_scalar->const_data_ptr<float>() : nullptr;
}

}  // namespace

bool Optimizer::apply_fused_adamw(Group& group, const model::KernelTable& kernels,
                                  const std::optional<at::Tensor>& found_inf) {
  for (size_t i = 0; i < group.parameters.size(); ++i)
    for (const at::Tensor& tensor :
         {group.parameters[i], group.gradients[i], group.exp_avgs[i], group.exp_avg_sqs[i]})
      if (!has_layout_of(tensor, group.parameters[i])) return false;
  std::vector<model::AdamwTensor> tensors;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const at::Tensor& parameter = group.parameters[i];
    tensors.push_back({.parameter = parameter.mutable_data_ptr<float>(),
                       .gradient = group.gradients[i].const_data_ptr<float>(),
                       .exp_avg = group.exp_avgs[i].mutable_data_ptr<float>(),
                       .exp_avg_sq = group.exp_avg_sqs[i].mutable_data_ptr<float>(),
                       .step = group.steps[i].const_data_ptr<float>(),
                       .maybe_copy = weight_copies_.maybe_target(parameter),
                       .size = parameter.numel()});
  }
  const AdamOptions adam = adam_options(config_);
  // A conversion on the CPU only, whose kernels need F64; a graph owns its result.
  const at::Tensor device_lr =
      group.device_lr.defined() ? group.device_lr.to(at::kFloat) : group.device_lr;
  kernels.adamw(tensors.data(), static_cast<int64_t>(tensors.size()),
                {.beta1 = adam.beta1,
                 .beta2 = adam.beta2,
                 .eps = adam.eps,
                 .weight_decay = group.weight_decay,
                 .lr = group.lr,
                 .maybe_lr = model::kernel_pointer(device_lr),
                 .maybe_grad_scale = maybe_floats(maybe_grad_scale()),
                 .maybe_found_inf = maybe_floats(found_inf)});
  for (const at::Tensor& parameter : group.parameters) {
    parameter.unsafeGetTensorImpl()->bump_version();  // as LibTorch's operators in place
    weight_copies_.set_written(parameter);
  }
  return true;
}

void Optimizer::note_reached() {
  reached_.resize(parameters_.size());
  ever_reached_.resize(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    const bool is_reached =
        takes_gradients_ ? gradient.defined() : gradient._version() != versions_[i];
    if (is_reached) reached_[i] = ever_reached_[i] = 1;
  }
}

void Optimizer::assume_reached() {
  reached_.resize(parameters_.size());
  for (size_t i = 0; i < ever_reached_.size(); ++i) reached_[i] |= ever_reached_[i];
}

void Optimizer::set_reached(Reached reached) {
  assert(reached.empty() || reached.size() == parameters_.size());
  reached_ = std::move(reached);
}

void Optimizer::zero_grad() {
  const at::NoGradGuard no_grad;
  reached_.clear();
  for (const at::Tensor& gradients : flat_gradients_) gradients.zero_();
  if (!takes_gradients_) {
    for (size_t i = 0; i < parameters_.size(); ++i) versions_[i] = parameters_[i].grad()._version();
    return;
  }
  gradients_.clear();
  for (Group& group : groups_) group.gradients.clear();
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

Status Optimizer::gather_parameters(const AllGather& all_gather) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_)
    if (!group.parameters.empty()) at::_foreach_copy_(group.gradients, group.parameters);
  for (size_t i = 0; i < flat_gradients_.size(); ++i)
    STOKER_RETURN_IF_ERROR(all_gather(flat_gradients_[i], shard_ends_[i]));
  at::_foreach_copy_(parameters_, gradients_);
  weight_copies_.convert_all();
  zero_grad();
  return {};
}

Status Optimizer::load(const checkpoint::TensorRangeSource& saved) {
  weight_copies_.convert_all();  // of the weights, which are loaded first
  return model::load_tensor_ranges(state_, ranges_, complete_state_, saved, "the optimizer");
}

}  // namespace stoker::train
