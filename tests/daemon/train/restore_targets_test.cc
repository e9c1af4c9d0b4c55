// A run whose settings change at each resume: layers are frozen and unfrozen, EMA and adapters come and go. What is
// loaded is what the files of the checkpoint have, read by themselves, and nothing else is overwritten.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "shared/model/torch_dtype.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

// Empty: there is no such file.
Tensors read_tensors(const checkpoint::VerifiedCheckpoint& saved, const std::string& file) {
  Tensors tensors;
  const auto opened = saved.open_tensors(file);
  if (!opened.ok()) {
    EXPECT_EQ(opened.status().code(), StatusCode::kNotFound) << opened.status().to_string();
    return tensors;
  }
  for (const TensorSpec& spec : (*opened)->tensors()) {
    const at::Tensor tensor =
        at::empty(spec.shape, at::TensorOptions().dtype(model::to_scalar_type(spec.dtype)));
    EXPECT_TRUE((*opened)
                    ->read(spec.name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()})
                    .ok());
    tensors[spec.name] = tensor;
  }
  return tensors;
}

// One start of the run, for two steps.
struct Leg {
  std::string name;
  std::function<void(config::Config&)> set;
};

class RestoreTargetsTest : public TrainerTest {
 protected:
  void train(const Leg& leg) {
    auto config = small_config(2);
    config.model.arch = config::SequentialConfig{
        .layers = {config::LinearLayer{.out_features = 6}, config::BatchNormLayer{},
                   config::ReluLayer{}, config::LinearLayer{}}};
    config.scheduler.warmup_steps = 0;
    config.run.seed = ++num_legs_;  // other initial weights
    leg.set(config);
    const std::string where = leg.name + ", start " + std::to_string(num_legs_);
    const auto before =
        checkpoint::CheckpointStore(root_ + "/checkpoints", default_file_system()).open_newest({});
    ASSERT_EQ(before.ok(), num_legs_ > 1) << where;
    root_ = fresh();
    Session run(config, root_);
    if (before.ok()) {
      ASSERT_TRUE(run.state_->restore(*before, /*may_differ=*/true).ok()) << where;
      run.state_->step = run.state_->ticket = 0;  // the session has its batches from there on
    }
    Tensors weights, averages;
    if (before.ok()) {
      weights = read_tensors(*before, "model.safetensors");
      averages = read_tensors(*before, "ema.safetensors");
      ASSERT_FALSE(weights.empty()) << where;
      ASSERT_EQ(averages.empty(), !had_average_) << where;
    }
    expect_each(weights, tensors_of(run), where, "loaded");
    EmaWeights* const ema = run.state_->ema_weights();
    had_average_ = ema != nullptr;
    if (ema != nullptr && before.ok())
      expect_each(to_map(ema->averages()), averages.empty() ? weights : averages, where, "average");
    Tensors frozen;
    for (const auto& parameter : run.state_->model().named_parameters())
      if (!parameter.value().requires_grad())
        frozen[parameter.key()] = parameter.value().detach().clone();
    const auto outcome = run.train();
    ASSERT_TRUE(outcome.ok()) << where << outcome.status().to_string();

    Tensors parameters;  // also those below an adapter
    for (const auto& parameter : run.state_->model().named_parameters()) {
      parameters[parameter.key()] = parameter.value();
      if (parameter.value().requires_grad()) frozen.erase(parameter.key());  // unfrozen meanwhile
    }
    expect_each(frozen, parameters, where, "frozen");
    const auto after = run.store_.open_newest({});
    ASSERT_TRUE(after.ok());
    // Without an average of its own, a tensor is that of the model.
    Tensors own = read_tensors(*after, "ema.safetensors");
    if (ema != nullptr)
      for (const auto& [name, average] : ema->averages()) own.erase(name);
    expect_each(own, read_tensors(*after, "model.safetensors"), where, "without average");
  }

  // Each of `tensors` is in `others`, with the same values.
  void expect_each(const Tensors& tensors, const Tensors& others, const std::string& where,
                   const std::string& what) {
    for (const auto& [name, tensor] : tensors) {
      const auto other = others.find(name);
      ASSERT_NE(other, others.end()) << where << ", " << what << ": " << name;
      EXPECT_TRUE(at::equal(tensor, other->second)) << where << ", " << what << ": " << name;
    }
    num_compared_[what] += tensors.size();
  }
  // That the legs have left none of the comparisons out.
  void expect_all_compared() {
    for (const char* const what : {"loaded", "average", "frozen", "without average"})
      EXPECT_GT(num_compared_[what], 0u) << what;
  }

  static Tensors to_map(const model::NamedTensors& tensors) {
    return {tensors.begin(), tensors.end()};
  }
  static Tensors tensors_of(Session& run) {
    return to_map(model::named_tensors(run.state_->model()));
  }

  uint64_t num_legs_ = 0;
  bool had_average_ = false;  // the leg before
  std::map<std::string, size_t> num_compared_;
};

void average(config::Config& config) { config.train.ema_decay = 0.9; }

TEST_F(RestoreTargetsTest, LoadsEachTensorFromItsFileOnly) {
  const auto freeze = [](std::vector<std::string> globs, bool has_average = true) {
    return [globs, has_average](config::Config& config) {
      config.model.freeze = globs;
      if (has_average) average(config);
    };
  };
  for (const Leg& leg : std::vector<Leg>{{"average", average},
                                         {"frozen", freeze({"0.*"})},
                                         {"others frozen", freeze({"1.*", "3.bias"})},
                                         {"unfrozen", average},
                                         {"frozen without average", freeze({"0.*"}, false)},
                                         {"no average", [](config::Config&) {}},
                                         {"average again", average},
                                         {"unfrozen within",
                                          [](config::Config& config) {
                                            config.model.freeze = {"0.*"};
                                            config.model.unfreeze_at_step =
                                                config.train.max_steps - 1;
                                            average(config);
                                          }},
                                         {"resumed unfrozen", average}}) {
    train(leg);
    if (HasFatalFailure()) return;
  }
  expect_all_compared();
}

TEST_F(RestoreTargetsTest, LoadsAdapterAndItsAverage) {
  const auto adapt = [](bool has_average) {
    return [has_average](config::Config& config) {
      config.model.lora =
          config::LoraConfig{.r = 2, .target_modules = {"0"}, .modules_to_save = {"3"}};
      if (has_average) average(config);
    };
  };
  for (const bool has_average : {true, true, false, true}) {
    train({"adapter", adapt(has_average)});
    if (HasFatalFailure()) return;
  }
  expect_all_compared();
}

}  // namespace
}  // namespace stoker::train
