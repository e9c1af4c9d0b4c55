#include "daemon/train/inspection_board.h"

#include <algorithm>
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

InspectionBoard::Reply InspectionBoard::make_reply(uint64_t number, const Inspection& inspection,
                                                   uint64_t after) {
  const uint64_t before = inspection.first - 1;  // number of the last discarded record
  const uint64_t lost = before > after ? before - after : 0;
  const uint64_t skipped =
      after > before ? std::min<uint64_t>(after - before, inspection.records.size()) : 0;
  std::string records;
  uint64_t next = before + skipped;
  for (size_t i = skipped; i < inspection.records.size(); ++i) {
    const std::string& record = inspection.records[i];
    if (!records.empty() && records.size() + record.size() > kReplyBytes) break;
    records += (records.empty() ? "" : ",") + record;
    ++next;
  }
  const bool has_all = next == before + inspection.records.size();
  const std::string ended = has_all ? inspection.ended : "";
  return {.json = "{\"inspection\":" + std::to_string(number) + ",\"records\":[" + records +
                  "],\"next\":" + std::to_string(next) + ",\"dropped\":" + std::to_string(lost) +
                  ",\"end_reason\":" + boost::json::serialize(boost::json::value(ended)) + "}",
          .is_last = !ended.empty()};
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
  Reply reply = make_reply(inspection, *found, after);
  if (reply.is_last) inspections_.erase(inspection);
  return std::move(reply.json);
}

Result<std::string> InspectionBoard::peek(uint64_t inspection, uint64_t after) {
  const std::lock_guard lock(mutex_);
  STOKER_ASSIGN_OR_RETURN(const Inspection* const found, find(inspection));
  return make_reply(inspection, *found, after).json;
}

Status InspectionBoard::close(uint64_t inspection) {
  const std::lock_guard lock(mutex_);
  STOKER_RETURN_IF_ERROR(find(inspection).status());
  inspections_.erase(inspection);
  return {};
}

}  // namespace stoker::train
