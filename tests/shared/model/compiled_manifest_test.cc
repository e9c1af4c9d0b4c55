#include "shared/model/compiled_manifest.h"

#include <fstream>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/model/model_file.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

json::object good() {
  const std::string sum(64, 'a');
  return json::parse(
             R"({"format": 2, "torch": "2.11.0", "device": "cpu", "cpu_flags": ["avx2", "fma"],
    "precision": "fp32", "batch": {"min": 1, "max": 64}, "seeds": 2,
    "tied_parameters": {"head.weight": "fc.weight"},
    "parameters": [{"name": "fc.weight", "dtype": "F32", "shape": [4, 8], "requires_grad": true},
                   {"name": "fc.bias", "dtype": "F32", "shape": [4], "requires_grad": false}],
    "buffers": [{"name": "norm.count", "dtype": "I64", "shape": [], "persistent": true}],
    "inputs": [{"name": "input.0", "dtype": "F32", "shape": [null, 8]}],
    "targets": [{"name": "target.0", "dtype": "I64", "shape": [null]}],
    "outputs": [{"name": "output.0", "dtype": "F32", "shape": [null, 4]}],
    "self_test": {"loss": 1.5, "gradient_norms": [0.5], "output_norms": [2], "eval_loss": 1.25,
                  "tolerance": 0.001},
    "files": {"model.pt2": ")" +
             sum + R"(", "model.safetensors": ")" + sum + R"(", "self_test.safetensors": ")" + sum +
             R"("}})")
      .as_object();
}

Result<CompiledManifest> parse(const json::value& value) {
  return parse_compiled_manifest(json::serialize(value), "m/manifest.json");
}

TEST(CompiledManifestTest, ReadsEveryField) {
  const auto manifest = parse(good());
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(manifest->torch, "2.11.0");
  EXPECT_EQ(manifest->cpu_flags, (std::vector<std::string>{"avx2", "fma"}));
  EXPECT_FALSE(manifest->is_bf16);
  EXPECT_EQ(manifest->min_batch, 1);
  EXPECT_EQ(manifest->max_batch, 64);
  EXPECT_EQ(manifest->seeds, 2);
  EXPECT_EQ(manifest->tied_parameters.at("head.weight"), "fc.weight");
  ASSERT_EQ(manifest->parameters.size(), 2u);
  EXPECT_EQ(to_string(manifest->parameters[0].spec), "fc.weight F32 [4, 8]");
  EXPECT_TRUE(manifest->parameters[0].requires_grad);
  EXPECT_FALSE(manifest->parameters[1].requires_grad);
  ASSERT_EQ(manifest->buffers.size(), 1u);
  EXPECT_EQ(manifest->buffers[0].spec.dtype, DType::kI64);
  EXPECT_EQ(manifest->inputs[0].shape, std::vector<int64_t>{8}) << "of one sample";
  EXPECT_TRUE(manifest->targets[0].shape.empty());
  EXPECT_EQ(manifest->self_test.gradient_norms, std::vector<double>{0.5});
}

TEST(CompiledManifestTest, RejectsEachMissingField) {
  for (const auto& field : good()) {
    json::object without = good();
    without.erase(field.key());
    const auto manifest = parse(without);
    ASSERT_FALSE(manifest.ok()) << field.key();
    EXPECT_EQ(manifest.status().code(), StatusCode::kCorrupt) << field.key();
    EXPECT_THAT(manifest.status().message(), HasSubstr("m/manifest.json"));
  }
}

TEST(CompiledManifestTest, RejectsEachFieldOfAnotherType) {
  for (const auto& field : good()) {
    json::object wrong = good();
    wrong[field.key()] = json::array{json::object{{"x", 1}}};
    const auto manifest = parse(wrong);
    ASSERT_FALSE(manifest.ok()) << field.key();
    EXPECT_THAT(manifest.status().message(), HasSubstr("m/manifest.json"));
  }
}

TEST(CompiledManifestTest, RejectsImpossibleValues) {
  const auto message_of = [](const std::function<void(json::object&)>& change) {
    json::object root = good();
    change(root);
    const auto manifest = parse(root);
    return manifest.ok() ? "no error" : manifest.status().message();
  };
  const auto first = [](json::object& root, const char* list) -> json::object& {
    return root.at(list).as_array().at(0).as_object();
  };
  EXPECT_THAT(message_of([](auto& root) { root["format"] = 1; }), HasSubstr("has format 1"));
  EXPECT_THAT(message_of([](auto& root) { root["device"] = "cuda"; }),
              HasSubstr("run on the CPU only"));
  EXPECT_THAT(message_of([](auto& root) {
                root["batch"] = {{"min", 5}, {"max", 4}};
              }),
              HasSubstr("out of range"));
  EXPECT_THAT(message_of([](auto& root) { root["precision"] = "fp8"; }), HasSubstr("is fp8"));
  EXPECT_THAT(message_of([](auto& root) { root["self_test"].as_object()["tolerance"] = 1e9; }),
              HasSubstr("tolerance is out of range"));
  EXPECT_THAT(message_of([](auto& root) { root["seeds"] = int64_t{1} << 40; }),
              HasSubstr("out of range"));
  EXPECT_THAT(message_of([&](auto& root) { first(root, "parameters")["shape"] = {-1}; }),
              HasSubstr("impossible shape"));
  EXPECT_THAT(message_of([&](auto& root) { first(root, "parameters")["dtype"] = "F31"; }),
              HasSubstr("unknown dtype"));
  EXPECT_THAT(message_of([&](auto& root) { first(root, "buffers")["name"] = "fc.weight"; }),
              HasSubstr("occurs twice"));
  EXPECT_THAT(message_of([](auto& root) {
                root["tied_parameters"] = {{"a", "b"}};
              }),
              HasSubstr("a is tied to b, which is unknown"));
  EXPECT_THAT(message_of([&](auto& root) {
                first(root, "inputs")["shape"] = {3, 8};
              }),
              HasSubstr("no batch dimension"));
  EXPECT_THAT(message_of([&](auto& root) { first(root, "parameters")["requires_grad"] = false; }),
              HasSubstr("requires_grad"));
  EXPECT_THAT(message_of([](auto& root) { root["outputs"] = json::array{}; }),
              HasSubstr("outputs is empty"));
  EXPECT_THAT(message_of([](auto& root) {
                root["self_test"].as_object()["gradient_norms"] = {1, 2};
              }),
              HasSubstr("one number per parameter"));
  EXPECT_THAT(message_of([](auto& root) { root["files"].as_object()["model.pt2"] = "abc"; }),
              HasSubstr("has no SHA-256"));
}

TEST(CompiledManifestTest, ComparesThePlatform) {
  const CompiledManifest manifest = *parse(good());
  EXPECT_TRUE(validate_platform(manifest, "2.11.0", {"aes", "avx2", "fma"}).ok());
  EXPECT_THAT(validate_platform(manifest, "2.12.0", {"avx2", "fma"}).message(),
              HasSubstr("was compiled with PyTorch 2.11.0, this program uses LibTorch 2.12.0"));
  EXPECT_THAT(validate_platform(manifest, "2.11.0", {"fma"}).message(),
              HasSubstr("for a processor with avx2, which this one lacks"));
  const auto flags = cpu_flags();
  ASSERT_TRUE(flags.ok());
#ifdef __x86_64__
  EXPECT_THAT(*flags, ::testing::Contains("sse2"));
#endif
}

TEST(CompiledManifestTest, ComparesTheBatch) {
  const CompiledManifest manifest = *parse(good());
  const std::vector<TensorSpec> input{{"input", DType::kF32, {8}}},
      label{{"label", DType::kI64, {}}};
  EXPECT_TRUE(validate_compiled_batch(manifest, input, label).ok());
  EXPECT_THAT(validate_compiled_batch(manifest, {{"input", DType::kF32, {9}}}, label).message(),
              HasSubstr("with the input F32 [8] per sample; the data has F32 [9]"));
  EXPECT_THAT(validate_compiled_batch(manifest, input, {}).message(),
              HasSubstr("with the targets I64 [] per sample; the data has nothing"));
}

// Before any data is read, and without the other files of the package.
TEST(CompiledManifestTest, ComparesTheBatchSizeOfTheEvaluation) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "manifest.json";
  std::ofstream(path) << json::serialize(good());
  const config::ModelConfig model{.arch = config::CompiledConfig{.path = path}};
  const auto check = [](const config::ModelConfig& of, int64_t samples) {
    return check_eval_batch_size(of, {.datasets = {"val"}, .batch_size = samples});
  };
  EXPECT_TRUE(check(model, 64).ok());
  const Status status = check(model, 65);
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_EQ(status.message(), "model.path: " + path +
                                  ": was exported for batches of 1 to 64 samples, eval.batch_size "
                                  "is 65: change it, or export the module with another "
                                  "--max-batch");
  EXPECT_TRUE(check_eval_batch_size(model, {.datasets = {}, .batch_size = 65}).ok());
  EXPECT_TRUE(check({.arch = config::MlpConfig{}}, 65).ok());
  EXPECT_EQ(check({.arch = config::CompiledConfig{.path = path + "x"}}, 1).code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace stoker::model
