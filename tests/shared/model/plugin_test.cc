// Plugin models: the example in docs/examples/plugin, and one plugin per kind of error.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/plugin.h>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/model/model.h"
#include "shared/model/model_file.h"
#include "shared/model/out_of_vocab.h"
#include "shared/model/plugin_args.h"
#include "shared/model/torch_status.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

const std::string kPlugins = STOKER_PLUGINS;
const std::vector<TensorSpec> kNumbers = {{"input", DType::kF32, {2, 4}},
                                          {"label", DType::kI64, {}}};
const std::vector<TensorSpec> kText = {{"tokens", DType::kU8, {9}}};
constexpr uint64_t kClasses = 3;

config::ModelConfig plugin_config(const std::string& file, const std::string& parameters = "{}") {
  const std::string path = file.find('/') == std::string::npos ? kPlugins + '/' + file : file;
  return {.arch = config::PluginConfig{.path = path, .args = parameters}};
}
const std::string& path_of(const config::ModelConfig& config) {
  return std::get<config::PluginConfig>(config.arch).path;
}
config::ModelConfig defective(const std::string& does) {
  return plugin_config("odd_plugin.so", R"({"does": ")" + does + R"("})");
}
ModelPtr expect_model(const config::ModelConfig& config,
                      const std::vector<TensorSpec>& sample = kNumbers) {
  auto model = make_model(config, sample, kClasses);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}
std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_tensors(model)) names.push_back(name);
  return names;
}

// Returns the error message, and checks that it is a single line with the path.
std::string error_text(const config::ModelConfig& config) {
  const auto model = make_model(config, kNumbers, kClasses);
  if (model.ok()) return "no error";
  const std::string message = model.status().message();
  EXPECT_THAT(message,
              AllOf(Not(HasSubstr("\n")), HasSubstr(path_of(config)), HasSubstr("model.path")));
  return message;
}

// ---- Plugin models behave like built-in ones

TEST(PluginTest, UsesModuleNamesForTensors) {
  const ModelPtr model =
      expect_model(plugin_config("gated_mlp.so", R"({"blocks": 1, "width": 5})"));
  EXPECT_THAT(
      names_of(*model),
      ElementsAre("in.weight", "in.bias", "block0.norm.weight", "block0.norm.bias",
                  "block0.gate.weight", "block0.gate.bias", "block0.up.weight", "block0.up.bias",
                  "block0.down.weight", "block0.down.bias", "out.weight", "out.bias"));
  EXPECT_EQ(model->named_parameters()["in.weight"].sizes(), (at::IntArrayRef{5, 8}));
  EXPECT_EQ(model->forward(at::ones({7, 2, 4})).sizes(), (at::IntArrayRef{7, 3}));
  ASSERT_TRUE(freeze(*model, {"block0.*"}).ok());
  EXPECT_FALSE(model->named_parameters()["block0.up.bias"].requires_grad());
}

TEST(PluginTest, FollowsTrainingModeOfModel) {
  const ModelPtr model = expect_model(plugin_config("gated_mlp.so", R"({"dropout": 0.5})"));
  const at::Tensor input = at::ones({4, 2, 4});
  EXPECT_FALSE(at::equal(model->forward(input), model->forward(input))) << "dropout is off";
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(input), model->forward(input))) << "dropout is on";
}

TEST(PluginTest, TrainsMovesAndSavesTensorsOfModelItself) {
  const ModelPtr model = expect_model(defective("additional tensors"));
  EXPECT_THAT(names_of(*model), ElementsAre("scale", "linear.weight", "linear.bias", "seen"));
  const at::Tensor input = at::ones({5, 2, 4});
  (void)model->forward(input);
  EXPECT_EQ(model->named_buffers()["seen"].item<int64_t>(), 5);
  model->to(at::kDouble);
  EXPECT_EQ(model->forward(input.to(at::kDouble)).scalar_type(), at::kDouble);
  model->named_parameters()["scale"].detach().zero_();
  EXPECT_EQ(model->forward(input.to(at::kDouble)).abs().sum().item<double>(), 0);
}

TEST(PluginTest, SupportsAuxiliaryHead) {
  const ModelPtr model = expect_model(defective("auxiliary"), {{"input", DType::kF32, {4}}});
  const Outputs outputs = model->forward_with_aux(at::ones({2, 4}));
  EXPECT_TRUE(at::equal(outputs.aux_logits, outputs.logits * 2));
}

TEST(PluginTest, SupportsPerTokenOutput) {
  const ModelPtr model = expect_model(defective("per-token output"), kText);
  EXPECT_EQ(model->context(), 8);
  EXPECT_EQ(model->vocab(), 3);
}

// The plugin does not declare its vocabulary.
TEST(PluginTest, ReportsOutOfVocabTokensOfBatch) {
  const ModelPtr model = expect_model(defective("ten tokens"),
                                      {{"tokens", DType::kI32, {4}}, {"label", DType::kI64, {}}});
  at::Tensor tokens = at::ones({2, 4}, at::kLong);
  EXPECT_EQ(model->forward(tokens).sizes(), (at::IntArrayRef{2, 3}));
  tokens[1][2] = 600;
  for (const bool trains : {true, false}) {
    try {
      trains ? (void)model->forward_with_aux(tokens) : (void)model->forward(tokens);
      ADD_FAILURE() << "the table has ten tokens";
    } catch (const OutOfVocabError& error) {
      EXPECT_THAT(error.what_without_backtrace(), AllOf(HasSubstr("tokens are from 1 to 600"),
                                                        HasSubstr("use a vocabulary that covers")));
      EXPECT_EQ(to_status(error, "step 7").code(), StatusCode::kMismatch);
    }
  }
}

// ---- Arguments

TEST(PluginArgsTest, ReadsArgsByDottedPath) {
  const auto read = plugin_args(
      R"({"act": "relu", "block": {"wide": true, "rate": 1.0e-3}, "hidden": [64, 32], "no": null})");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->get_string("act", ""), "relu");
  EXPECT_TRUE(read->get_bool("block.wide", false));
  EXPECT_EQ(read->get_double("block.rate", 0), 1e-3);
  EXPECT_THAT(read->unused_keys(), ElementsAre("hidden[0]", "hidden[1]"));
  EXPECT_THAT(read->get_int_list("hidden", {}), ElementsAre(64, 32));
  EXPECT_EQ(read->get_int("no", 7), 7);
  EXPECT_FALSE(read->has("no"));
  EXPECT_THAT(read->unused_keys(), ElementsAre());
  EXPECT_THROW((void)read->get_int("act", 0), std::invalid_argument);
  EXPECT_THROW((void)read->get_int_list("act", {}), std::invalid_argument);
}

TEST(PluginArgsTest, MarksAllArgsAsUsedWhenReadAsJson) {
  const auto read = plugin_args(R"({"a": 1})");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->to_json(), R"({"a": 1})");
  EXPECT_THAT(read->unused_keys(), ElementsAre());
}

TEST(PluginTest, RejectsUnusedArgs) {
  EXPECT_THAT(error_text(plugin_config("gated_mlp.so", R"({"widht": 64, "width": 8})")),
              AllOf(HasSubstr("model.args: widht;"), HasSubstr("correct or remove")));
}

TEST(PluginTest, ReportsArgsOfWrongType) {
  EXPECT_THAT(error_text(plugin_config("gated_mlp.so", R"({"width": "wide"})")),
              HasSubstr("model.args.width is 'wide'; it must be an integer"));
}

// ---- Invalid plugins

TEST(PluginValidationTest, RejectsNonSharedObjectFile) {
  const test::TemporaryDirectory folder;
  std::ofstream(folder / "text.so") << "a text, not a program\n";
  std::ofstream(folder / "short.so") << "E";
  std::ofstream(folder / "truncated.so") << "\177ELF";
  EXPECT_THAT(error_text(plugin_config(folder / "text.so")), HasSubstr("is not a shared object"));
  EXPECT_THAT(error_text(plugin_config(folder / "short.so")), HasSubstr("is not a shared object"));
  EXPECT_THAT(error_text(plugin_config(folder / "truncated.so")), HasSubstr("cannot be loaded: "));
  EXPECT_THAT(error_text(plugin_config(folder / "missing.so")), HasSubstr("No such file"));
  EXPECT_THAT(error_text(plugin_config(folder / ".")), HasSubstr("is not a file"));
}

TEST(PluginValidationTest, RejectsWorldWritableFile) {
  const test::TemporaryDirectory folder;
  fs::copy_file(kPlugins + "/gated_mlp.so", folder / "m.so");
  EXPECT_NE(expect_model(plugin_config(folder / "m.so")), nullptr);
  ASSERT_EQ(::chmod((folder / "m.so").c_str(), 0666), 0);
  EXPECT_THAT(error_text(plugin_config(folder / "m.so")), HasSubstr("is writable by any user"));
  ASSERT_EQ(::chmod((folder / "m.so").c_str(), 0644), 0);
  ASSERT_EQ(::chmod((folder / ".").c_str(), 0777), 0);
  EXPECT_THAT(error_text(plugin_config(folder / "m.so")),
              HasSubstr("is in a directory that is writable by any user"));
  ASSERT_EQ(::chmod((folder / ".").c_str(), 01777), 0);
  EXPECT_NE(expect_model(plugin_config(folder / "m.so")), nullptr)
      << "sticky directory, such as /tmp";
}

TEST(PluginValidationTest, RejectsSharedObjectWithoutEntryPoint) {
  EXPECT_THAT(error_text(plugin_config("no_plugin.so")),
              AllOf(HasSubstr("has no stoker_plugin()"), HasSubstr("STOKER_PLUGIN")));
}

TEST(PluginValidationTest, RejectsOtherVersionsAndReportsBoth) {
  const std::string hint = "recompile it";
  EXPECT_THAT(error_text(plugin_config("later_plugin.so")),
              AllOf(HasSubstr("version 99 of plugins, this stoker has 2"), HasSubstr(hint)));
  EXPECT_THAT(error_text(plugin_config("old_torch_plugin.so")),
              AllOf(HasSubstr("with LibTorch 1.13, stoker with 2."), HasSubstr(hint)));
  EXPECT_THAT(error_text(plugin_config("old_abi_plugin.so")),
              AllOf(HasSubstr("_GLIBCXX_USE_CXX11_ABI=0"), HasSubstr(hint)));
}

TEST(PluginValidationTest, RejectsUndefinedSymbols) {
  EXPECT_THAT(error_text(plugin_config("undefined_symbol_plugin.so")),
              AllOf(HasSubstr("cannot be loaded: "), HasSubstr("undefined symbol"),
                    HasSubstr("undefined_symbol")));
}

TEST(PluginValidationTest, RejectsFactoryThatProducesNoModel) {
  EXPECT_THAT(error_text(defective("throws")), HasSubstr("the factory throws: no model"));
  EXPECT_THAT(error_text(defective("throws a number")),
              HasSubstr("throws an exception that is not a std::exception"));
  EXPECT_THAT(error_text(defective("returns null")), HasSubstr("the factory returned null"));
}

TEST(PluginValidationTest, RejectsModelThatCannotBeTrained) {
  EXPECT_THAT(error_text(defective("no parameters")), HasSubstr("has no parameters"));
  EXPECT_THAT(error_text(defective("frozen")), HasSubstr("no parameter with requires_grad"));
  EXPECT_THAT(error_text(defective("doubles")), HasSubstr("parameter linear.weight is Double"));
  EXPECT_THAT(error_text(defective("complex buffer")), HasSubstr("wave is ComplexFloat"));
  EXPECT_THAT(error_text(defective("two names")),
              AllOf(HasSubstr("again"), HasSubstr("linear.weight"), HasSubstr("register it once")));
}

TEST(PluginValidationTest, RejectsForwardThatFailsOrReturnsWrongShape) {
  EXPECT_THAT(error_text(defective("throws in forward")), HasSubstr("forward() throws: failed"));
  EXPECT_THAT(error_text(defective("fails in forward")), HasSubstr("forward() fails: "));
  EXPECT_THAT(error_text(defective("wrong shape")),
              AllOf(HasSubstr("forward() returned Float [2, 1, 3] for 2 samples of [2, 4]"),
                    HasSubstr("the task needs Float [2, 3]")));
}

// ---- Plugins with their own loss

const std::vector<TensorSpec> kFields = {
    {"input", DType::kF32, {2}}, {"importance", DType::kF32, {}}, {"y", DType::kF32, {}}};

TEST(StepPluginTest, ComputesLossAndMetricsOfNamedFields) {
  const auto made = make_model(plugin_config("step_plugin.so"), kFields, 0);
  ASSERT_TRUE(made.ok()) << made.status().message();
  Model& model = **made;
  EXPECT_THAT(model.step_metrics(), ElementsAre("absolute_error"));
  // Outputs 1.5 and 3.5, errors 0.5 and -0.5, of weight 1 and 3.
  const StepOutput step = model.step({{"input", at::tensor({1.F, 2.F, 3.F, 4.F}).view({2, 2})},
                                      {"importance", at::tensor({1.F, 3.F})},
                                      {"y", at::tensor({1.F, 4.F})}});
  EXPECT_FLOAT_EQ(step.loss.mean.item<float>(), 0.25F);
  EXPECT_EQ(step.loss.maybe_count.item<double>(), 4);
  EXPECT_EQ(step.metric_sums.item<double>(), 1);
  EXPECT_EQ(step.metric_counts.item<double>(), 2);
  step.loss.mean.backward();
  // d/dw of sum(importance * error^2) / 4.
  const at::Tensor expected =
      at::tensor({(1 * 0.5F * 1 - 3 * 0.5F * 3) * 2 / 4, (1 * 0.5F * 2 - 3 * 0.5F * 4) * 2 / 4});
  EXPECT_TRUE(at::allclose(model.named_parameters()["weight"].grad(), expected));
}

TEST(StepPluginTest, HasTheMetricsThatItsFileLists) {
  const auto error = [](const config::ModelConfig& config) {
    return make_model(config, kFields, 0).status().message();
  };
  EXPECT_THAT(error(plugin_config("step_plugin.so", R"({"metric": "mse"})")),
              AllOf(HasSubstr("has the metrics mse, but "),
                    HasSubstr("step_plugin.metrics.json lists absolute_error")));
  const test::TemporaryDirectory folder;
  fs::copy_file(kPlugins + "/step_plugin.so", folder / "alone.so");
  EXPECT_THAT(error(plugin_config(folder / "alone.so")),
              HasSubstr("alone.metrics.json lists none"));
}

// ---- Identity of the file

TEST(ModelFileTest, ComputesDigestOfFile) {
  const config::ModelConfig config = plugin_config("gated_mlp.so");
  const auto bytes = read_file(path_of(config), uint64_t{1} << 30);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*file_digest(config), sha256_hex(*bytes));
  EXPECT_EQ(*file_digest(config::ModelConfig()), "") << "a built-in model";
  EXPECT_EQ(file_digest(plugin_config("missing.so")).status().code(), StatusCode::kNotFound);
}

TEST(ModelFileTest, RejectsFileOtherThanWeightsWereTrainedWith) {
  EXPECT_TRUE(check_same_file("", "aa", "m.so").ok()) << "the checkpoint has no digest";
  EXPECT_TRUE(check_same_file("aa", "aa", "m.so").ok());
  EXPECT_THAT(check_same_file("aa", "bb", "m.so").message(),
              AllOf(HasSubstr("aa"), HasSubstr("m.so had bb")));
}

}  // namespace
}  // namespace stoker::model
