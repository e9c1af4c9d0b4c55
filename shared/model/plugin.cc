// plugin: a model from a shared object of the user, created by its factory.
#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include <stoker/plugin.h>
#include <torch/version.h>

#include "shared/base/file.h"
#include "shared/base/trusted_file.h"
#include "shared/base/utf8.h"
#include "shared/eval_metrics/metric_table.h"
#include "shared/model/model_factories.h"
#include "shared/model/out_of_vocab.h"
#include "shared/model/plugin_args.h"
#include "shared/model/torch_status.h"
#include "shared/model/user_model.h"

namespace stoker::model {
namespace {

// ---- Loading the library

constexpr std::string_view kRecompile =
    "; recompile it with the headers of this stoker (docs/models.md#plugin)";

// The error of dlopen() for a text, an image or a truncated file would not be helpful.
Status check_magic(const std::string& path) {
  constexpr std::string_view kElf = "\177ELF";
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, default_file_system().open(path, O_RDONLY));
  std::array<std::byte, kElf.size()> begin{};
  STOKER_ASSIGN_OR_RETURN(const size_t got,
                          default_file_system().read_at(fd.get(), 0, begin, path));
  if (got == kElf.size() && std::memcmp(begin.data(), kElf.data(), kElf.size()) == 0) return {};
  return Status(StatusCode::kInvalidArgument,
                path + ": is not a shared object; compile the plugin with -shared -fPIC");
}

// dlerror() often starts with the path.
std::string error_text(const std::string& path) {
  const char* const reported = ::dlerror();
  std::string why = reported != nullptr ? reported : "no reason given";
  if (why.starts_with(path + ": ")) why.erase(0, path.size() + 2);
  return path + ": cannot be loaded: " + why;
}

Status check_entry(const StokerPlugin* entry, const std::string& path) {
  const auto other = [&](const std::string& what) {
    return Status(StatusCode::kMismatch, path + ": was compiled " + what + std::string(kRecompile));
  };
  if (entry == nullptr)
    return Status(StatusCode::kInvalidArgument,
                  path + ": its " + plugin::kEntry +
                      "() returns null; define it with STOKER_PLUGIN(factory)");
  if (entry->version != plugin::kVersion)
    return other("for version " + std::to_string(entry->version) + " of plugins, this stoker has " +
                 std::to_string(plugin::kVersion));
  if (entry->cxx11_abi != _GLIBCXX_USE_CXX11_ABI)
    return other("with _GLIBCXX_USE_CXX11_ABI=" + std::to_string(entry->cxx11_abi) +
                 ", stoker with " + std::to_string(_GLIBCXX_USE_CXX11_ABI));
  if (entry->torch_major != TORCH_VERSION_MAJOR || entry->torch_minor != TORCH_VERSION_MINOR)
    return other("with LibTorch " + std::to_string(entry->torch_major) + '.' +
                 std::to_string(entry->torch_minor) + ", stoker with " TORCH_VERSION);
  if (entry->make == nullptr)
    return Status(StatusCode::kInvalidArgument,
                  path + ": has no factory; pass one to STOKER_PLUGIN()");
  return {};
}

// Returns the entry of a loaded library after checking it.
Result<const StokerPlugin*> checked_entry(void* library, const std::string& path) {
  const auto get = reinterpret_cast<decltype(&stoker_plugin)>(::dlsym(library, plugin::kEntry));
  if (get == nullptr)
    return Status(StatusCode::kInvalidArgument, path + ": has no " + plugin::kEntry +
                                                    "(); end one of its sources with "
                                                    "STOKER_PLUGIN(factory) of stoker/plugin.h");
  const StokerPlugin* const entry = get();
  STOKER_RETURN_IF_ERROR(check_entry(entry, path));
  return entry;
}

// A plugin that was compiled for another LibTorch can lack symbols; report the version mismatch in
// that case. Only the entry of a partially resolved library is called.
Status load_error_text(const std::string& path) {
  const Status missing(StatusCode::kInvalidArgument, error_text(path));
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return missing;
  const auto entry = checked_entry(library, path);
  return entry.ok() ? missing : entry.status();
}

// Loads the shared object into this process and returns its entry. The library is never unloaded,
// because its models can live until the process exits. All messages contain the path and a suggested
// fix. kNotFound, kIoError: of the path. kPermission: any user can write to the file or its
// directory; plugin code runs inside this process. kInvalidArgument: not a shared object, cannot be
// loaded (the message contains what is missing), or has no entry. kMismatch: compiled for another
// plugin version, LibTorch or C++ ABI; names both sides.
Result<const StokerPlugin*> load_plugin(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const std::string real, trusted_file(path));
  STOKER_RETURN_IF_ERROR(check_magic(real));
  // RTLD_NOW, so that missing symbols are reported here and not during a step.
  void* const library = ::dlopen(real.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return load_error_text(real);
  return checked_entry(library, real);
}

// ---- The model

// Registers all tensors of the plugin's model as its own, under the same names.
class PluginModel : public Model {
 public:
  PluginModel(std::shared_ptr<plugin::Model> inner, const ModelContext& model_context)
      : model_context_(model_context), inner_(std::move(inner)) {
    for (const auto& item : inner_->named_children()) register_module(item.key(), item.value());
    for (const auto& item : inner_->named_parameters(/*recurse=*/false))
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    for (const auto& item : inner_->named_buffers(/*recurse=*/false))
      register_buffer(item.key(), item.value());
  }

  at::Tensor forward(const at::Tensor& input) override {
    return call_forward(input, [&] { return inner_->forward(input); });
  }
  Outputs forward_with_aux(const at::Tensor& input) override {
    plugin::Outputs outputs = call_forward(input, [&] { return inner_->forward_with_aux(input); });
    return {std::move(outputs.logits), std::move(outputs.aux_logits)};
  }
  void train(bool on = true) override {
    Model::train(on);
    inner_->train(on);
  }
  StepOutput step(const NamedTensors& fields) override {
    plugin::StepModel* const model = inner_->as_step();
    TORCH_CHECK(model != nullptr, "the plugin is no StepModel, which task custom needs");
    const plugin::StepOutput output = model->step({fields.begin(), fields.end()});
    StepOutput step{.loss = loss_of(output.loss.sum, output.loss.count)};
    for (const std::string& name : model->metrics()) {
      const auto found = output.metrics.find(name);
      TORCH_CHECK(found != output.metrics.end(), "step() of the plugin does not return ", name);
      add_metric(name, found->second.sum, found->second.count, step);
    }
    return step;
  }
  std::vector<std::string> step_metrics() const override {
    plugin::StepModel* const model = inner_->as_step();
    return model == nullptr ? std::vector<std::string>() : model->metrics();
  }
  int64_t counts_per_sample() const override {
    plugin::StepModel* const model = inner_->as_step();
    return model == nullptr ? 0 : std::max<int64_t>(model->counts_per_sample(), 1);
  }
  int64_t context() const override {
    return model_context_.is_predicting ? model_context_.input[0] : 0;
  }
  int64_t vocab() const override {
    return model_context_.is_predicting ? model_context_.outputs : 0;
  }

 private:
  template <typename Forward>
  static auto call_forward(const at::Tensor& input, const Forward& forward) -> decltype(forward()) {
    try {
      return forward();
    } catch (const c10::Error& error) {
      throw_if_out_of_vocab(input, error.what_without_backtrace());
      throw;
    }
  }

  const ModelContext model_context_;
  const std::shared_ptr<plugin::Model> inner_;
};

// Converts all exceptions of the factory to Status.
Result<std::shared_ptr<plugin::Model>> call_factory(const StokerPlugin& entry,
                                                    const plugin::ModelSpec& spec) {
  try {
    std::shared_ptr<plugin::Model> model = entry.make(spec);
    if (model != nullptr) return model;
    return Status(StatusCode::kInvalidArgument, "the factory returned null");
  } catch (const c10::Error& error) {
    return user_model_error(error, "the factory fails");
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "the factory: not enough host memory");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInvalidArgument, "the factory throws: " + first_line(error.what()));
  } catch (...) {
    return Status(StatusCode::kInvalidArgument,
                  "the factory throws an exception that is not a std::exception");
  }
}

// The metrics of a StepModel are those that its file lists, in this order.
Status validate_metrics(const plugin::StepModel& model, const std::string& path) {
  const std::string file = eval_metrics::plugin_metrics_path(path);
  STOKER_ASSIGN_OR_RETURN(const auto listed, eval_metrics::read_model_metrics(file));
  const std::vector<std::string> own = model.metrics(), names = listed.names();
  if (own.size() > kMaxStepMetrics)
    return Status(StatusCode::kMismatch, "has " + std::to_string(own.size()) +
                                             " metrics; at most " +
                                             std::to_string(kMaxStepMetrics));
  if (own == names) return {};
  const auto text = [](const std::vector<std::string>& list) {
    return list.empty() ? std::string("none") : join(list, ", ");
  };
  return Status(StatusCode::kMismatch, "has the metrics " + text(own) + ", but " + file +
                                           " lists " + text(names) + "; make them the same");
}

Status validate_used_args(const plugin::Args& args) {
  const std::string unknown = join(args.unused_keys(), ", ");
  if (unknown.empty()) return {};
  return Status(StatusCode::kInvalidArgument,
                "unused keys in model.args: " + unknown + "; correct or remove them");
}

Result<ModelPtr> make_plugin_model(const config::PluginConfig& config,
                                   std::optional<int64_t> num_classes, const Samples& sample,
                                   uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const ModelContext model_context,
                          make_model_context(num_classes, sample, classes));
  STOKER_ASSIGN_OR_RETURN(plugin::Args args, plugin_args(config.args));
  STOKER_ASSIGN_OR_RETURN(const StokerPlugin* const entry, load_plugin(config.path));
  plugin::ModelSpec spec{
      std::move(args), model_context.input, model_context.has_tokens, model_context.outputs, {}};
  for (const TensorSpec& tensor : sample) {
    const TensorSpec given = as_field(tensor);
    spec.fields.push_back({given.name, std::string(to_string(given.dtype)), given.shape});
  }
  STOKER_ASSIGN_OR_RETURN(const auto inner, call_factory(*entry, spec));
  STOKER_RETURN_IF_ERROR(validate_used_args(spec.args));
  const auto model = std::make_shared<PluginModel>(inner, model_context);
  if (const plugin::StepModel* const step = inner->as_step()) {
    STOKER_RETURN_IF_ERROR(validate_metrics(*step, config.path));
    STOKER_RETURN_IF_ERROR(validate_tensors(*model));
  } else {
    STOKER_RETURN_IF_ERROR(validate_user_model(*model, model_context));
  }
  return ModelPtr(model);
}

}  // namespace

Result<ModelPtr> make_plugin(const config::PluginConfig& config, std::optional<int64_t> num_classes,
                             const Samples& sample, uint64_t classes) {
  auto model = make_plugin_model(config, num_classes, sample, classes);
  if (model.ok()) return model;
  return with_model_path(model.status(), config.path);
}

}  // namespace stoker::model
