// torchscript: runs a module saved with torch.jit.save as a model. For existing modules: PyTorch no
// longer develops TorchScript.
//
// LibTorch's interpreter runs the graph as it was saved, without the optimizations that LibTorch
// would apply after profiling the first runs. A resumed run would apply them at another step than
// an uninterrupted one.
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/serialization/import.h>

#include "shared/base/trusted_file.h"
#include "shared/model/model_factories.h"
#include "shared/model/out_of_vocab.h"
#include "shared/model/torch_status.h"
#include "shared/model/user_model.h"

namespace stoker::model {
namespace {

// ---- Training mode

// The constant passed to `node` for that argument; nullopt: it has no such argument, or the value
// is computed at run time.
std::optional<c10::IValue> constant_of(const torch::jit::Node& node, const char* argument) {
  const c10::FunctionSchema* const schema = node.maybeSchema();
  if (schema == nullptr) return std::nullopt;
  const auto index = schema->argumentIndexWithName(argument);
  if (!index || static_cast<size_t>(*index) >= node.inputs().size()) return std::nullopt;
  return torch::jit::toIValue(node.inputs()[static_cast<size_t>(*index)]);
}

// Dropout with p = 0 is the same in both modes.
bool is_identity(const torch::jit::Node& node) {
  for (const char* const name : {"p", "dropout"}) {
    const auto p = constant_of(node, name);
    if (p && p->isDouble()) return p->toDouble() == 0;
  }
  return false;
}

// The mode of the node if it is a constant.
std::optional<bool> find_fixed_mode(const torch::jit::Node& node) {
  for (const char* const name : {"train", "training"}) {
    const auto mode = constant_of(node, name);
    if (mode && mode->isBool() && !is_identity(node)) return mode->toBool();
  }
  return std::nullopt;
}

Status check_block(const torch::jit::Block& block) {
  for (const torch::jit::Node* const node : block.nodes()) {
    if (const auto fixed_mode = find_fixed_mode(*node)) {
      const std::string effect =
          *fixed_mode ? "uses training mode in evaluation" : "uses evaluation mode in training";
      return Status(
          StatusCode::kMismatch,
          std::string("its ") + node->kind().toUnqualString() + ' ' + effect +
              ": it was traced, or written with a constant, which fixes the mode; save it "
              "with torch.jit.script, which preserves both modes");
    }
    for (const torch::jit::Block* const inner : node->blocks())
      STOKER_RETURN_IF_ERROR(check_block(*inner));
  }
  return {};
}

bool has_parameters(const torch::jit::Module& module) {
  const auto parameters = module.parameters();
  return parameters.begin() != parameters.end();
}

// Checks that the module distinguishes training from evaluation mode. A frozen or traced module can
// behave the same in both. kMismatch: the module is frozen, has no forward() of one tensor, or
// contains a mode-dependent operator (dropout, batch_norm, dropout of an LSTM, …) whose mode is a
// constant; names the operator and a suggested fix. Not detected: a branch that tracing did not take,
// and scaled_dot_product_attention, which tracing in eval mode records with dropout 0.
Status validate_training_mode(const torch::jit::Module& module) {
  const auto forward = module.find_method("forward");
  if (!forward) return Status(StatusCode::kMismatch, "has no forward()");
  if (!has_parameters(module) || !module.hasattr("training"))
    return Status(
        StatusCode::kMismatch,
        "is frozen (torch.jit.freeze, or optimize_for_inference): its weights are constants "
        "and it has no training mode; save the module before freezing it");
  const auto graph = forward->graph()->copy();
  torch::jit::Inline(*graph);
  return check_block(*graph->block());
}

// ---- The model

// Disables graph optimization on this thread during its lifetime.
class GraphOptimizerDisabledScope {
 public:
  GraphOptimizerDisabledScope() : was_enabled_(torch::jit::getGraphExecutorOptimize()) {
    torch::jit::setGraphExecutorOptimize(false);
  }
  ~GraphOptimizerDisabledScope() { torch::jit::setGraphExecutorOptimize(was_enabled_); }
  GraphOptimizerDisabledScope(const GraphOptimizerDisabledScope&) = delete;
  GraphOptimizerDisabledScope& operator=(const GraphOptimizerDisabledScope&) = delete;

 private:
  const bool was_enabled_;
};

// The module that owns the attribute `name`, and the last component of the name.
std::pair<torch::jit::Module, std::string> find_owner(torch::jit::Module module,
                                                      const std::string& name) {
  size_t from = 0;
  for (size_t dot = 0; (dot = name.find('.', from)) != std::string::npos; from = dot + 1)
    module = module.attr(name.substr(from, dot - from)).toModule();
  return {module, name.substr(from)};
}

// The error itself; the lines before it locate it in the script.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

class TorchScript : public Model {
 public:
  TorchScript(torch::jit::Module module, const ModelContext& model_context)
      : model_context_(model_context), module_(std::move(module)) {
    for (const auto& item : module_.named_parameters()) adopt(item.name, item.value, true);
    for (const auto& item : module_.named_buffers()) adopt(item.name, item.value, false);
  }

  at::Tensor forward(const at::Tensor& input) override {
    try {
      const GraphOptimizerDisabledScope not_optimized;
      const c10::IValue output = module_.forward({input});
      TORCH_CHECK(output.isTensor(), "it returned a ", output.tagKind(), ", expected a tensor");
      return output.toTensor();
    } catch (const std::runtime_error& error) {
      const std::string reported = last_line(error.what());
      throw_if_out_of_vocab(input, reported);
      TORCH_CHECK(false, reported);
    }
  }
  void train(bool on = true) override {
    Model::train(on);
    module_.train(on);
  }
  int64_t context() const override {
    return model_context_.is_predicting ? model_context_.input[0] : 0;
  }
  int64_t vocab() const override {
    return model_context_.is_predicting ? model_context_.outputs : 0;
  }

 private:
  // Registers the tensors of the script under the same names in LibTorch modules, so that moving,
  // saving and training this model affects the script's tensors. Saving splits a tensor that had
  // two names into two; they are merged again under the first name.
  void adopt(const std::string& name, const at::Tensor& tensor, bool is_parameter) {
    const auto [same, is_new] = by_memory_.emplace(tensor.data_ptr(), tensor);
    const bool is_tied = !is_new && tensor.numel() > 0 && same->second.sizes() == tensor.sizes() &&
                         same->second.strides() == tensor.strides();
    if (is_tied) {
      auto [owner, last] = find_owner(module_, name);
      owner.setattr(last, same->second);
    } else {
      register_tensor(*this, name, tensor, is_parameter);
    }
  }
  const ModelContext model_context_;
  torch::jit::Module module_;
  std::map<const void*, at::Tensor> by_memory_;  // data pointers after loading
};

Result<torch::jit::Module> load(const std::string& path) {
  try {
    return torch::jit::load(path, at::kCPU, /*load_debug_files=*/false);
  } catch (const c10::Error& error) {
    const Status reported = user_model_error(error, path + ": is not a TorchScript module");
    if (reported.code() == StatusCode::kOutOfMemory) return reported;
    return Status(reported.code(),
                  reported.message() + "; weights alone are given as model.pretrained.path");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": is not a TorchScript module: " + first_line(error.what()));
  }
}

Result<ModelPtr> make_torchscript_model(const config::TorchscriptConfig& config,
                                        std::optional<int64_t> num_classes, const Samples& sample,
                                        uint64_t classes) {
  STOKER_ASSIGN_OR_RETURN(const ModelContext model_context,
                          make_model_context(num_classes, sample, classes));
  STOKER_ASSIGN_OR_RETURN(const std::string path, trusted_file(config.path));
  STOKER_ASSIGN_OR_RETURN(const torch::jit::Module module, load(path));
  STOKER_RETURN_IF_ERROR(validate_training_mode(module));
  const auto model = std::make_shared<TorchScript>(module, model_context);
  STOKER_RETURN_IF_ERROR(validate_user_model(*model, model_context));
  return ModelPtr(model);
}

}  // namespace

Result<ModelPtr> make_torchscript(const config::TorchscriptConfig& config,
                                  std::optional<int64_t> num_classes, const Samples& sample,
                                  uint64_t classes) {
  auto model = make_torchscript_model(config, num_classes, sample, classes);
  if (model.ok()) return model;
  return with_model_path(model.status(), config.path);
}

}  // namespace stoker::model
