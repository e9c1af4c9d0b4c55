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

void InspectionBoard::push(uint64_t inspection, std::string record) {
  const std::lock_guard lock(mutex_);
  const auto found = inspections_.find(inspection);
  if (found == inspections_.end()) return;
  Inspection& target = found->second;
  target.bytes += record.size();
  target.records.push_back(std::move(record));
  while (target.records.size() > kMaxRecords ||
         (target.bytes > kMaxBytes && target.records.size() > 1)) {
    target.bytes -= target.records.front().size();
    target.records.pop_front();
    ++target.first;
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
  while (!found->records.empty() && found->first <= after) {  // already received by the client
    found->bytes -= found->records.front().size();
    found->records.pop_front();
    ++found->first;
  }
  const uint64_t lost = found->first > after + 1 ? found->first - after - 1 : 0;
  std::string records;
  uint64_t next = found->first - 1;
  for (const std::string& record : found->records) {
    if (!records.empty() && records.size() + record.size() > kReplyBytes) break;
    records += (records.empty() ? "" : ",") + record;
    ++next;
  }
  const bool has_all = next + 1 == found->first + found->records.size();
  const std::string ended = has_all ? found->ended : "";
  if (!ended.empty()) inspections_.erase(inspection);
  return "{\"inspection\":" + std::to_string(inspection) + ",\"records\":[" + records +
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
