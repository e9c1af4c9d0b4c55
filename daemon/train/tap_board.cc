#include "daemon/train/tap_board.h"

#include <utility>

#include <boost/json.hpp>

namespace stoker::train {

bool TapBoard::is_over(const Tap& tap) const { return clock_.monotonic() - tap.read_at > kLease; }

Result<TapBoard::Tap*> TapBoard::find(uint64_t tap) {
  const auto found = taps_.find(tap);
  if (found == taps_.end()) {
    return Status(Code::kNotFound, "there is no inspection " + std::to_string(tap) +
                                       "; one that is not read for " +
                                       std::to_string(kLease.count()) + " s ends");
  }
  return &found->second;
}

Result<uint64_t> TapBoard::open() {
  const std::lock_guard lock(mutex_);
  std::erase_if(taps_, [this](const auto& one) { return is_over(one.second); });
  if (taps_.size() >= kTaps) {
    return Status(Code::kBusy,
                  std::to_string(kTaps) + " inspections are open, the maximum; close one");
  }
  taps_[++last_].read_at = clock_.monotonic();
  return last_;
}

bool TapBoard::is_wanted(uint64_t tap) {
  const std::lock_guard lock(mutex_);
  const auto found = taps_.find(tap);
  if (found == taps_.end()) return false;
  if (!is_over(found->second)) return true;
  taps_.erase(found);
  return false;
}

void TapBoard::push(uint64_t tap, std::string row) {
  const std::lock_guard lock(mutex_);
  const auto found = taps_.find(tap);
  if (found == taps_.end()) return;
  Tap& kept = found->second;
  kept.bytes += row.size();
  kept.rows.push_back(std::move(row));
  while (kept.rows.size() > kRows || (kept.bytes > kBytes && kept.rows.size() > 1)) {
    kept.bytes -= kept.rows.front().size();
    kept.rows.pop_front();
    ++kept.first;
  }
}

void TapBoard::end(uint64_t tap, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (const auto found = taps_.find(tap); found != taps_.end()) found->second.ended = why;
}

void TapBoard::end_all(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (auto& [number, tap] : taps_) {
    if (tap.ended.empty()) tap.ended = why;
  }
}

Result<std::string> TapBoard::read(uint64_t tap, uint64_t after) {
  const std::lock_guard lock(mutex_);
  STOKER_ASSIGN_OR_RETURN(Tap* const found, find(tap));
  found->read_at = clock_.monotonic();
  while (!found->rows.empty() && found->first <= after) {  // fetched: the reader has moved on
    found->bytes -= found->rows.front().size();
    found->rows.pop_front();
    ++found->first;
  }
  const uint64_t lost = found->first > after + 1 ? found->first - after - 1 : 0;
  std::string rows;
  uint64_t next = found->first - 1;
  for (const std::string& row : found->rows) {
    if (!rows.empty() && rows.size() + row.size() > kReplyBytes) break;
    rows += (rows.empty() ? "" : ",") + row;
    ++next;
  }
  const bool has_all = next + 1 == found->first + found->rows.size();
  const std::string ended = has_all ? found->ended : "";
  if (!ended.empty()) taps_.erase(tap);
  return "{\"inspection\":" + std::to_string(tap) + ",\"records\":[" + rows +
         "],\"next\":" + std::to_string(next) + ",\"dropped\":" + std::to_string(lost) +
         ",\"end_reason\":" + boost::json::serialize(boost::json::value(ended)) + "}";
}

Status TapBoard::close(uint64_t tap) {
  const std::lock_guard lock(mutex_);
  STOKER_RETURN_IF_ERROR(find(tap).status());
  taps_.erase(tap);
  return {};
}

}  // namespace stoker::train
