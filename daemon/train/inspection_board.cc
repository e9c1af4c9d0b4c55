#include "daemon/train/inspection_board.h"

#include <utility>

#include <boost/json.hpp>

namespace stoker::train {

bool InspectionBoard::is_over(const Inspection& inspection) const {
  return clock_.monotonic() - inspection.read_at > kLease;
}

Result<InspectionBoard::Inspection*> InspectionBoard::find(uint64_t inspection) {
  const auto found = inspections_.find(inspection);
  if (found == inspections_.end()) {
    return Status(StatusCode::kNotFound, "there is no inspection " + std::to_string(inspection) +
                                             "; one that is not read for " +
                                             std::to_string(kLease.count()) + " s ends");
  }
  return &found->second;
}

Result<uint64_t> InspectionBoard::open() {
  const std::lock_guard lock(mutex_);
  std::erase_if(inspections_, [this](const auto& one) { return is_over(one.second); });
  if (inspections_.size() >= kMaxInspections) {
    return Status(StatusCode::kBusy, std::to_string(kMaxInspections) +
                                         " inspections are open, the maximum; close one");
  }
  inspections_[++last_].read_at = clock_.monotonic();
  return last_;
}

bool InspectionBoard::is_wanted(uint64_t inspection) {
  const std::lock_guard lock(mutex_);
  const auto found = inspections_.find(inspection);
  if (found == inspections_.end()) return false;
  if (!is_over(found->second)) return true;
  inspections_.erase(found);
  return false;
}

void InspectionBoard::push(uint64_t inspection, std::string row) {
  const std::lock_guard lock(mutex_);
  const auto found = inspections_.find(inspection);
  if (found == inspections_.end()) return;
  Inspection& kept = found->second;
  kept.bytes += row.size();
  kept.rows.push_back(std::move(row));
  while (kept.rows.size() > kRows || (kept.bytes > kBytes && kept.rows.size() > 1)) {
    kept.bytes -= kept.rows.front().size();
    kept.rows.pop_front();
    ++kept.first;
  }
}

void InspectionBoard::end(uint64_t inspection, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (const auto found = inspections_.find(inspection); found != inspections_.end())
    found->second.ended = why;
}

void InspectionBoard::end_all(const std::string& why) {
  const std::lock_guard lock(mutex_);
  for (auto& [number, inspection] : inspections_) {
    if (inspection.ended.empty()) inspection.ended = why;
  }
}

Result<std::string> InspectionBoard::read(uint64_t inspection, uint64_t after) {
  const std::lock_guard lock(mutex_);
  STOKER_ASSIGN_OR_RETURN(Inspection* const found, find(inspection));
  found->read_at = clock_.monotonic();
  while (!found->rows.empty() && found->first <= after) {  // already received by the client
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
  if (!ended.empty()) inspections_.erase(inspection);
  return "{\"inspection\":" + std::to_string(inspection) + ",\"records\":[" + rows +
         "],\"next\":" + std::to_string(next) + ",\"dropped\":" + std::to_string(lost) +
         ",\"end_reason\":" + boost::json::serialize(boost::json::value(ended)) + "}";
}

Status InspectionBoard::close(uint64_t inspection) {
  const std::lock_guard lock(mutex_);
  STOKER_RETURN_IF_ERROR(find(inspection).status());
  inspections_.erase(inspection);
  return {};
}

}  // namespace stoker::train
