// A ring, a daemon that hands it out, and this process as its producer.
#pragma once

#include <gtest/gtest.h>
#include <stoker/producer.h>

#include "tests/include/fake_daemon.h"
#include "tests/shared/ring/ring_fixture.h"

namespace stoker::producer {

using namespace std::chrono_literals;
using ring::kTestTimeout;

class ProducerTest : public ::testing::Test {
 protected:
  void open(const ring::RingOptions& options = {.slots = 4},
            const ring::BatchLayout& layout = ring::small_layout()) {
    ring_ = ring::make_ring(options, layout);
    ASSERT_NE(ring_, nullptr);
  }
  // Attaches this process under another row of the producer table.
  Producer attach_producer() {
    const auto id = ring_->add_producer("test");
    EXPECT_TRUE(id.ok());
    ids_.push_back(*id);
    daemon_.set_attach(id->index, id->generation, ring_->fd());
    auto producer = attach(daemon_.directory());
    EXPECT_TRUE(producer.ok()) << producer.error().message;
    return *producer;
  }
  // Every byte of the slot, which has no gaps but those for alignment.
  static void fill(Producer& producer, Batch& batch, uint64_t seed) {
    for (const TensorInfo& info : producer.tensors()) {
      auto tensor = producer.tensor<std::byte>(info.name);
      for (uint64_t row = 0; row < batch.size(); ++row) {
        const auto bytes = batch.row(*tensor, row);
        for (size_t i = 0; i < bytes.size(); ++i)
          bytes[i] =
              static_cast<std::byte>(ring::byte_for(seed, info.offset + row * info.row_bytes + i));
        batch.add_completed_samples(1);
      }
    }
  }
  bool holds(std::span<const std::byte> slot, uint64_t seed) const {
    const auto& layout = ring_->layout();
    for (size_t tensor = 0; tensor < layout.sample().size(); ++tensor) {
      const auto bytes = layout.tensor_bytes(slot, tensor);
      for (size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] != static_cast<std::byte>(ring::byte_for(seed, layout.offset(tensor) + i)))
          return false;
    }
    return true;
  }
  void expect_next(uint64_t ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    ASSERT_EQ(batch->ticket, ticket);
    ASSERT_TRUE(holds(batch->slot, ticket)) << "ticket " << ticket;
    ring_->release(ticket);
  }

  FakeDaemon daemon_;
  std::unique_ptr<ring::ShmRing> ring_;
  std::vector<ring::ProducerId> ids_;
};

}  // namespace stoker::producer
