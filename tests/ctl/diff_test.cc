#include <array>
#include <limits>

#include <boost/json.hpp>

#include "ctl/tensor_numbers.h"
#include "shared/checkpoint/store.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DiffCommandTest : public CtlTest {
 protected:
  struct Tensor {
    std::string name;
    std::vector<float> values;
  };
  void put_checkpoint(uint64_t step, const std::vector<Tensor>& tensors) {
    std::filesystem::create_directories(layout().checkpoints_dir());
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    content.manifest.live_settings = "{}";
    for (const Tensor& tensor : tensors) {
      content.model.push_back({.spec = {.name = tensor.name,
                                        .dtype = DType::kF32,
                                        .shape = {static_cast<int64_t>(tensor.values.size())}},
                               .bytes = std::as_bytes(std::span(tensor.values))});
    }
    checkpoint::CheckpointStore store(layout().checkpoints_dir(), default_file_system());
    const auto committed = store.commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  boost::json::value in_json(const std::string& from, const std::string& to) {
    const Answer answer = ctl({"--json", "diff", from, to});
    EXPECT_EQ(answer.code, 0) << answer.err;
    return boost::json::parse(answer.out);
  }
};

TEST_F(DiffCommandTest, SortsTensorsByRelativeChange) {
  put_checkpoint(10, {{"still", {1, 2}}, {"a_little", {4, 3, 0, 0}}, {"much", {1, 1}}});
  put_checkpoint(20, {{"still", {1, 2}}, {"a_little", {4, 3.5, 0, 0}}, {"much", {3, 1}}});
  const Answer answer = ctl({"diff", "10", "20"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out,
              HasSubstr("step 10 to step 20: 25.0 % of 8 elements changed, in 3 tensors"));
  const size_t much = answer.out.find("much F32 [2]");
  const size_t little = answer.out.find("a_little F32 [4]");
  const size_t still = answer.out.find("still F32 [2]");
  EXPECT_LT(much, little);
  EXPECT_LT(little, still);
  EXPECT_NE(still, std::string::npos);
  EXPECT_LE(widest_line(answer.out), 80u);
}

TEST_F(DiffCommandTest, ComputesChangeMetricsFromElements) {
  put_checkpoint(10, {{"w", {4, 3, 0, 0}}});
  put_checkpoint(20, {{"w", {4, 3, 0, 5}}});
  const auto tensor = in_json("10", "20").at("tensors").at(0);
  EXPECT_EQ(tensor.at("changed").to_number<int>(), 1);
  EXPECT_DOUBLE_EQ(tensor.at("rms_before").to_number<double>(), 2.5);
  EXPECT_DOUBLE_EQ(tensor.at("rms_change").to_number<double>(), 2.5);
  EXPECT_DOUBLE_EQ(tensor.at("relative_change").to_number<double>(), 1.0);
  EXPECT_DOUBLE_EQ(tensor.at("largest_change").to_number<double>(), 5.0);
}

TEST_F(DiffCommandTest, ListsTensorsWithoutMatchOrOfDifferentShape) {
  put_checkpoint(10, {{"head", {1, 2}}, {"old", {1}}});
  put_checkpoint(20, {{"head", {1, 2, 3}}, {"new", {1}}});
  const Answer answer = ctl({"diff", "10", "20"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("only before: head F32 [2]\nonly before: old F32 [1]\n"));
  EXPECT_THAT(answer.out, HasSubstr("only after:  head F32 [3]\nonly after:  new F32 [1]\n"));
}

TEST_F(DiffCommandTest, CountsAndIgnoresNonfiniteElements) {
  const float infinity = std::numeric_limits<float>::infinity();
  put_checkpoint(10, {{"w", {1, 1, 1}}});
  put_checkpoint(20, {{"w", {1, infinity, 1}}});
  EXPECT_EQ(in_json("10", "20").at("tensors").at(0).at("not_finite").to_number<int>(), 1);
  EXPECT_EQ(in_json("10", "20").at("tensors").at(0).at("changed").to_number<int>(), 0);
  EXPECT_THAT(ctl({"diff", "10", "20"}).out, HasSubstr("1 elements are no finite number"));
}

TEST_F(DiffCommandTest, ShowsTwentyTensorsUnlessAllRequested) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 30; ++i) tensors.push_back({"t" + std::to_string(i), {1.0f}});
  put_checkpoint(10, tensors);
  put_checkpoint(20, tensors);
  EXPECT_THAT(ctl({"diff", "10", "20"}).out, HasSubstr("and 10 that changed less (--all shows"));
  EXPECT_THAT(ctl({"diff", "10", "20", "--all"}).out, HasSubstr("t29 F32 [1]"));
}

TEST_F(DiffCommandTest, ReportsExistingStepsAndCorruptFiles) {
  put_checkpoint(10, {{"w", {1}}});
  const Answer missing = ctl({"diff", "10", "20"});
  EXPECT_EQ(missing.code, 78);
  EXPECT_THAT(missing.err, HasSubstr("no checkpoint of step 20; there are: 10"));
  put_checkpoint(20, {{"w", {1}}});
  std::ofstream(layout().checkpoints_dir() + "/step-000000020/model.safetensors", std::ios::app)
      << "x";
  const Answer damaged = ctl({"diff", "10", "20"});
  EXPECT_EQ(damaged.code, 65);
  EXPECT_THAT(damaged.err, HasSubstr("model.safetensors"));
  EXPECT_EQ(ctl({"diff", "10"}).code, 64);
}

template <typename T, size_t kCount>
std::vector<double> numbers(DType dtype, const std::array<T, kCount>& values) {
  return to_doubles(dtype, std::as_bytes(std::span(values)));
}

TEST(TensorValuesTest, ConvertsEveryDataType) {
  EXPECT_THAT(numbers(DType::kU8, std::array<uint8_t, 2>{0, 255}), ElementsAre(0, 255));
  EXPECT_THAT(numbers(DType::kI8, std::array<int8_t, 2>{-128, 1}), ElementsAre(-128, 1));
  EXPECT_THAT(numbers(DType::kU16, std::array<uint16_t, 1>{65535}), ElementsAre(65535));
  EXPECT_THAT(numbers(DType::kI64, std::array<int64_t, 1>{-5}), ElementsAre(-5));
  EXPECT_THAT(numbers(DType::kF64, std::array<double, 1>{0.1}), ElementsAre(0.1));
  // 1, -2, the largest, the smallest above 0, 1/3 as the nearest half.
  EXPECT_THAT(numbers(DType::kF16, std::array<uint16_t, 5>{0x3c00, 0xc000, 0x7bff, 0x0001, 0x3555}),
              ElementsAre(1, -2, 65504, 0x1p-24, 0.333251953125));
  EXPECT_THAT(numbers(DType::kBF16, std::array<uint16_t, 2>{0x3f80, 0xc2f7}),
              ElementsAre(1, -123.5));
}

}  // namespace
}  // namespace stoker::ctl
