#include <numbers>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "shared/model/trunc_normal.h"

namespace stoker::model {
namespace {

constexpr int64_t kMany = 1 << 20;  // large enough that LibTorch splits the tensor between threads

at::Tensor filled(int threads, double deviation, int64_t count = kMany) {
  at::set_num_threads(threads);
  at::manual_seed(7);
  at::Tensor tensor = at::empty({count});
  trunc_normal_(tensor, deviation);
  return tensor;
}

std::string digest(const at::Tensor& tensor) {
  return sha256_hex({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
}

// For deviations of at most 0.35 the uniform random numbers are from -1 to 1 in steps of 2^-23;
// this covers all of them.
TEST(TruncatedNormalTest, DrawsNoValueNearRoundingBoundary) {
  const at::Tensor draws = at::arange(1, 1 << 23, at::kDouble).div(1 << 23);
  const at::Tensor exact = draws.erfinv();
  constexpr double kRelativeError = 1.4e-14;
  EXPECT_TRUE(exact.mul(1 - kRelativeError)
                  .to(at::kFloat)
                  .equal(exact.mul(1 + kRelativeError).to(at::kFloat)));
  EXPECT_FALSE(exact.mul(1 - 1e-12).to(at::kFloat).equal(exact.mul(1 + 1e-12).to(at::kFloat)))
      << "an error that large would show";
}

TEST(TruncatedNormalTest, GivesSameBytesOnAnyProcessorAndThreadCount) {
  for (const int threads : {1, 2, 3})
    EXPECT_EQ(digest(filled(threads, 0.1)),
              "6e967f19863a326605b02595b2b532e5ca8e43d452dbbe85b49d3582a2b6516b")
        << threads << " threads";
}

TEST(TruncatedNormalTest, MatchesPyTorchWithinLastBits) {
  const at::Tensor ours = filled(1, 0.1);
  at::manual_seed(7);
  const at::Tensor theirs =
      at::empty({kMany}).uniform_(-1, 1).erfinv_().mul_(0.1 * std::numbers::sqrt2);
  const at::Tensor bound = theirs.abs().mul(2.5e-7);  // per value; one random number is 0
  EXPECT_LE(ours.sub(theirs).abs().sub(bound).max().item<double>(), 0);
}

TEST(TruncatedNormalTest, StaysWithinBounds) {
  const at::Tensor wide = filled(1, 5.0).abs();
  EXPECT_LE(wide.max().item<float>(), 2.0F);
  EXPECT_GT(wide.max().item<float>(), 1.99F);
}

}  // namespace
}  // namespace stoker::model
