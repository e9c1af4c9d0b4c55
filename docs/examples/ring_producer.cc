// Fills the batches of a running stokerd from C++.
//
//   ring_producer RUN_DIR    feed.producers: external; data.train has `input` F32 and `label` I64, as
//                            in {format: synthetic, num_samples: 500, input_shape: [3, 10],
//                            num_classes: 2}; fills each ticket with generated samples
//
//   g++ -std=c++20 -O2 -I PREFIX/include ring_producer.cc -o ring_producer
//
// It attaches again when stokerd is restarted, and exits when all batches are filled. To fill batches
// from your own source, replace generate_sample().
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <thread>

#include <stoker/producer.h>

namespace {

using namespace std::chrono_literals;
using stoker::producer::Error;
using stoker::producer::ErrorCode;
using stoker::producer::Producer;

constexpr auto kMaxRestartTime = 30s;

// Fills `input` and returns its label.
std::int64_t generate_sample(std::mt19937_64& generator, std::span<float> input) {
  const auto label = static_cast<std::int64_t>(generator() % 2);
  std::normal_distribution<float> value(static_cast<float>(label), 0.5f);
  for (float& element : input) element = value(generator);
  return label;
}

// Until no ticket can be claimed; returns the reason.
Error fill_batches(Producer& producer, std::uint64_t& filled) {
  const auto input = producer.tensor<float>("input");
  if (!input) return input.error();
  const auto label = producer.tensor<std::int64_t>("label", {});
  if (!label) return label.error();
  if (producer.tensors().size() != 2)
    return {ErrorCode::kInvalidArgument, "the ring has tensors in addition to input and label"};
  while (true) {
    auto batch = producer.claim(1h);
    if (!batch) return batch.error();
    // A function of the ticket only, because a ticket can be requeued.
    std::mt19937_64 generator(batch->ticket());
    for (std::uint64_t row = 0; row < batch->size(); ++row) {
      batch->row(*label, row)[0] = generate_sample(generator, batch->row(*input, row));
      batch->add_completed_samples(1);
    }
    if (batch->publish()) ++filled;  // otherwise stokerd has given the ticket to another producer
  }
}

// Whether another attach can succeed without a change of the run, this program or its arguments.
bool is_temporary(ErrorCode code, bool was_attached) {
  switch (code) {
    case ErrorCode::kRejected:
    case ErrorCode::kMismatch:
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kEnded:
      return false;
    case ErrorCode::kUnreachable:
      return was_attached;
    case ErrorCode::kTimedOut:
    case ErrorCode::kClosed:
    case ErrorCode::kDetached:
    case ErrorCode::kBusy:
      return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: ring_producer RUN_DIR\n");
    return 64;
  }
  std::uint64_t filled = 0;
  bool was_attached = false;
  auto last_attached = std::chrono::steady_clock::now();
  while (true) {
    auto producer = stoker::producer::attach(argv[1]);
    const Error error = producer ? fill_batches(*producer, filled) : producer.error();
    const auto now = std::chrono::steady_clock::now();
    if (producer) {
      was_attached = true;
      last_attached = now;
    }
    if (is_temporary(error.code, was_attached) && now - last_attached < kMaxRestartTime) {
      std::this_thread::sleep_for(100ms);
      continue;
    }
    std::fprintf(stderr, "%s; filled %llu batches\n", error.message.c_str(),
                 static_cast<unsigned long long>(filled));
    return error.code == ErrorCode::kEnded ? 0 : 1;
  }
}
