// sequential: a model declared layer by layer in the configuration, numbered as PyTorch's nn.Sequential
// numbers them. The shape after each layer follows from the data's, so that what does not fit is
// told by its position before anything is trained.
#include "shared/model/data_fit.h"
#include "shared/model/layer_builder.h"
#include "shared/model/zoo.h"

namespace stoker::model {
namespace {

class Layers : public Model {
 public:
  Layers(int64_t context, int64_t vocab) : context_(context), vocab_(vocab) {}

  // The chain's children become the model's own, so that "0.weight" is what it is called.
  void adopt(const std::shared_ptr<Chain>& chain) {
    chain_ = chain;
    for (const auto& item : chain->named_children()) register_module(item.key(), item.value());
  }
  at::Tensor forward(const at::Tensor& input) override { return chain_->forward(input); }
  void train(bool on = true) override {
    Model::train(on);
    chain_->train(on);  // what has no parameters, such as dropout, asks the chain
  }
  int64_t context() const override { return context_; }
  int64_t vocab() const override { return vocab_; }

 private:
  const int64_t context_, vocab_;
  std::shared_ptr<Chain> chain_;
};

// The shape of one input, without the token that is to be predicted.
Result<std::vector<int64_t>> shape_of(const Samples& sample, bool of_tokens) {
  if (!of_tokens) {
    STOKER_ASSIGN_OR_RETURN(const TensorSpec input, input_of(sample, "sequential", 0));
    return input.shape;
  }
  const TensorSpec& tokens = *find_component(sample, "tokens");
  if (tokens.shape.size() != 1 || tokens.shape[0] < 2)
    return Status(Code::kMismatch,
                  "model sequential needs `tokens` [2 or more]; the data has " + to_string(tokens));
  return std::vector<int64_t>{tokens.shape[0] - 1};
}

}  // namespace

Result<ModelPtr> make_layers(const config::SequentialConfig& config,
                             std::optional<int64_t> num_classes, const Samples& sample,
                             uint64_t classes) {
  const bool of_tokens = find_component(sample, "tokens") != nullptr;
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, outputs_for(num_classes, sample, classes));
  STOKER_ASSIGN_OR_RETURN(const std::vector<int64_t> input, shape_of(sample, of_tokens));
  if (config.layers.empty())
    return Status(Code::kInvalidArgument,
                  "model.layers: is required; set it to the list of layers");
  const auto chain = std::make_shared<Chain>();
  STOKER_ASSIGN_OR_RETURN(
      const std::vector<int64_t> end,
      add_layers(config.layers, input, {.of_tokens = of_tokens, .outputs = outputs}, *chain));
  // What is asked about each step needs an answer for each. No layer looks ahead in time, so none
  // sees the padding behind a sequence.
  const bool of_steps =
      of_tokens || (find_component(sample, "labels") != nullptr && !input.empty());
  const std::vector<int64_t> wanted =
      of_steps ? std::vector<int64_t>{input[0], outputs} : std::vector<int64_t>{outputs};
  if (end != wanted)
    return Status(Code::kMismatch, "model.layers ends with " + shape_text(end) +
                                       " a sample, but the data needs " + shape_text(wanted) +
                                       " of " + describe(sample));
  const auto model = std::make_shared<Layers>(of_tokens ? input[0] : 0, of_tokens ? outputs : 0);
  model->adopt(chain);
  return ModelPtr(model);
}

}  // namespace stoker::model
