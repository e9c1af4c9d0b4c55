#include "shared/checkpoint/class_weights.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/shared/checkpoint/raw_tensors.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointClassWeightsTest : public ::testing::Test {
 protected:
  Result<std::vector<double>> read_back(const OwnedTensor& tensor) {
    CheckpointContent content;
    content.manifest.step = ++step_;
    content.manifest.live_settings = "{}";
    const std::vector<OwnedTensor> tensors{tensor};
    content.model = content.optim = content.state = views_of(tensors);
    CheckpointStore store(scratch_ / "checkpoints", default_file_system());
    const auto committed = store.commit(content);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    STOKER_ASSIGN_OR_RETURN(
        const auto saved, CheckpointStore::open_verified(scratch_ / "checkpoints" + "/" +
                                                         CheckpointStore::checkpoint_name(step_)));
    return read_class_weights(saved);
  }
  static OwnedTensor weights(const std::vector<double>& numbers) {
    OwnedTensor tensor =
        make_tensor(kClassWeights, DType::kF64, {static_cast<int64_t>(numbers.size())});
    std::memcpy(tensor.bytes.data(), numbers.data(), tensor.bytes.size());
    return tensor;
  }

  const test::TemporaryDirectory scratch_;
  uint64_t step_ = 0;
};

TEST_F(CheckpointClassWeightsTest, LoadsWeightsBitForBit) {
  EXPECT_THAT(*read_back(weights({1.0 / 3, 0, 1e6})), ElementsAre(1.0 / 3, 0, 1e6));
}

TEST_F(CheckpointClassWeightsTest, ReturnsEmptyListWhenWeightsAreAbsent) {
  EXPECT_THAT(*read_back(make_tensor("other", DType::kF64, {3})), IsEmpty());
}

TEST_F(CheckpointClassWeightsTest, ReportsCorruptStateOnInvalidWeights) {
  for (const OwnedTensor& wrong :
       {weights({1, -1}), weights({1, std::nan("")}), weights({1, INFINITY}),
        make_tensor(kClassWeights, DType::kF32, {3}),
        make_tensor(kClassWeights, DType::kF64, {3, 1})}) {
    const Status status = read_back(wrong).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("trainer_state.safetensors: "));
  }
}

}  // namespace
}  // namespace stoker::checkpoint
