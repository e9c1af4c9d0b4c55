// TorchScript modules, created without Python and, if a Python with PyTorch is available, by
// PyTorch.
#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/model/model.h"
#include "shared/model/out_of_vocab.h"
#include "tests/shared/model/script_files.h"
#include "tests/support/python_script.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<TensorSpec> kNumbers = {{"input", DType::kF32, {2, 4}},
                                          {"label", DType::kI64, {}}};
const std::vector<TensorSpec> kText = {{"tokens", DType::kU8, {9}}};

config::ModelConfig script_config(const std::string& path) {
  return {.arch = config::TorchscriptConfig{.path = path}};
}

class TorchScriptModelTest : public ::testing::Test {
 protected:
  Result<ModelPtr> load(const test::ScriptParts& parts,
                        const std::vector<TensorSpec>& sample = kNumbers) {
    test::write_script(folder_ / "m.pt", parts);
    return make_model(script_config(folder_ / "m.pt"), sample, 3);
  }
  ModelPtr loaded(const test::ScriptParts& parts = {}) {
    auto model = load(parts);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *model : nullptr;
  }
  // Returns the error message, and checks that it is a single line with the path.
  std::string error_text(const test::ScriptParts& parts) { return error_text_of(load(parts)); }
  std::string error_text_of_file(const std::string& name) {
    return error_text_of(make_model(script_config(folder_ / name), kNumbers, 3));
  }
  std::string error_text_of(const Result<ModelPtr>& model) {
    if (model.ok()) return "no error";
    const std::string message = model.status().message();
    EXPECT_THAT(message,
                AllOf(Not(HasSubstr("\n")), HasSubstr(folder_.path()), HasSubstr("model.path")));
    return message;
  }

  stoker::test::TemporaryDirectory folder_;
};

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_tensors(model)) names.push_back(name);
  return names;
}

TEST_F(TorchScriptModelTest, UsesScriptNamesForTensors) {
  const ModelPtr model = loaded();
  EXPECT_THAT(names_of(*model), ElementsAre("linear.weight", "linear.bias", "seen"));
  ASSERT_TRUE(freeze(*model, {"linear.b*"}).ok());
  EXPECT_FALSE(model->named_parameters()["linear.bias"].requires_grad());
}

// Loading, training and moving the tensors of the model affects those of the script.
TEST_F(TorchScriptModelTest, SharesTensorsWithScript) {
  const ModelPtr model = loaded();
  const at::Tensor input = at::ones({5, 2, 4});
  model->forward(input).sum().backward();
  EXPECT_TRUE(model->named_parameters()["linear.bias"].grad().defined());
  for (auto& parameter : model->named_parameters()) parameter.value().detach().zero_();
  EXPECT_EQ(model->forward(input).abs().sum().item<float>(), 0);
  model->to(at::kDouble);
  EXPECT_EQ(model->forward(input.to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST_F(TorchScriptModelTest, AppliesDropoutOnlyInTraining) {
  const ModelPtr model = loaded(
      {.body =
           "return self.linear.forward(torch.dropout(torch.flatten(x, 1), 0.5, self.training))"});
  const at::Tensor input = at::ones({6, 2, 4});
  EXPECT_FALSE(at::equal(model->forward(input), model->forward(input)));
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(input), model->forward(input)));
  model->train();
  EXPECT_FALSE(at::equal(model->forward(input), model->forward(input)));
}

// A resumed run must not depend on how often the graph ran before.
TEST_F(TorchScriptModelTest, ComputesSameOutputAfterRepeatedRuns) {
  const ModelPtr model =
      loaded({.body = "return self.linear.forward(torch.tanh(torch.flatten(x, 1) * 1.7) "
                      "* torch.sigmoid(torch.flatten(x, 1)))"});
  const at::Tensor input = at::ones({6, 2, 4}) * 0.3;
  const at::Tensor first = model->forward(input);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(at::equal(model->forward(input), first)) << i;
}

TEST_F(TorchScriptModelTest, PreservesTiedTensors) {
  const ModelPtr model =
      loaded({.body = "return self.linear.forward(torch.flatten(x, 1)) + torch.sum(self.again)",
              .is_tied = true});
  ASSERT_EQ(model->named_parameters().size(), 2u);
  model->to(at::kDouble);  // copies each tensor to new memory
  for (auto& parameter : model->named_parameters()) parameter.value().detach().zero_();
  EXPECT_EQ(model->forward(at::ones({2, 2, 4}, at::kDouble)).abs().sum().item<double>(), 0);
}

TEST_F(TorchScriptModelTest, SupportsPerTokenOutput) {
  const auto model =
      load({.body = "return torch.reshape(x.float(), [-1, 8, 1]) * self.linear.bias"}, kText);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->context(), 8);
  EXPECT_EQ((*model)->vocab(), 3);
}

TEST_F(TorchScriptModelTest, ReportsOutOfVocabTokensOfBatch) {
  const auto model =
      load({.body = "return torch.mean(torch.embedding(torch.t(self.linear.weight), x), [1])"},
           {{"tokens", DType::kI32, {4}}, {"label", DType::kI64, {}}});
  ASSERT_TRUE(model.ok()) << model.status().message();
  at::Tensor tokens = at::ones({2, 4}, at::kLong);
  EXPECT_EQ((*model)->forward(tokens).sizes(), (at::IntArrayRef{2, 3}));
  tokens[1][2] = 8;  // the table has eight
  try {
    (void)(*model)->forward(tokens);
    ADD_FAILURE() << "the table has eight tokens";
  } catch (const OutOfVocabError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("tokens are from 1 to 8"));
  }
}

// ---- Invalid modules

TEST_F(TorchScriptModelTest, RejectsDropoutFixedByTracing) {
  EXPECT_THAT(
      error_text(
          {.body = "return torch.dropout(self.linear.forward(torch.flatten(x, 1)), 0.5, False)"}),
      AllOf(HasSubstr("its dropout uses evaluation mode in training"),
            HasSubstr("torch.jit.script")));
  EXPECT_THAT(
      error_text(
          {.body = "return torch.dropout(self.linear.forward(torch.flatten(x, 1)), 0.5, True)"}),
      HasSubstr("its dropout uses training mode in evaluation"));
  EXPECT_THAT(
      error_text(
          {.body = "return torch.dropout(self.linear.forward(torch.flatten(x, 1)), 0.0, False)"}),
      HasSubstr("no error"))
      << "dropout with p = 0 is the same in both modes";
}

TEST_F(TorchScriptModelTest, RejectsDropoutFixedInBranch) {
  EXPECT_THAT(error_text({.body = "y = self.linear.forward(torch.flatten(x, 1))\n"
                                  "    if y.size(0) > 1:\n"
                                  "        y = torch.feature_dropout(y, 0.5, False)\n"
                                  "    return y"}),
              HasSubstr("its feature_dropout"));
}

TEST_F(TorchScriptModelTest, RejectsFrozenModule) {
  EXPECT_THAT(error_text({.has_weights = false}), HasSubstr("is frozen"));
  EXPECT_THAT(error_text({.has_training_attribute = false}), HasSubstr("is frozen"));
}

TEST_F(TorchScriptModelTest, RejectsOutputOfWrongShapeOrType) {
  EXPECT_THAT(error_text({.body = "return self.linear.forward(torch.flatten(x, 1)).unsqueeze(0)"}),
              AllOf(HasSubstr("[1, 2, 3]"), HasSubstr("the task needs Float [2, 3]")));
  EXPECT_THAT(error_text({.body = "return (self.linear.forward(torch.flatten(x, 1)), x)"}),
              HasSubstr("it returned a Tuple, expected a tensor"));
  EXPECT_THAT(error_text({.body = "return self.linear.forward(x)"}),
              HasSubstr("forward() fails: "));
}

TEST_F(TorchScriptModelTest, RejectsOtherFilesAndUnsafePermissions) {
  std::ofstream(folder_ / "text.pt") << "not a module";
  EXPECT_THAT(error_text_of_file("text.pt"),
              AllOf(HasSubstr("is not a TorchScript module"), HasSubstr("model.pretrained.path")));
  EXPECT_THAT(error_text_of_file("missing.pt"), HasSubstr("No such file"));
  (void)loaded();
  ASSERT_EQ(::chmod((folder_ / "m.pt").c_str(), 0666), 0);
  EXPECT_THAT(error_text_of_file("m.pt"), HasSubstr("is writable by any user"));
}

// ---- Modules written by PyTorch

TEST_F(TorchScriptModelTest, LoadsAndValidatesModulesWrittenByPyTorch) {
  const auto answer = stoker::test::try_run_python(STOKER_SCRIPT_FILES_PY, {folder_.path()});
  if (!answer) GTEST_SKIP() << "STOKER_PYTHON is not set to a Python with torch";
  ASSERT_EQ(answer->code, 0) << answer->err;
  const boost::json::object reported = boost::json::parse(answer->out).as_object();
  for (const char* const name : {"scripted.pt", "scripted_eval.pt"}) {
    const auto model = make_model(script_config(folder_ / name), kNumbers, 3);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(names_of(**model),
              boost::json::value_to<std::vector<std::string>>(reported.at("names")));
    // Many distinct samples; otherwise two dropout masks could be equal, or cover only zeros.
    const at::Tensor input = at::arange(512, at::kFloat).reshape({64, 2, 4}).sin();
    EXPECT_FALSE(at::equal((*model)->forward(input), (*model)->forward(input))) << name;
  }
  const ModelPtr model = *make_model(script_config(folder_ / "scripted_eval.pt"), kNumbers, 3);
  model->eval();
  const at::Tensor output = model->forward(at::ones({2, 2, 4})).flatten();
  for (int64_t i = 0; i < output.numel(); ++i)
    EXPECT_NEAR(output[i].item<double>(), reported.at("outputs").at(i).to_number<double>(), 1e-6);
  EXPECT_TRUE(make_model(script_config(folder_ / "traced_plain.pt"), kNumbers, 3).ok());
  EXPECT_THAT(error_text_of_file("traced_train.pt"), HasSubstr("uses training mode in evaluation"));
  EXPECT_THAT(error_text_of_file("traced_eval.pt"), HasSubstr("uses evaluation mode in training"));
  EXPECT_THAT(error_text_of_file("frozen.pt"), HasSubstr("is frozen"));
  EXPECT_THAT(error_text_of_file("weights.pt"), HasSubstr("model.pretrained.path"));
}

}  // namespace
}  // namespace stoker::model
