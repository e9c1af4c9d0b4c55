// plugin: a model from a shared object of the user, created by its factory.
#include <stoker/plugin.h>

#include "shared/model/model_factories.h"
#include "shared/model/out_of_vocab.h"
#include "shared/model/plugin_args.h"
#include "shared/model/plugin_library.h"
#include "shared/model/torch_status.h"
#include "shared/model/user_model.h"

namespace stoker::model {
namespace {

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

Status validate_used_args(const plugin::Args& args) {
  std::string unknown;
  for (const std::string& key : args.unused_keys()) unknown += (unknown.empty() ? "" : ", ") + key;
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
  const plugin::ModelSpec spec{std::move(args), model_context.input, model_context.has_tokens,
                               model_context.outputs};
  STOKER_ASSIGN_OR_RETURN(const auto inner, call_factory(*entry, spec));
  STOKER_RETURN_IF_ERROR(validate_used_args(spec.args));
  const auto model = std::make_shared<PluginModel>(inner, model_context);
  STOKER_RETURN_IF_ERROR(validate_user_model(*model, model_context));
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
