// producer_test_program: a producer with include/stoker/producer.h. Usage: producer_test_program
// RUN_DIR [hold]
// Fills tickets until the data ends, and attaches again when the ring is closed. The bytes of a slot
// depend on ticket and offset only. `hold`: stops itself with half of the first slot written.
// Exit codes: 0 end of data; 3 the held ticket was taken away; 1 other errors.
#include <signal.h>
#include <sys/prctl.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include <stoker/producer.h>

namespace {

using namespace std::chrono_literals;
using stoker::producer::Batch;
using stoker::producer::ErrorCode;
using stoker::producer::Producer;

void fill_rows(const Producer& producer, Batch& batch, std::uint64_t first, std::uint64_t end) {
  for (const auto& info : producer.tensors()) {
    const auto tensor = producer.tensor<std::byte>(info.name);
    for (std::uint64_t row = first; row < end; ++row) {
      const auto bytes = batch.row(*tensor, row);
      const std::uint64_t start = batch.ticket() * 31 + (info.offset + row * info.row_bytes) * 7;
      for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>((start + i * 7) & 0xff);
    }
  }
  batch.add_completed_samples(end - first);
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < 2) return 64;
  bool holds = argc > 2 && std::strcmp(argv[2], "hold") == 0;
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < deadline) {
    auto producer = stoker::producer::attach(argv[1]);
    auto code = producer ? ErrorCode::kTimedOut : producer.error().code;
    while (producer) {
      auto batch = producer->claim(60s);
      if (!batch) {
        code = batch.error().code;
        break;
      }
      fill_rows(*producer, *batch, 0, batch->size() / 2);
      if (holds) ::raise(SIGSTOP);
      if (batch->is_claimed()) fill_rows(*producer, *batch, batch->size() / 2, batch->size());
      if (!batch->publish() && holds)
        return producer->claim(0ns).error().code == ErrorCode::kDetached ? 3 : 1;
      holds = false;
    }
    if (code == ErrorCode::kEnded) return 0;
    if (code != ErrorCode::kClosed && code != ErrorCode::kBusy) {
      std::fprintf(stderr, "%s\n", producer ? "claim" : producer.error().message.c_str());
      return 1;
    }
    std::this_thread::sleep_for(20ms);
  }
  return 1;
}
