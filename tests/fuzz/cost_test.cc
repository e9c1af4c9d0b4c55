// Bounds what a parser allocates and writes per byte of an input, with the worst inputs that are
// known. Counts, so that the result does not depend on the speed of the machine.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/fuzz/format.h"
#include "tests/fuzz/heap_meter.h"
#include "tests/fuzz/worst_inputs.h"

namespace stoker::fuzz {
namespace {

constexpr size_t kInputBytes = size_t{256} << 10;

class CostTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { set_work(Work::kReadOnce); }
  void TearDown() override { set_work(Work::kCheckInvariants); }
};

TEST(HeapMeterTest, CountsMostBytesInUse) {
  reset_heap_meter();
  { const std::string text(1 << 20, 'a'); }
  { const std::string text(1 << 19, 'b'); }
  EXPECT_GE(read_heap_meter().bytes, 1u << 20);
  EXPECT_LT(read_heap_meter().bytes, (1u << 20) + 65536);
  EXPECT_GE(read_heap_meter().blocks, 2u);
}

TEST_P(CostTest, IsBoundedForWorstKnownInputs) {
  const auto parser = std::ranges::find(parsers(), GetParam(), &Parser::name);
  ASSERT_NE(parser, parsers().end());
  const size_t bytes =
      parser->max_bytes == 0 ? kInputBytes : std::min(kInputBytes, parser->max_bytes);
  for (const WorstInput& worst : worst_inputs()) {
    if (worst.parser != parser->name || parser->max_heap_factor == 0) continue;
    SCOPED_TRACE(worst.what);
    const std::string input = worst.make(bytes);
    (void)measure(*parser, input);  // creates what is created once
    const Cost cost = measure(*parser, input);
    EXPECT_LE(cost.heap_bytes, kFixedBytes + parser->max_heap_factor * input.size());
    EXPECT_LE(cost.written_bytes, kFixedBytes + parser->max_written_factor * input.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Parsers, CostTest, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const Parser& parser : parsers()) names.emplace_back(parser.name);
                           return names;
                         }()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace stoker::fuzz
