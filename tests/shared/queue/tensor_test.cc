#include "shared/queue/tensor.h"

#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/shared/queue/queue_values.h"

namespace stoker::queue {
namespace {

TEST(TensorTest, StoresScalarWithoutBuffer) {
  const Tensor tensor = Tensor::scalar(2.5f);
  EXPECT_EQ(tensor.dtype(), DType::kF32);
  EXPECT_EQ(tensor.rank(), 0u);
  EXPECT_EQ(tensor.value<float>(), 2.5f);
}

TEST(TensorTest, SharesBytesOfLargeSlicesAndCopiesSmallOnes) {
  std::vector<int64_t> numbers(20);
  std::iota(numbers.begin(), numbers.end(), 0);
  Result<Tensor> tensor = Tensor::allocate(DType::kI64, Shape({4, 5}));
  ASSERT_TRUE(tensor.ok());
  std::memcpy(tensor->mutable_data(), numbers.data(), tensor->bytes());

  const Tensor large = tensor->slice(2);
  EXPECT_EQ(large.shape(), Shape({5}));
  EXPECT_EQ(values_of(large), (std::vector<int64_t>{10, 11, 12, 13, 14}));
  EXPECT_EQ(large.data(), tensor->data() + 10 * sizeof(int64_t));

  const Tensor small = large.slice(1);
  EXPECT_EQ(small.shape(), Shape());
  EXPECT_EQ(small.value<int64_t>(), 11);
  EXPECT_NE(small.data(), large.data() + sizeof(int64_t));
}

TEST(TensorTest, ReturnsElementsAfterThoseThatWereUsed) {
  const Tensor tensor = batch({1, 2, 3, 4, 5})[0];
  EXPECT_EQ(values_of(tensor.remainder(1)), (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(values_of(tensor.remainder(4)), (std::vector<int64_t>{5}));
  EXPECT_EQ(tensor.remainder(4).shape(), Shape({1}));
}

TEST(TensorTest, KeepsBufferUntilLastSliceIsGone) {
  bool freed = false;
  Tensor slice;
  {
    std::shared_ptr<const std::byte> buffer(new std::byte[80]{}, [&](const std::byte* bytes) {
      freed = true;
      delete[] bytes;
    });
    Result<Tensor> tensor = Tensor::from_buffer(DType::kI64, Shape({2, 5}), std::move(buffer), 80);
    ASSERT_TRUE(tensor.ok());
    slice = tensor->slice(1);
  }
  EXPECT_FALSE(freed);
  slice = Tensor();
  EXPECT_TRUE(freed);
}

TEST(TensorTest, RejectsImpossibleShapes) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(Tensor::allocate(DType::kI64, Shape({-1})).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::allocate(DType::kI64, Shape({kHuge, kHuge})).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Tensor::from_buffer(DType::kI64, Shape({3}), nullptr, 16).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(TensorTest, AcceptsShapeWithoutElements) {
  const Result<Tensor> tensor = Tensor::allocate(DType::kF64, Shape({3, 0}));
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->bytes(), 0u);
  EXPECT_EQ(tensor->slice(2).shape(), Shape({0}));
}

TEST(TensorTest, PadsEveryDimension) {
  Result<Tensor> source = Tensor::allocate(DType::kU8, Shape({2, 1, 2}));
  ASSERT_TRUE(source.ok());
  const std::vector<uint8_t> bytes{1, 2, 3, 4};
  std::memcpy(source->mutable_data(), bytes.data(), bytes.size());
  std::vector<uint8_t> padded(3 * 2 * 3, 0);
  copy_padded(*source, reinterpret_cast<std::byte*>(padded.data()), Shape({3, 2, 3}));
  EXPECT_EQ(padded, (std::vector<uint8_t>{1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(ShapeTest, HasLimitedNumberOfDimensions) {
  const std::vector<int64_t> extents(kMaxRank + 1, 1);
  EXPECT_EQ(Shape::make(extents).status().code(), StatusCode::kInvalidArgument);
  const auto largest = Shape::make(std::span(extents).first(kMaxRank));
  ASSERT_TRUE(largest.ok());
  EXPECT_EQ(largest->rank(), kMaxRank);
}

TEST(ShapeTest, UnknownExtentIsCompatibleWithEveryExtent) {
  const Shape declared({2, kUnknownExtent});
  EXPECT_TRUE(declared.compatible_with(Shape({2, 7})));
  EXPECT_FALSE(declared.compatible_with(Shape({3, 7})));
  EXPECT_FALSE(declared.compatible_with(Shape({2})));
  EXPECT_FALSE(declared.fully_defined());
  EXPECT_EQ(to_string(declared), "[2, ?]");
}

}  // namespace
}  // namespace stoker::queue
