#include "bench/checkpoint_fixture.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace stoker::bench {
namespace {

constexpr size_t kTensorBytes = 4 << 20;

}  // namespace

CheckpointFixture::CheckpointFixture(size_t bytes) : bytes_(bytes / 12 * 12) {
  uint64_t noise = 1;  // incompressible data
  for (size_t at = 0; at + sizeof(noise) <= bytes_.size(); at += sizeof(noise)) {
    noise = noise * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(bytes_.data() + at, &noise, sizeof(noise));
  }
  const size_t third = bytes_.size() / 3;
  add(model_, "weight", 0, third);
  add(optim_, "exp_avg.weight", third, 2 * third);
  add(optim_, "exp_avg_sq.weight", 2 * third, 3 * third);
}

void CheckpointFixture::add(checkpoint::TensorViews& views, const std::string& name, size_t from,
                            size_t to) {
  for (size_t at = from; at < to; at += kTensorBytes) {
    const size_t bytes = std::min(kTensorBytes, to - at);
    views.push_back({.spec = {.name = name + "." + std::to_string(views.size()),
                              .dtype = DType::kF32,
                              .shape = {static_cast<int64_t>(bytes / sizeof(float))}},
                     .bytes = std::span(bytes_).subspan(at, bytes)});
  }
}

}  // namespace stoker::bench
