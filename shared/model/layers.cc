// sequential: a model whose layers are listed in the configuration, numbered as in PyTorch's
// nn.Sequential. The shape after each layer is derived from the data, so that a mismatch is
// reported with its position before training starts.
#include "shared/model/data_compatibility.h"
#include "shared/model/layer_builder.h"
#include "shared/model/model_factories.h"

namespace stoker::model {
namespace {

class Layers : public Model {
 public:
  Layers(int64_t context, int64_t vocab) : context_(context), vocab_(vocab) {}

  // The children of the chain become children of the model, so that parameter names are "0.weight",
  // without a prefix.
  void adopt(const std::shared_ptr<Sequential>& sequential) {
    sequential_ = sequential;
    for (const auto& item : sequential->named_children()) register_module(item.key(), item.value());
  }
  at::Tensor forward(const at::Tensor& input) override { return sequential_->forward(input); }
  void train(bool on = true) override {
    Model::train(on);
    sequential_->train(on);  // for layers without parameters, such as dropout
  }
  int64_t context() const override { return context_; }
  int64_t vocab() const override { return vocab_; }

 private:
  const int64_t context_, vocab_;
  std::shared_ptr<Sequential> sequential_;
};

// The input shape of one sample, without the target token.
Result<std::vector<int64_t>> shape_of(const Samples& sample, bool has_tokens) {
  if (!has_tokens) {
    STOKER_ASSIGN_OR_RETURN(const TensorSpec input, find_input_tensor(sample, "sequential", 0));
    return input.shape;
  }
  const TensorSpec& tokens = *find_tensor(sample, TensorRole::kTokens);
  if (tokens.shape.size() != 1 || tokens.shape[0] < 2)
    return Status(StatusCode::kMismatch,
                  "model sequential needs `tokens` [2 or more]; the data has " + to_string(tokens));
  return std::vector<int64_t>{tokens.shape[0] - 1};
}

}  // namespace

Result<ModelPtr> make_sequential(const config::SequentialConfig& config,
                                 std::optional<int64_t> num_classes, const Samples& sample,
                                 uint64_t classes) {
  const bool has_tokens = find_tensor(sample, TensorRole::kTokens) != nullptr;
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  STOKER_ASSIGN_OR_RETURN(const std::vector<int64_t> input, shape_of(sample, has_tokens));
  if (config.layers.empty())
    return Status(StatusCode::kInvalidArgument,
                  "model.layers: is required; set it to the list of layers");
  const auto sequential = std::make_shared<Sequential>();
  STOKER_ASSIGN_OR_RETURN(const std::vector<int64_t> end,
                          add_layers(config.layers, input,
                                     {.has_tokens = has_tokens, .outputs = outputs}, *sequential));
  // Labels per time step need an output per time step. No layer looks ahead in time, so padding
  // after a sequence has no effect.
  const bool of_steps =
      has_tokens || (find_tensor(sample, TensorRole::kLabels) != nullptr && !input.empty());
  const std::vector<int64_t> expected_shape =
      of_steps ? std::vector<int64_t>{input[0], outputs} : std::vector<int64_t>{outputs};
  if (end != expected_shape)
    return Status(StatusCode::kMismatch,
                  "model.layers ends with " + format_shape(end) + " a sample, but the data needs " +
                      format_shape(expected_shape) + " of " + describe(sample));
  const auto model = std::make_shared<Layers>(has_tokens ? input[0] : 0, has_tokens ? outputs : 0);
  model->adopt(sequential);
  return ModelPtr(model);
}

}  // namespace stoker::model
