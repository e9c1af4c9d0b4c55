#include "daemon/feeder/reader_tuner.h"

#include <algorithm>

namespace stoker::feeder {
namespace {

constexpr uint32_t kFirst = 2;  // threads at the start

}  // namespace

ReaderTuner::ReaderTuner(uint32_t least, uint32_t most)
    : least_(least), most_(std::max(least, most)), wanted_(std::clamp(kFirst, least_, most_)) {}

uint32_t ReaderTuner::look(const Look& look) {
  if (!begun_) begin_period(look);
  occupancy_ += static_cast<double>(look.ready) / static_cast<double>(look.slots);
  ++looks_;
  if (look.now - first_.now < kPeriod) return wanted_;
  if (look.consumed > first_.consumed) judge(occupancy_ / static_cast<double>(looks_));
  begin_period(look);
  return wanted_;
}

void ReaderTuner::begin_period(const Look& look) {
  begun_ = true;
  first_ = look;
  occupancy_ = 0;
  looks_ = 0;
}

void ReaderTuner::judge(double occupancy) {
  ++since_sent_away_;
  calm_ = occupancy > kHighMark ? calm_ + 1 : 0;
  if (occupancy < kLowMark && wanted_ < most_) {
    ++wanted_;
    if (since_sent_away_ <= patience_) patience_ = std::min(2 * patience_, kMostCalm);
    since_sent_away_ = kMostCalm;
  } else if (calm_ >= patience_ && wanted_ > least_) {
    --wanted_;
    calm_ = 0;
    since_sent_away_ = 0;
  }
}

}  // namespace stoker::feeder
