#include "daemon/app/index_progress.h"

#include <gtest/gtest.h>

namespace stoker::app {
namespace {

using namespace std::chrono_literals;

TEST(IndexProgressTest, ShowsRateAndTimeLeft) {
  IndexProgress progress;
  EXPECT_EQ(progress.add("train", 0, "records", 0, 5s), "data.train: 0 records, 0 %");
  EXPECT_EQ(progress.add("train", 10, "records", 0.01, 5100ms), "data.train: 10 records, 1 %");
  // A quarter in 10 s: three quarters take 30 s.
  EXPECT_EQ(progress.add("train", 12'000, "records", 0.25, 15s),
            "data.train: 12 000 records, 1 200/s, 25 %, 30 s left");
  EXPECT_EQ(progress.per_second(), 1200);
  EXPECT_EQ(progress.eta_seconds(), 30);
}

TEST(IndexProgressTest, ShowsWhatIsKnown) {
  IndexProgress progress;
  progress.add("train", 0, "MiB decompressed", -1, 0s);
  EXPECT_EQ(progress.add("train", 50, "MiB decompressed", -1, 10s),
            "data.train: 50 MiB decompressed, 5.00/s");
  EXPECT_EQ(progress.eta_seconds(), 0);
  // Another task has a rate of its own.
  EXPECT_EQ(progress.add("val", 70, "records", 0.5, 11s), "data.val: 70 records, 50 %");
}

}  // namespace
}  // namespace stoker::app
