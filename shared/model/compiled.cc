// compiled: trains a Python module that stoker-export compiled ahead of time with its loss and its
// gradients (PyTorch's AOTInductor). Python is not needed to run it.
//
// The package holds three programs over flat lists of tensors, see python/stoker_export/compiler.py:
//   train    parameters, buffers, inputs, targets, seeds -> loss, gradients; updates the buffers
//   predict  parameters, buffers, inputs -> outputs, in eval mode
//   loss     outputs, targets -> loss
// Parameters, buffers and the optimizer belong to stoker, under the names of the Python module.
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/trusted_file.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/model/compiled_manifest.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/layer_builder.h"
#include "shared/model/load_weights.h"
#include "shared/model/model_factories.h"
#include "shared/model/model_file.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"
#include "shared/model/user_model.h"

namespace stoker::model {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr uint64_t kMaxManifestBytes = 64 << 20;

// The loader unpacks a program into a new folder of /tmp, which a killed process would leave behind.
// The loaded library does not need it.
void remove_unpacked(const std::string& program) {
  std::vector<std::string> libraries;
  const auto add = [](dl_phdr_info* info, size_t, void* to) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
    return 0;
  };
  ::dl_iterate_phdr(add, &libraries);
  constexpr std::string_view kParent = "/tmp/";
  for (const std::string& library : libraries) {
    const size_t end = library.find('/', kParent.size());
    std::error_code error;  // the loader removes it, too
    if (library.starts_with(kParent) && end != std::string::npos &&
        library.find("/data/aotinductor/" + program + '/', end) != std::string::npos)
      std::filesystem::remove_all(library.substr(0, end), error);
  }
}

// A program of the package, loaded at its first call: the evaluator needs no training.
class Program {
 public:
  Program(std::string package, std::string name)
      : package_(std::move(package)), name_(std::move(name)) {}

  // Throws c10::Error.
  Tensors run(Tensors arguments) {
    // The program has its own casts.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    try {
      if (loader_ == nullptr) {
        loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
            package_, name_, /*run_single_threaded=*/true);
        remove_unpacked(name_);
      }
      return loader_->boxed_run(std::move(arguments));
    } catch (const c10::Error&) {
      throw;
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "the compiled program ", name_, " of ", package_,
                  " fails: ", first_line(error.what()));
    }
  }

 private:
  const std::string package_, name_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

std::string shape_of(const at::Tensor& tensor) {
  return std::string(c10::toString(tensor.scalar_type())) + ' ' +
         format_shape(tensor.sizes().vec());
}

class Compiled : public Model {
 public:
  Compiled(CompiledManifest manifest, const std::string& folder, bool is_predicting)
      : manifest_(std::move(manifest)),
        folder_(folder),
        is_predicting_(is_predicting),
        train_(folder + kCompiledPackage, "train"),
        predict_(folder + kCompiledPackage, "predict"),
        loss_(folder + kCompiledPackage, "loss") {
    for (const auto& [spec, requires_grad] : manifest_.parameters) {
      parameters_.push_back(empty(spec).set_requires_grad(requires_grad));
      register_tensor(*this, spec.name, parameters_.back(), true);
    }
    for (const auto& [spec, is_persistent] : manifest_.buffers) {
      buffers_.push_back(empty(spec));
      if (is_persistent) register_tensor(*this, spec.name, buffers_.back(), false);
    }
  }

  // The initial weights, and buffers that are not part of checkpoints.
  Status load() {
    NamedTensors all;
    for (size_t i = 0; i < parameters_.size(); ++i)
      all.emplace_back(manifest_.parameters[i].spec.name, parameters_[i]);
    for (size_t i = 0; i < buffers_.size(); ++i)
      all.emplace_back(manifest_.buffers[i].spec.name, buffers_[i]);
    STOKER_ASSIGN_OR_RETURN(const auto file,
                            checkpoint::SafetensorsFile::open(folder_ + kCompiledWeights));
    return load_tensors(all, *file, kCompiledPackage);
  }

  std::map<std::string, std::string> tied_parameters() const override {
    return manifest_.tied_parameters;
  }
  at::Tensor forward(const at::Tensor& input) override { return predict({input}).at(0); }
  at::Tensor forward_padded(const at::Tensor& input, const at::Tensor& length) override {
    return manifest_.inputs.size() > 1 ? predict({input, length}).at(0) : forward(input);
  }
  LossTerm loss(const Tensors& inputs, const Tensors& targets) override;
  Status prepare_training(const config::TrainConfig& config, c10::Device device) override;
  Status test_evaluation();

  int64_t context() const override { return is_predicting_ ? manifest_.inputs[0].shape[0] : 0; }
  int64_t vocab() const override {
    const std::vector<int64_t>& output = manifest_.outputs[0].shape;
    return is_predicting_ && !output.empty() ? output.back() : 0;
  }

  // The loss and the gradients of the parameters with requires_grad at the export.
  Tensors step(const Tensors& buffers, const Tensors& inputs, const Tensors& targets,
               const at::Tensor& seeds) {
    validate(inputs, manifest_.inputs);
    validate(targets, manifest_.targets);
    Tensors results = train_.run(arguments({&parameters_, &buffers, &inputs, &targets}, seeds));
    const size_t gradients = manifest_.self_test.gradient_norms.size();
    TORCH_CHECK(results.size() == 1 + gradients, "the compiled step returned ", results.size(),
                " tensors, not ", 1 + gradients);
    return results;
  }
  const Tensors& buffers() const { return buffers_; }
  const CompiledManifest& manifest() const { return manifest_; }

 private:
  struct SelfTestBatch {
    Tensors inputs, targets;
  };

  static at::Tensor empty(const TensorSpec& spec) {
    return at::empty(spec.shape, to_scalar_type(spec.dtype));
  }
  static Tensors arguments(std::initializer_list<const Tensors*> lists,
                           const at::Tensor& last = {}) {
    Tensors flat;
    for (const Tensors* const list : lists)
      for (const at::Tensor& tensor : *list) flat.push_back(tensor.detach());
    if (last.defined()) flat.push_back(last);
    return flat;
  }
  Tensors predict(const Tensors& inputs);
  // The programs do not check their arguments.
  void validate(const Tensors& tensors, const std::vector<TensorSpec>& specs) const;
  Result<SelfTestBatch> read_self_test() const;
  Status check_step(const SelfTestBatch& batch, int threads);

  const CompiledManifest manifest_;
  const std::string folder_;
  const bool is_predicting_;
  Tensors parameters_, buffers_;
  Program train_, predict_, loss_;
};

// Shorter sequences are extended, because compiled programs have fixed lengths; outputs per step are
// cut again.
Tensors Compiled::predict(const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  Tensors extended;
  for (const at::Tensor& input : inputs) extended.push_back(input.contiguous());
  const std::vector<int64_t>& shape = manifest_.inputs[0].shape;
  at::Tensor& values = extended[0];
  const int64_t steps = values.dim() > 1 ? values.size(1) : 0;
  const bool is_shorter = !shape.empty() && values.dim() > 1 && steps < shape[0];
  if (is_shorter) values = extend_steps(values, shape[0], 0);
  validate(extended, manifest_.inputs);
  Tensors outputs = predict_.run(arguments({&parameters_, &buffers_, &extended}));
  for (at::Tensor& output : outputs)
    if (is_shorter && output.dim() > 1 && output.size(1) == shape[0])
      output = output.narrow(1, 0, steps);
  return outputs;
}

// Passes the gradients that the program computed with the loss to autograd, so that frozen
// parameters, micro-batches, loss scaling and hooks work as for any other model.
struct StepArguments {
  Compiled& model;
  const Tensors& inputs;
  const Tensors& targets;
};
struct StepFunction : torch::autograd::Function<StepFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const StepArguments& arguments, at::TensorList /*trained*/) {
    Compiled& model = arguments.model;
    const int64_t seeds = model.manifest().seeds;
    // From the generator of the run: with run.rng per_ticket a function of run.seed and the ticket.
    const at::Tensor seed =
        seeds > 0 ? at::empty({seeds}, at::kLong).random_() : at::empty({1}, at::kLong).zero_();
    Tensors results = model.step(model.buffers(), arguments.inputs, arguments.targets, seed);
    at::Tensor loss = std::move(results.front());
    results.erase(results.begin());
    context->saved_data["gradients"] = std::move(results);
    return loss;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outputs) {
    Tensors gradients = context->saved_data["gradients"].toTensorVector();
    context->saved_data.clear();
    torch::autograd::variable_list all(1);  // StepArguments
    const bool is_scaled = outputs[0].item<double>() != 1;
    std::set<const void*> memory;
    for (at::Tensor& gradient : gradients) {
      // Two gradients can be one tensor, as those of both terms of a sum; autograd may add in place.
      const bool is_shared = !memory.insert(gradient.const_data_ptr()).second;
      all.push_back(is_scaled ? gradient * outputs[0] : is_shared ? gradient.clone() : gradient);
    }
    return all;
  }
};

void Compiled::validate(const Tensors& tensors, const std::vector<TensorSpec>& specs) const {
  TORCH_CHECK(tensors.size() == specs.size(), "the compiled model takes ", specs.size(),
              " tensors, the batch has ", tensors.size());
  const int64_t samples = tensors.empty() ? 0 : tensors[0].size(0);
  TORCH_CHECK(samples >= manifest_.min_batch && samples <= manifest_.max_batch, "a batch of ",
              samples, " samples; the model was exported for ", manifest_.min_batch, " to ",
              manifest_.max_batch,
              ": lower eval.batch_size, or export it with another --max-batch");
  for (size_t i = 0; i < specs.size(); ++i) {
    std::vector<int64_t> expected{samples};
    expected.insert(expected.end(), specs[i].shape.begin(), specs[i].shape.end());
    TORCH_CHECK(tensors[i].device().is_cpu(), "compiled models run on the CPU only");
    TORCH_CHECK(tensors[i].sizes() == expected &&
                    tensors[i].scalar_type() == to_scalar_type(specs[i].dtype),
                "the model was exported for ", to_string(specs[i].dtype), ' ',
                format_shape(expected), "; the batch has ", shape_of(tensors[i]));
  }
}

LossTerm Compiled::loss(const Tensors& inputs, const Tensors& targets) {
  if (!is_training()) {
    const at::NoGradGuard no_grad;
    validate(inputs, manifest_.inputs);  // also that they have the length of the targets
    validate(targets, manifest_.targets);
    const Tensors outputs = predict(inputs);
    return loss_.run(arguments({&outputs, &targets})).at(0);
  }
  Tensors trained;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (manifest_.parameters[i].requires_grad) trained.push_back(parameters_[i]);
  return StepFunction::apply(StepArguments{*this, inputs, targets}, at::TensorList(trained));
}

// ---- The self-test: the programs of this package, on this machine, compute what they computed where
// they were compiled. A compiler's defect can return a wrong loss without an error.

Result<Compiled::SelfTestBatch> Compiled::read_self_test() const {
  STOKER_ASSIGN_OR_RETURN(const auto file,
                          checkpoint::SafetensorsFile::open(folder_ + kCompiledSelfTest));
  SelfTestBatch batch;
  const auto read = [&](const std::vector<TensorSpec>& specs, Tensors& tensors) -> Status {
    for (const TensorSpec& spec : specs) {
      const TensorSpec* const found = file->find(spec.name);
      const bool fits = found != nullptr && found->dtype == spec.dtype && !found->shape.empty() &&
                        std::ranges::equal(spec.shape, std::span(found->shape).subspan(1));
      if (!fits)
        return Status(StatusCode::kMismatch, std::string(kCompiledSelfTest) + " has no " +
                                                 to_string(spec) + " per sample");
      at::Tensor tensor = empty(*found);
      STOKER_RETURN_IF_ERROR(
          file->read(spec.name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
      tensors.push_back(std::move(tensor));
    }
    return {};
  };
  STOKER_RETURN_IF_ERROR(read(manifest_.inputs, batch.inputs));
  STOKER_RETURN_IF_ERROR(read(manifest_.targets, batch.targets));
  return batch;
}

class ThreadCountScope {
 public:
  explicit ThreadCountScope(int count) : was_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCountScope() { at::set_num_threads(was_); }
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  const int was_;
};

std::string shortest(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

Status check_value(const std::string& what, double value, double expected, double scale,
                   double tolerance) {
  if (std::abs(value - expected) <= tolerance * scale) return {};  // false for NaN
  return Status(StatusCode::kMismatch, "fails its self-test: " + what + " is " + shortest(value) +
                                           ", expected " + shortest(expected) +
                                           "; the package is wrong on this machine: export the "
                                           "module here");
}

double l2_norm(const at::Tensor& tensor) { return tensor.to(at::kDouble).norm().item<double>(); }

Status Compiled::check_step(const SelfTestBatch& batch, int threads) {
  const CompiledManifest::SelfTest& test = manifest_.self_test;
  Tensors buffers;  // a step changes them
  for (const at::Tensor& buffer : buffers_) buffers.push_back(buffer.clone());
  const at::Tensor seeds = at::arange(std::max<int64_t>(manifest_.seeds, 1), at::kLong);
  const Tensors results = step(buffers, batch.inputs, batch.targets, seeds);
  const std::string with = " with " + std::to_string(threads) + " threads";
  const auto loss = results[0].item<double>();
  STOKER_RETURN_IF_ERROR(check_value("the loss" + with, loss, test.loss,
                                     std::max(std::abs(test.loss), 1e-6), test.tolerance));
  const double largest = *std::ranges::max_element(test.gradient_norms);
  constexpr double kSmall = 1e-2;
  size_t next = 0;
  for (const auto& [spec, requires_grad] : manifest_.parameters) {
    if (!requires_grad) continue;
    STOKER_RETURN_IF_ERROR(check_value("the norm of the gradient of " + spec.name + with,
                                       l2_norm(results[1 + next]), test.gradient_norms[next],
                                       std::max(test.gradient_norms[next], kSmall * largest),
                                       test.tolerance));
    ++next;
  }
  return {};
}

Status Compiled::test_evaluation() {
  STOKER_ASSIGN_OR_RETURN(const SelfTestBatch batch, read_self_test());
  const CompiledManifest::SelfTest& test = manifest_.self_test;
  const at::NoGradGuard no_grad;
  const Tensors outputs = predict(batch.inputs);
  if (outputs.size() != manifest_.outputs.size())
    return Status(StatusCode::kMismatch, "returns " + std::to_string(outputs.size()) + " outputs");
  for (size_t i = 0; i < outputs.size(); ++i)
    STOKER_RETURN_IF_ERROR(check_value("the norm of " + manifest_.outputs[i].name,
                                       l2_norm(outputs[i]), test.output_norms[i],
                                       std::max(test.output_norms[i], 1e-6), test.tolerance));
  const auto loss = loss_.run(arguments({&outputs, &batch.targets})).at(0).item<double>();
  return check_value("the loss in eval mode", loss, test.eval_loss,
                     std::max(std::abs(test.eval_loss), 1e-6), test.tolerance);
}

Status Compiled::prepare_training(const config::TrainConfig& config, c10::Device device) {
  const auto mismatch = [&](const std::string& what) {
    return Status(StatusCode::kMismatch, "model.path: " + folder_ + "manifest.json: " + what);
  };
  if (!device.is_cpu())
    return mismatch("compiled models train on the CPU only: set train.device to cpu");
  const bool is_bf16 = config.precision == config::Precision::kBf16;
  if (is_bf16 != manifest_.is_bf16)
    return mismatch(std::string("was exported for ") + (manifest_.is_bf16 ? "bf16" : "fp32") +
                    ", train.precision is " + (is_bf16 ? "bf16" : "fp32") +
                    ": export it with another --precision");
  const Status sized =
      validate_batch_size(manifest_, "train.micro_batch_size", config.micro_batch_size);
  if (!sized.ok()) return mismatch(sized.message());
  STOKER_ASSIGN_OR_RETURN(const SelfTestBatch batch, read_self_test());
  const int threads = at::get_num_threads();
  try {
    const at::NoGradGuard no_grad;
    for (const int count : {1, std::max(2, threads)}) {
      const ThreadCountScope scope(count);
      const Status tested = check_step(batch, count);
      if (!tested.ok()) return mismatch(tested.message());
    }
  } catch (const c10::Error& error) {
    return user_model_error(error, "model.path: " + folder_ + "manifest.json: the self-test fails");
  }
  log_info("compiled model tested", {{"path", folder_}, {"threads", std::max(2, threads)}});
  return {};
}

// ---- Loading

Status verify_file(const std::string& folder, const char* name, const std::string& sha256) {
  STOKER_ASSIGN_OR_RETURN(const std::string path, trusted_file(folder + name));
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd,
                          default_file_system().open(path, O_RDONLY | O_NOFOLLOW));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, path);
  STOKER_ASSIGN_OR_RETURN(
      const std::string found,
      checkpoint::sha256_of_file(fd.get(), static_cast<uint64_t>(info.st_size), path));
  if (found == sha256) return {};
  return Status(StatusCode::kCorrupt,
                path + ": its SHA-256 is not that of manifest.json: export the module again");
}

// The path of the manifest without symlinks, and what it says.
Result<std::pair<std::string, CompiledManifest>> read_compiled_manifest(
    const config::CompiledConfig& config) {
  std::error_code error;
  if (std::filesystem::is_directory(config.path, error))
    return Status(StatusCode::kInvalidArgument, "is a folder: name its manifest.json");
  STOKER_ASSIGN_OR_RETURN(std::string path, trusted_file(config.path));
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxManifestBytes));
  STOKER_ASSIGN_OR_RETURN(CompiledManifest manifest, parse_compiled_manifest(text, path));
  return std::pair(std::move(path), std::move(manifest));
}

Result<ModelPtr> make(const config::CompiledConfig& config, const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(const auto read, read_compiled_manifest(config));
  const auto& [path, manifest] = read;
  STOKER_ASSIGN_OR_RETURN(const auto flags, cpu_flags());
  STOKER_RETURN_IF_ERROR(validate_platform(manifest, TORCH_VERSION, flags));
  STOKER_ASSIGN_OR_RETURN(const LossBatch batch, make_loss_batch(sample));
  STOKER_RETURN_IF_ERROR(validate_compiled_batch(manifest, batch.input_specs, batch.target_specs));
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  STOKER_RETURN_IF_ERROR(verify_file(folder, kCompiledPackage, manifest.package_sha256));
  STOKER_RETURN_IF_ERROR(verify_file(folder, kCompiledWeights, manifest.weights_sha256));
  STOKER_RETURN_IF_ERROR(verify_file(folder, kCompiledSelfTest, manifest.self_test_sha256));
  const auto model = std::make_shared<Compiled>(manifest, folder, batch.is_predicting);
  STOKER_RETURN_IF_ERROR(model->load());
  STOKER_RETURN_IF_ERROR(model->test_evaluation());
  return ModelPtr(model);
}

}  // namespace

Result<ModelPtr> make_compiled(const config::CompiledConfig& config, const Samples& sample) {
  try {
    auto model = make(config, sample);
    if (model.ok()) return model;
    return with_model_path(model.status(), config.path);
  } catch (const c10::Error& error) {
    return with_model_path(user_model_error(error, "load"), config.path);
  }
}

Status check_eval_batch_size(const config::ModelConfig& model, const config::EvalConfig& eval) {
  const auto* const compiled = std::get_if<config::CompiledConfig>(&model.arch);
  if (compiled == nullptr || eval.datasets.empty()) return {};
  const auto read = read_compiled_manifest(*compiled);
  return with_model_path(read.ok()
                             ? validate_batch_size(read->second, "eval.batch_size", eval.batch_size)
                             : read.status(),
                         compiled->path);
}

}  // namespace stoker::model
