// A StepModel: weighted regression without a label, with a metric. `args.metric`: the name that it has.
#include <ATen/ops/abs.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <stoker/plugin.h>

namespace {

class Weighted : public stoker::plugin::StepModel {
 public:
  Weighted(int64_t width, std::string metric)
      : weight_(register_parameter("weight", at::full({width}, 0.5))), metric_(std::move(metric)) {}

  stoker::plugin::StepOutput step(const stoker::plugin::Fields& fields) override {
    const at::Tensor error = fields.at("input").matmul(weight_) - fields.at("y");
    const at::Tensor& importance = fields.at("importance");
    const at::Tensor samples = at::full({}, error.size(0));
    return {.loss = {(importance * error * error).sum(), importance.sum()},
            .metrics = {{metric_, {error.abs().sum(), samples}}}};
  }
  std::vector<std::string> metrics() const override { return {metric_}; }

 private:
  at::Tensor weight_;
  const std::string metric_;
};

std::shared_ptr<stoker::plugin::Model> make(const stoker::plugin::ModelSpec& spec) {
  if (spec.fields.size() != 3 || spec.fields[1].name != "importance" ||
      spec.fields[2].dtype != "F32")
    throw std::invalid_argument("needs the fields input, importance and y");
  return std::make_shared<Weighted>(spec.fields[0].shape[0],
                                    spec.args.get_string("metric", "absolute_error"));
}

}  // namespace

STOKER_PLUGIN(make)
