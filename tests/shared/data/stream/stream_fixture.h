// Inputs and helpers for tests of streams.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/record_stream.h"
#include "tests/shared/data/stream/memory_input.h"
#include "tests/support/eventually.h"

namespace stoker::data::stream::testing {

using test::eventually;

// What an input returns until its end or an error.
struct ReadBytes {
  std::string bytes;
  Status status;
};
inline ReadBytes read_rest(ByteInput& input, size_t part = 4096) {
  ReadBytes read;
  std::vector<std::byte> buffer(part);
  for (;;) {
    const auto got = input.read(buffer, {});
    read.status = got.status();
    if (!got || *got == 0) return read;
    read.bytes.append(reinterpret_cast<const char*>(buffer.data()), *got);
  }
}
// One read.
inline std::string read_some(ByteInput& input) {
  std::vector<std::byte> buffer(4096);
  const auto got = input.read(buffer, {});
  EXPECT_TRUE(got.ok()) << got.status().to_string();
  return got ? std::string(reinterpret_cast<const char*>(buffer.data()), *got) : "";
}

struct ReadRecords {
  std::vector<std::string> records;
  std::vector<StreamPosition> starts;
  std::vector<StreamPosition> ends;  // position() after each
  Status status;
};
inline ReadRecords read_records(RecordStream& stream) {
  ReadRecords read;
  for (;;) {
    StreamRecord record;
    const auto more = stream.next(record, {});
    read.status = more.status();
    if (!more || !*more) return read;
    read.records.emplace_back(reinterpret_cast<const char*>(record.bytes.data()),
                              record.bytes.size());
    read.starts.push_back(record.at);
    read.ends.push_back(stream.position());
  }
}
inline ReadRecords read_records(const Framing& framing, std::string content,
                                size_t part = 1 << 20) {
  RecordStream stream(framing, std::make_unique<MemoryInput>(std::move(content), part));
  return read_records(stream);
}

}  // namespace stoker::data::stream::testing
