// Public API for models in user-provided shared objects, used with
// `model: {name: plugin, path: my_model.so}`.
//
//   #include <stoker/plugin.h>
//
//   class MyModel : public stoker::plugin::Model { … };  // or StepModel, with its own loss
//
//   static std::shared_ptr<stoker::plugin::Model> make(const stoker::plugin::ModelSpec& spec) {
//     return std::make_shared<MyModel>(spec.input_shape[0], spec.args.get_int("width", 64),
//                                      spec.num_classes);
//   }
//   STOKER_PLUGIN(make)
//
// How to compile it, and an example: docs/models.md, docs/examples/plugin.
//
// Threads:   the factory and the model are called by one thread at a time, not always the same one.
// Ownership: stoker holds the model until the process exits; the shared object is never unloaded.
// Errors:    exceptions. If the factory throws, startup fails with the text of the exception; if
//            forward() throws, training fails.
#pragma once

#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <stoker/plugin_entry.h>
#include <torch/nn/module.h>
#include <torch/version.h>

namespace stoker::plugin {

// A sum over values of a batch, such as samples or tokens, and their number: scalars on the device of
// the batch.
struct SumAndCount {
  at::Tensor sum;
  at::Tensor count;
};

// What a StepModel computes of a batch.
struct StepOutput {
  SumAndCount loss;  // its sum has a gradient
  // Further losses and metrics: those of StepModel::metrics(), always all of them.
  std::map<std::string, SumAndCount> metrics = {};
};

// The tensors of a batch, [batch, …ModelSpec::fields], by their names in the dataset: `input` F32 with
// images normalized, `tokens` I64, others as in the dataset.
using Fields = std::map<std::string, at::Tensor>;

class StepModel;

// Outputs of a model in training. `aux_logits` is the output of an auxiliary head, undefined if
// there is none; its loss is weighted by task.aux_loss_weight.
struct Outputs {
  at::Tensor logits;
  at::Tensor aux_logits;
};

// Base class of plugin models. Only registered parameters and buffers of torch::nn::Module are
// trained, moved to the device, saved and loaded, under the names under which they are registered.
// Parameters must be F32 on the CPU, initialized from LibTorch's default generator, which stoker
// has seeded. stoker sets train or eval mode; forward() can check is_training().
class Model : public torch::nn::Module {
 public:
  // `input`: [batch, …ModelSpec::input_shape], F32, or I64 for tokens, which can be fewer per
  // sample than the shape says. Returns [batch, outputs], or [batch, steps, outputs] for language
  // modeling and for labels per time step. F32, or a lower precision under autocast.
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  virtual Outputs forward_with_aux(const at::Tensor& input) { return {forward(input), {}}; }
  virtual StepModel* as_step() { return nullptr; }  // only StepModel overrides it
};

// Base class of plugins that compute their own loss and metrics, with `task: {name: custom}`. The loss of
// a step is the sum over its micro-batches and ranks divided by the count over them; so are metrics, in
// training and in evaluation. A file beside the shared object, my_model.metrics.json for my_model.so,
// lists the metrics, so that they are known without running the plugin:
//
//   {"metrics": [{"name": "dice", "direction": "maximize", "unit": "fraction", "help": "…"}, …]}
class StepModel : public Model {
 public:
  // In training with gradient; is_training() tells evaluation from training.
  virtual StepOutput step(const Fields& fields) = 0;
  // The names of that file, at most 32, in its order.
  virtual std::vector<std::string> metrics() const { return {}; }
  // About the largest count of the loss of one sample; it keeps numbers in range.
  virtual int64_t counts_per_sample() const { return 1; }

  at::Tensor forward(const at::Tensor& /*input*/) override {
    throw std::logic_error("a StepModel has no forward(): set task: {name: custom}");
  }
  StepModel* as_step() final { return this; }
};

// The arguments under model.args. Keys that the factory does not read are rejected, like any
// unknown key; to_json() counts as reading all of them.
class Args {
 public:
  // `values` are keyed by path: "width", "block.width", "hidden[0]"; "hidden[]" is the length of a
  // list.
  Args(std::string json, std::map<std::string, std::string> values)
      : json_(std::move(json)), values_(std::move(values)) {}

  bool has(const std::string& key) const { return find(key) != nullptr; }
  int64_t get_int(const std::string& key, int64_t default_value) const {
    const std::string* const value = find(key);
    return value == nullptr ? default_value : number_of<int64_t>(key, *value, "an integer");
  }
  double get_double(const std::string& key, double default_value) const {
    const std::string* const value = find(key);
    return value == nullptr ? default_value : number_of<double>(key, *value, "a number");
  }
  bool get_bool(const std::string& key, bool default_value) const {
    const std::string* const value = find(key);
    if (value == nullptr) return default_value;
    if (*value != "true" && *value != "false") throw wrong(key, *value, "true or false");
    return *value == "true";
  }
  std::string get_string(const std::string& key, const std::string& default_value) const {
    const std::string* const value = find(key);
    return value == nullptr ? default_value : *value;
  }
  std::vector<int64_t> get_int_list(const std::string& key,
                                    std::vector<int64_t> default_value) const {
    if (find(key) != nullptr) throw wrong(key, *find(key), "a list, such as [64, 64]");
    const std::string* const count = find(key + "[]");
    if (count == nullptr) return default_value;
    std::vector<int64_t> items;
    for (int64_t i = 0; i < number_of<int64_t>(key, *count, "a list"); ++i)
      items.push_back(get_int(key + '[' + std::to_string(i) + ']', 0));
    return items;
  }
  // All arguments as the text of a JSON object, with keys in alphabetical order.
  const std::string& to_json() const {
    are_all_used_ = true;
    return json_;
  }

  std::vector<std::string> unused_keys() const {
    std::vector<std::string> keys;
    if (are_all_used_) return keys;
    for (const auto& [key, value] : values_)
      if (used_.count(key) == 0 && (key.size() < 2 || key.compare(key.size() - 2, 2, "[]") != 0))
        keys.push_back(key);
    return keys;
  }

 private:
  const std::string* find(const std::string& key) const {
    used_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  static std::invalid_argument wrong(const std::string& key, const std::string& value,
                                     const std::string& expected) {
    return std::invalid_argument("model.args." + key + " is '" + value + "'; it must be " +
                                 expected);
  }
  template <typename Number>
  static Number number_of(const std::string& key, const std::string& value, const char* expected) {
    Number number{};
    const char* const end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) throw wrong(key, value, expected);
    return number;
  }

  std::string json_;
  std::map<std::string, std::string> values_;
  mutable std::set<std::string> used_;
  mutable bool are_all_used_ = false;
};

// A tensor of a sample.
struct Field {
  std::string name;            // "input"
  std::string dtype;           // "F32", "I64"
  std::vector<int64_t> shape;  // of one sample
};

// Describes the model to build.
struct ModelSpec {
  Args args;
  std::vector<int64_t> input_shape;  // of one sample, such as [3, 32, 32]; [tokens] for tokens
  bool has_tokens = false;           // the input is token ids, I64
  // Number of outputs: classes, width of the target, or vocabulary size; model.num_classes if set.
  // Of a StepModel 0 if the data has none of these.
  int64_t num_classes = 0;
  std::vector<Field> fields = {};  // of a sample, for a StepModel
};

}  // namespace stoker::plugin

// Use it once per shared object, outside of any namespace. `factory`: a function with the signature
// of StokerPlugin::make.
#define STOKER_PLUGIN(factory)                                                                   \
  const StokerPlugin* stoker_plugin() {                                                          \
    static const StokerPlugin description = {::stoker::plugin::kVersion, _GLIBCXX_USE_CXX11_ABI, \
                                             TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, factory}; \
    return &description;                                                                         \
  }
