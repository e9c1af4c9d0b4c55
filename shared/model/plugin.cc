// plugin: a model in a shared object of the user's, made by its factory.
#include <stoker/plugin.h>

#include "shared/model/outside_model.h"
#include "shared/model/plugin_library.h"
#include "shared/model/plugin_parameters.h"
#include "shared/model/torch_status.h"
#include "shared/model/unknown_token.h"
#include "shared/model/zoo.h"

namespace stoker::model {
namespace {

// What the plugin's model has becomes this one's, under the same names.
class PluginModel : public Model {
 public:
  PluginModel(std::shared_ptr<plugin::Model> inner, const Surroundings& around)
      : around_(around), inner_(std::move(inner)) {
    for (const auto& item : inner_->named_children()) register_module(item.key(), item.value());
    for (const auto& item : inner_->named_parameters(/*recurse=*/false))
      register_parameter(item.key(), item.value(), item.value().requires_grad());
    for (const auto& item : inner_->named_buffers(/*recurse=*/false))
      register_buffer(item.key(), item.value());
  }

  at::Tensor forward(const at::Tensor& input) override {
    return ask(input, [&] { return inner_->forward(input); });
  }
  Outputs forward_training(const at::Tensor& input) override {
    plugin::Outputs outputs = ask(input, [&] { return inner_->forward_training(input); });
    return {std::move(outputs.main), std::move(outputs.auxiliary)};
  }
  void train(bool on = true) override {
    Model::train(on);
    inner_->train(on);
  }
  int64_t context() const override { return around_.is_predicting ? around_.input[0] : 0; }
  int64_t vocab() const override { return around_.is_predicting ? around_.outputs : 0; }

 private:
  template <typename Forward>
  static auto ask(const at::Tensor& input, const Forward& forward) -> decltype(forward()) {
    try {
      return forward();
    } catch (const c10::Error& error) {
      throw_if_unknown_token(input, error.what_without_backtrace());
      throw;
    }
  }

  const Surroundings around_;
  const std::shared_ptr<plugin::Model> inner_;
};

// What the factory throws ends here.
Result<std::shared_ptr<plugin::Model>> call(const StokerPlugin& entry,
                                            const plugin::Request& request) {
  try {
    std::shared_ptr<plugin::Model> model = entry.make(request);
    if (model != nullptr) return model;
    return Status(Code::kInvalidArgument, "its factory gives no model");
  } catch (const c10::Error& error) {
    return blamed(error, "its factory fails");
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "its factory: not enough host memory");
  } catch (const std::exception& error) {
    return Status(Code::kInvalidArgument, "its factory throws: " + first_line(error.what()));
  } catch (...) {
    return Status(Code::kInvalidArgument, "its factory throws what is no std::exception");
  }
}

Status check_asked_for(const plugin::Parameters& parameters) {
  std::string unknown;
  for (const std::string& key : parameters.not_asked_for())
    unknown += (unknown.empty() ? "" : ", ") + key;
  if (unknown.empty()) return {};
  return Status(Code::kInvalidArgument, "its factory does not read these of model.args: " +
                                            unknown + "; correct or remove them");
}

Result<ModelPtr> make(const config::PluginConfig& config, std::optional<int64_t> num_classes,
                      const Samples& sample, uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const Surroundings around, surroundings_of(num_classes, sample, classes));
  STOKER_ASSIGN_OR_RETURN(plugin::Parameters parameters, plugin_parameters(config.args));
  STOKER_ASSIGN_OR_RETURN(const StokerPlugin* const entry, load_plugin(config.path));
  const plugin::Request request{std::move(parameters), around.input, around.is_of_tokens,
                                around.outputs};
  STOKER_ASSIGN_OR_RETURN(const auto inner, call(*entry, request));
  STOKER_RETURN_IF_ERROR(check_asked_for(request.parameters));
  const auto model = std::make_shared<PluginModel>(inner, around);
  STOKER_RETURN_IF_ERROR(check_outside(*model, around));
  return ModelPtr(model);
}

}  // namespace

Result<ModelPtr> make_plugin(const config::PluginConfig& config, std::optional<int64_t> num_classes,
                             const Samples& sample, uint64_t classes) {
  auto made = make(config, num_classes, sample, classes);
  if (made.ok()) return made;
  return at_model_path(made.status(), config.path);
}

}  // namespace stoker::model
