#include "shared/data/record/bad_records.h"

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/number_format.h"
#include "shared/base/utf8.h"

namespace stoker::data::record {
namespace {

constexpr uint64_t kMaxListed = 100'000;

}  // namespace

void BadRecords::add(const Location& location, const Status& why) {
  if (count_ < kMaxListed)
    list_ += boost::json::serialize(boost::json::object{{"path", valid_utf8(location.path)},
                                                        {"record", valid_utf8(location.record)},
                                                        {"offset", location.offset},
                                                        {"message", valid_utf8(why.message())}}) +
             '\n';
  if (count_++ == 0) first_ = why.with_context(location.text);
}

bool BadRecords::are_too_many(uint64_t seen) const {
  return static_cast<double>(count_) > max_rate_ * static_cast<double>(seen);
}

Status BadRecords::check(uint64_t seen) const {
  if (count_ == 0) return {};
  const std::string list =
      request_.index_dir.empty() ? "" : request_.derived_file("bad_records", "jsonl");
  if (!list.empty())
    STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), list, list_));
  if (are_too_many(seen) || count_ == seen)
    return Status(first_.code(), first_.message() + "; " + std::to_string(count_) + " of " +
                                     std::to_string(seen) + " are bad: correct them, or raise " +
                                     request_.key("max_bad_record_rate") + " (" +
                                     format_shortest(max_rate_) + ")" +
                                     (list.empty() ? "" : "; " + list + " lists them"));
  log_warn("bad records skipped", {{"dataset", request_.name},
                                   {"count", count_},
                                   {"total", seen},
                                   {"first", first_.message()},
                                   {"list", list}});
  return {};
}

}  // namespace stoker::data::record
