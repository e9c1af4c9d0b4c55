// A model in a shared object of your own, for `model: {name: plugin, path: my_model.so}`.
//
//   #include <stoker/plugin.h>
//
//   class MyModel : public stoker::plugin::Model { … };
//
//   static std::shared_ptr<stoker::plugin::Model> make(const stoker::plugin::ModelSpec& request) {
//     return std::make_shared<MyModel>(request.input[0], request.parameters.integer("width", 64),
//                                      request.outputs);
//   }
//   STOKER_PLUGIN(make)
//
// How it is compiled, and an example: docs/models.md, docs/examples/plugin.
//
// Threads: make() and all of the model: one thread at a time, not always the same one.
// Owner:   stoker holds the model as long as the process trains or evaluates; the shared object is
//          never unloaded.
// Errors:  exceptions. Those of make() end the program's start, with their text; those of forward()
//          end training.
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

// What a model says of a batch in training: `auxiliary` is what a second head further down says of
// the same, undefined where there is none. Its loss counts by task.aux_loss_weight.
struct Outputs {
  at::Tensor logits;
  at::Tensor aux_logits;
};

// Parameters and buffers are those of torch::nn::Module, under the names under which they are
// registered: what is registered is trained, moved to the device, saved and loaded; nothing else
// is. Parameters are F32 on the CPU, drawn from LibTorch's default generator, which stoker has
// seeded. forward() asks is_training(), which stoker sets, for what only training does.
class Model : public torch::nn::Module {
 public:
  // `input`: [batch, …ModelSpec::input], F32, or I64 of tokens, which may be fewer a sample than
  // that. Returns [batch, outputs]; of tokens, or where each step of a sequence is labelled,
  // [batch, steps, outputs]. F32, or shorter under autocast.
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  virtual Outputs forward_with_aux(const at::Tensor& input) { return {forward(input), {}}; }
};

// The settings under model.args. What the factory does not ask for is refused, as any other
// misspelt key is; json() counts as asking for all.
class Args {
 public:
  // `values`: by the way to it: "width", "block.width", "hidden[0]"; "hidden[]": how many there
  // are.
  Args(std::string json, std::map<std::string, std::string> values)
      : json_(std::move(json)), values_(std::move(values)) {}

  bool has(const std::string& key) const { return find(key) != nullptr; }
  int64_t get_int(const std::string& key, int64_t default_value) const {
    const std::string* const value = find(key);
    return value == nullptr ? default_value : number_of<int64_t>(key, *value, "a whole number");
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
  // All of it as the text of a JSON object, keys in their alphabetical order.
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
                                     const std::string& wanted) {
    return std::invalid_argument("model.args." + key + " is '" + value + "'; it must be " + wanted);
  }
  template <typename Number>
  static Number number_of(const std::string& key, const std::string& value, const char* wanted) {
    Number number{};
    const char* const end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) throw wrong(key, value, wanted);
    return number;
  }

  std::string json_;
  std::map<std::string, std::string> values_;
  mutable std::set<std::string> used_;
  mutable bool are_all_used_ = false;
};

// What a model is to be made for.
struct ModelSpec {
  Args args;
  std::vector<int64_t>
      input_shape;          // the shape of one sample, such as [3, 32, 32]; [tokens] of tokens
  bool has_tokens = false;  // the input is numbers of tokens, I64
  // Classes, width of the target, or tokens to choose from; or model.num_classes.
  int64_t num_classes = 0;
};

}  // namespace stoker::plugin

// Once in a shared object, outside of any namespace. `factory`: a function as StokerPlugin::make.
#define STOKER_PLUGIN(factory)                                                                   \
  const StokerPlugin* stoker_plugin() {                                                          \
    static const StokerPlugin description = {::stoker::plugin::kVersion, _GLIBCXX_USE_CXX11_ABI, \
                                             TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, factory}; \
    return &description;                                                                         \
  }
