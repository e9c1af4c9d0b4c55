// exported: trains a Python module with its loss, which stoker-export wrote as a graph of PyTorch's operators. They are
// called one after another under autograd; Python is not needed.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/regular_file.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/graph/graph_file.h"
#include "shared/graph/recomputed_modules.h"
#include "shared/model/graph_program.h"
#include "shared/model/graph_self_test.h"
#include "shared/model/layer_builder.h"
#include "shared/model/load_weights.h"
#include "shared/model/model_factories.h"
#include "shared/model/model_file.h"
#include "shared/model/out_of_vocab.h"
#include "shared/model/step_inputs.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"
#include "shared/model/user_model.h"

namespace stoker::model {
namespace {

using Tensors = std::vector<at::Tensor>;
using graph::GraphFile;
using graph::TableEntry;
using ProgramPtr = std::unique_ptr<const GraphProgram>;
static_assert(graph::kMaxMetrics == kMaxStepMetrics);

// Of the mean over the batch, or of its sum and count.
LossTerm loss_term(std::span<const at::Tensor> values) {
  if (values.size() == 2) return loss_of(values[0], values[1]);
  TORCH_CHECK(values[0].dim() == 0, "the loss has the shape ", values[0].sizes(),
              ", it must be a scalar");
  return values[0].to(at::kFloat);
}

class Exported : public Model {
 public:
  Exported(GraphFile file, std::string folder, StepInputs step_inputs)
      : file_(std::move(file)), folder_(std::move(folder)), step_inputs_(std::move(step_inputs)) {
    for (const TableEntry& entry : file_.tensors) {
      at::Tensor tensor = at::empty(entry.spec.shape, to_scalar_type(entry.spec.dtype));
      const bool is_parameter = entry.kind == TableEntry::Kind::kParameter;
      if (is_parameter) tensor.set_requires_grad(entry.requires_grad);
      table_.push_back(tensor);
      if (is_parameter || (entry.kind == TableEntry::Kind::kBuffer && entry.is_persistent))
        register_tensor(*this, entry.spec.name, tensor, is_parameter);
    }
  }

  // Files of which the SHA-256 is verified.
  Status load(const checkpoint::SafetensorsFile& weights,
              const checkpoint::SafetensorsFile& self_test);

  std::map<std::string, std::string> tied_parameters() const override { return file_.tied; }
  at::Tensor forward(const at::Tensor& input) override { return predict({input}).at(0); }
  at::Tensor forward_padded(const at::Tensor& input, const at::Tensor& length) override {
    return file_.num_inputs > 1 ? predict({input, length}).at(0) : forward(input);
  }
  StepOutput step(const NamedTensors& fields) override {
    return run_step(step_inputs_.arguments(fields));
  }
  std::vector<std::string> step_metrics() const override { return file_.metrics; }
  // What it counts is not known: at most each number of the targets, as a rule.
  int64_t counts_per_sample() const override {
    if (file_.train.graph.outputs.size() - 2 * file_.metrics.size() < 2) return 0;
    int64_t count = 1;
    const size_t first_target = file_.fields.empty() ? file_.num_inputs : 0;
    for (const TensorSpec& target : std::span(file_.train.inputs).subspan(first_target))
      count = std::max(count, static_cast<int64_t>(target.elements()));
    return count;
  }
  Status prepare_training(const config::TrainConfig& config, c10::Device device) override;
  std::string capture_obstacle() const override { return train_->capture_obstacle(); }
  Status test_evaluation();

  int64_t context() const override {
    return step_inputs_.is_predicting() && !input().shape.empty() ? input().shape[0] : 0;
  }
  int64_t vocab() const override { return step_inputs_.is_predicting() ? vocab_ : 0; }

 private:
  const TensorSpec& input() const { return file_.predict.inputs[0]; }
  // Whether its second dimension is that of the steps: classes can be as many.
  bool is_per_step(size_t i, const at::Tensor& output) const {
    return i < file_.per_step.size() ? file_.per_step[i] && output.dim() > 1 : output.dim() > 2;
  }
  // 0: the length is fixed.
  int64_t min_steps(size_t input) const {
    return file_.min_steps.empty() ? 0 : file_.min_steps[input];
  }
  Tensors predict(const Tensors& inputs);
  // Of all inputs of train and eval.
  StepOutput run_step(const Tensors& arguments);
  // Operators may write to inputs.
  Tensors self_test_batch() const {
    Tensors copy;
    for (const at::Tensor& tensor : batch_) copy.push_back(tensor.clone());
    return copy;
  }
  Tensors run(const GraphProgram& program, const std::vector<TensorSpec>& specs,
              const Tensors& inputs);
  void validate(const std::vector<TensorSpec>& specs, const Tensors& inputs) const;
  void move_constants(c10::Device device);
  Result<Tensors> read_self_test(const checkpoint::SafetensorsFile& file) const;
  Result<bool> test_step(const Tensors& batch);
  Status mismatch(const std::string& what) const {
    return Status(StatusCode::kMismatch,
                  "model.path: " + folder_ + graph::kGraphName + ": " + what);
  }

  const GraphFile file_;
  const std::string folder_;  // with a slash at the end
  const StepInputs step_inputs_;
  int64_t vocab_ = 0;  // width of the first output
  Tensors table_;
  Tensors batch_;  // of the self-test
  ProgramPtr train_, eval_, predict_;
};

// Reads all tensors: also those that are not part of checkpoints.
Status Exported::load(const checkpoint::SafetensorsFile& weights,
                      const checkpoint::SafetensorsFile& self_test) {
  for (const auto& [name, program, bound] :
       {std::tuple<const char*, const graph::Program&, ProgramPtr&>("train", file_.train, train_),
        {"eval", file_.eval, eval_},
        {"predict", file_.predict, predict_}}) {
    auto made = GraphProgram::make(program);
    if (!made.ok()) return made.status().with_context(std::string("programs.") + name);
    bound = *std::move(made);
  }
  NamedTensors all;
  for (size_t i = 0; i < table_.size(); ++i)
    all.emplace_back(file_.tensors[i].spec.name, table_[i]);
  STOKER_ASSIGN_OR_RETURN(batch_, read_self_test(self_test));
  return load_tensors(all, weights, graph::kGraphName);
}

// Those that are not registered stay behind when the model moves to a device.
void Exported::move_constants(c10::Device device) {
  for (at::Tensor& tensor : table_)
    if (tensor.device() != device) tensor = tensor.detach().to(device);
}

Tensors Exported::run(const GraphProgram& program, const std::vector<TensorSpec>& specs,
                      const Tensors& inputs) {
  validate(specs, inputs);
  move_constants(inputs[0].device());
  try {
    return program.run(inputs, table_);
  } catch (const c10::Error& error) {
    // Not of the loss: a target can be out of range, too.
    const std::string reported = error.what_without_backtrace();
    if (reported.find("aten::embedding") != std::string::npos)
      throw_if_out_of_vocab(inputs[0], reported);
    throw;
  }
}

void Exported::validate(const std::vector<TensorSpec>& specs, const Tensors& inputs) const {
  TORCH_CHECK(inputs.size() == specs.size(), "the module takes ", specs.size(),
              " tensors, the batch has ", inputs.size());
  const int64_t samples = inputs[0].dim() > 0 ? inputs[0].size(0) : 0;
  TORCH_CHECK(samples >= file_.min_batch && samples <= file_.max_batch.value_or(samples),
              "a batch of ", samples, " samples; the module takes ", file_.min_batch, " or more",
              file_.max_batch ? ", at most " + std::to_string(*file_.max_batch) : std::string(),
              ": change the batch size");
  int64_t steps = 0;  // of all inputs with free ones
  for (size_t i = 0; i < specs.size(); ++i) {
    std::vector<int64_t> expected{samples};
    expected.insert(expected.end(), specs[i].shape.begin(), specs[i].shape.end());
    if (min_steps(i) > 0 && steps == 0 && inputs[i].dim() > 1)
      steps = std::clamp(inputs[i].size(1), min_steps(i), expected[1]);
    if (min_steps(i) > 0 && steps > 0) expected[1] = steps;
    TORCH_CHECK(
        inputs[i].sizes() == expected && inputs[i].scalar_type() == to_scalar_type(specs[i].dtype),
        "the module was exported for ", to_string(specs[i].dtype), ' ', format_shape(expected),
        "; the batch has ", std::string(c10::toString(inputs[i].scalar_type())), ' ',
        format_shape(inputs[i].sizes().vec()));
  }
}

StepOutput Exported::run_step(const Tensors& arguments) {
  const Tensors values = run(*(is_training() ? train_ : eval_), file_.train.inputs, arguments);
  const size_t num_metrics = file_.metrics.size();
  const auto all = std::span(values);
  StepOutput step{.loss = loss_term(all.first(all.size() - 2 * num_metrics))};
  if (num_metrics == 0) return step;
  const auto metrics = all.last(2 * num_metrics);
  for (size_t i = 0; i < num_metrics; ++i)
    add_metric(file_.metrics[i], metrics[2 * i], metrics[2 * i + 1], step);
  return step;
}

// Shorter sequences are extended, because most graphs have fixed lengths; outputs per step are cut again.
Tensors Exported::predict(const Tensors& inputs) {
  Tensors extended = inputs;
  const std::vector<int64_t>& shape = input().shape;
  at::Tensor& values = extended[0];
  const int64_t steps = values.dim() > 1 ? values.size(1) : 0;
  const int64_t least = shape.empty() ? 0 : min_steps(0) > 0 ? min_steps(0) : shape[0];
  const bool is_shorter = values.dim() > 1 && steps < least;
  if (is_shorter) values = extend_steps(values, least, 0);
  Tensors outputs = run(*predict_, file_.predict.inputs, extended);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (is_shorter && is_per_step(i, outputs[i]) && outputs[i].size(1) == least)
      outputs[i] = outputs[i].narrow(1, 0, steps);
  return outputs;
}

// ---- The self-test: this LibTorch, on this machine, computes what Python did.

Result<Tensors> Exported::read_self_test(const checkpoint::SafetensorsFile& file) const {
  Tensors batch;
  for (size_t i = 0; i < file_.train.inputs.size(); ++i) {
    const TensorSpec& spec = file_.train.inputs[i];
    const bool is_input = i < file_.num_inputs;
    const std::string name =
        is_input ? "input." + std::to_string(i) : "target." + std::to_string(i - file_.num_inputs);
    const TensorSpec* const found = file.find(name);
    if (found == nullptr || found->dtype != spec.dtype || found->shape.empty() ||
        !std::ranges::equal(spec.shape, std::span(found->shape).subspan(1)))
      return mismatch(std::string(graph::kSelfTestName) + " has no " +
                      to_string(TensorSpec{name, spec.dtype, spec.shape}) + " per sample");
    at::Tensor tensor = at::empty(found->shape, to_scalar_type(found->dtype));
    STOKER_RETURN_IF_ERROR(
        file.read(name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
    batch.push_back(std::move(tensor));
  }
  return batch;
}

// Seeds the generator, and takes one thread, because the number of threads changes bits. Restores both, and all
// tensors: forward() can write to parameters, too (max_norm of an embedding).
class SelfTestScope {
 public:
  SelfTestScope(uint64_t seed, const Tensors& table)
      : threads_(at::get_num_threads()),
        generator_(at::globalContext().defaultGenerator(at::kCPU)),
        table_(table) {
    at::set_num_threads(1);
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
    generator_.set_current_seed(seed);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& tensor : table_) before_.push_back(tensor.detach().clone());
  }
  ~SelfTestScope() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < table_.size(); ++i) {
      table_[i].mutable_grad() = at::Tensor();
      table_[i].set_data(before_[i]);  // fits whatever shape a step left
    }
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
    at::set_num_threads(threads_);
  }
  SelfTestScope(const SelfTestScope&) = delete;
  SelfTestScope& operator=(const SelfTestScope&) = delete;

 private:
  const int threads_;
  at::Generator generator_;
  at::Tensor state_;
  const Tensors& table_;
  Tensors before_;
};

// Whether all bits are those of Python.
Result<bool> Exported::test_step(const Tensors& batch) {
  const graph::SelfTest& test = file_.self_test;
  const SelfTestScope scope(test.seed, table_);
  train();
  const at::Tensor loss = run_step(batch).loss.mean;
  if (!loss.requires_grad()) return mismatch("the loss depends on no parameter");
  STOKER_ASSIGN_OR_RETURN(bool is_equal, check_tested_tensor("the loss", loss, test.loss));
  loss.backward();
  for (size_t i = 0; i < table_.size(); ++i) {
    const TableEntry& entry = file_.tensors[i];
    const std::string& name = entry.spec.name;
    if (entry.requires_grad) {
      const at::Tensor& gradient = table_[i].grad();
      const auto& expected = test.gradients.at(name);
      if (gradient.defined() != expected.has_value())
        return Status(StatusCode::kMismatch, "fails its self-test: " + name + " has " +
                                                 (gradient.defined() ? "a" : "no") +
                                                 " gradient, unlike in Python");
      if (!expected) continue;
      STOKER_ASSIGN_OR_RETURN(const bool same,
                              check_tested_tensor("the gradient of " + name, gradient, *expected));
      is_equal = is_equal && same;
    } else if (entry.kind == TableEntry::Kind::kBuffer) {
      STOKER_ASSIGN_OR_RETURN(const bool same, check_tested_tensor("the buffer " + name, table_[i],
                                                                   test.buffers.at(name)));
      is_equal = is_equal && same;
    }
  }
  return is_equal;
}

Status Exported::test_evaluation() {
  const graph::SelfTest& test = file_.self_test;
  const Tensors batch = self_test_batch();
  const Tensors inputs(batch.begin(), batch.begin() + static_cast<ptrdiff_t>(file_.num_inputs));
  const at::NoGradGuard no_grad;
  eval();
  // Both from the seed: in Python, one run computes outputs and loss.
  const auto seeded = [&](const auto& compute) {
    const SelfTestScope scope(test.seed, table_);
    return compute();
  };
  const Tensors outputs = seeded([&] { return predict(inputs); });
  for (size_t i = 0; i < outputs.size(); ++i)
    STOKER_RETURN_IF_ERROR(
        check_tested_tensor("output " + std::to_string(i), outputs[i], test.outputs[i]).status());
  if (!outputs.empty() && outputs[0].dim() > 0) vocab_ = outputs[0].size(-1);
  const at::Tensor loss = seeded([&] { return run_step(batch).loss.mean; });
  train();
  return check_tested_tensor("the loss in eval mode", loss, test.eval_loss).status();
}

Status check_batch_size(const GraphFile& file, const std::string& what, int64_t samples) {
  if (samples >= file.min_batch && samples <= file.max_batch.value_or(samples)) return {};
  return Status(StatusCode::kMismatch,
                "takes batches of " + std::to_string(file.min_batch) + " samples or more" +
                    (file.max_batch ? ", at most " + std::to_string(*file.max_batch) : "") + ", " +
                    what + std::to_string(samples));
}

Status Exported::prepare_training(const config::TrainConfig& config, c10::Device /*device*/) {
  const Status sized =
      check_batch_size(file_, "train.micro_batch_size is ", config.micro_batch_size);
  if (!sized.ok()) return mismatch(sized.message());
  const Tensors batch = self_test_batch();
  try {
    const Result<bool> tested = test_step(batch);
    if (!tested.ok()) return mismatch(tested.status().message());
    log_info("exported model tested", {{"path", folder_}, {"bit_equal", *tested}});
  } catch (const c10::Error& error) {
    return user_model_error(error,
                            "model.path: " + folder_ + graph::kGraphName + ": the self-test fails");
  }
  return {};
}

// ---- Loading

// The tensors are read from the file that was hashed, whatever has its name by then.
Result<std::unique_ptr<checkpoint::SafetensorsFile>> open_verified(const std::string& path,
                                                                   const std::string& sha256) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  STOKER_ASSIGN_OR_RETURN(const struct stat info, regular_file(fd.get(), path));
  STOKER_ASSIGN_OR_RETURN(
      const std::string found,
      checkpoint::sha256_of_file(fd.get(), static_cast<uint64_t>(info.st_size), path));
  if (found != sha256)
    return Status(StatusCode::kCorrupt, path + ": its SHA-256 is not that of " + graph::kGraphName +
                                            "; export the module again");
  return checkpoint::SafetensorsFile::open_fd(std::move(fd), path);
}

Result<GraphFile> read_graph(const std::string& path) {
  const auto text = read_file(path, graph::kMaxGraphBytes);
  if (text.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound, text.status().message() + config::kExportHint);
  if (!text.ok()) return text.status();
  return graph::parse_graph_file(*text, path);
}

Result<ModelPtr> make(const config::ExportedConfig& config, const Samples& sample) {
  const std::string folder = config.path + '/';
  const std::string path = folder + graph::kGraphName;
  STOKER_ASSIGN_OR_RETURN(GraphFile file, read_graph(path));
  STOKER_RETURN_IF_ERROR(check_operators(file).with_context(path));
  fold_modules(file.train, file.recomputed, file.operators);
  auto step_inputs = StepInputs::bind(file, sample);
  if (!step_inputs.ok()) return step_inputs.status().with_context(path);
  STOKER_ASSIGN_OR_RETURN(const auto weights,
                          open_verified(folder + graph::kWeightsName, file.weights_sha256));
  STOKER_ASSIGN_OR_RETURN(const auto self_test,
                          open_verified(folder + graph::kSelfTestName, file.self_test_sha256));
  const auto model = std::make_shared<Exported>(std::move(file), folder, *std::move(step_inputs));
  STOKER_RETURN_IF_ERROR(model->load(*weights, *self_test).with_context(path));
  STOKER_RETURN_IF_ERROR(model->test_evaluation().with_context(path));
  return ModelPtr(model);
}

}  // namespace

Result<ModelPtr> make_exported(const config::ExportedConfig& config, const Samples& sample) {
  try {
    auto model = make(config, sample);
    if (model.ok()) return model;
    return with_model_path(model.status(), config.path);
  } catch (const c10::Error& error) {
    return with_model_path(user_model_error(error, "the self-test fails"), config.path);
  }
}

namespace {

Status check_batch_size(const config::ModelConfig& model, const std::string& what,
                        int64_t samples) {
  const auto* const exported = std::get_if<config::ExportedConfig>(&model.arch);
  if (exported == nullptr) return {};
  const std::string path = exported->path + '/' + graph::kGraphName;
  const auto file = read_graph(path);
  const Status status =
      file.ok() ? check_batch_size(*file, what, samples).with_context(path) : file.status();
  return with_model_path(status, exported->path);
}

}  // namespace

Status check_eval_batch_size(const config::ModelConfig& model, const config::EvalConfig& eval) {
  return eval.datasets.empty() ? Status()
                               : check_batch_size(model, "eval.batch_size is ", eval.batch_size);
}

Status check_last_eval_batch(const config::ModelConfig& model, const config::EvalConfig& eval,
                             const std::string& name, uint64_t size) {
  const uint64_t evaluated = std::min(eval.max_samples.value_or(size), size);
  const uint64_t last = evaluated % static_cast<uint64_t>(eval.batch_size);
  if (last == 0) return {};
  return check_batch_size(model,
                          "the last of " + std::to_string(evaluated) + " samples of data." + name +
                              " in batches of eval.batch_size has ",
                          static_cast<int64_t>(last));
}

}  // namespace stoker::model
