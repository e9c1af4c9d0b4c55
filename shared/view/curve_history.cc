#include "shared/view/curve_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/metrics/json_lines.h"

namespace stoker::view {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kMaxMetrics = 64;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[40];
  const bool is_integer = value == std::floor(value) && std::abs(value) < 1e15;
  const auto end =
      is_integer ? std::to_chars(text, text + sizeof text, static_cast<int64_t>(value))
                 : std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
  out.append(text, end.ptr);
}

double value_of(const CurveHistory::Row& row, size_t column) {
  return column < row.size() ? row[column] : kNan;
}

// The row of `num` records and one of `more` records after it.
CurveHistory::Row merge(const CurveHistory::Row& a, size_t num, const CurveHistory::Row& b,
                        size_t more) {
  CurveHistory::Row row(std::max(a.size(), b.size()));
  for (size_t i = 0; i < row.size(); ++i) {
    const double of_a = value_of(a, i), of_b = value_of(b, i);
    const bool has_a = !std::isnan(of_a), has_b = !std::isnan(of_b);
    const bool is_last = i == CurveHistory::kStep || i == CurveHistory::kSeconds ||
                         i == CurveHistory::kTrainedSeconds || i == CurveHistory::kEpoch;
    if (is_last || !has_a || !has_b) {
      row[i] = has_b ? of_b : of_a;
    } else if (i == CurveHistory::kLossMin) {
      row[i] = std::min(of_a, of_b);
    } else if (i == CurveHistory::kLossMax) {
      row[i] = std::max(of_a, of_b);
    } else {
      row[i] = (of_a * static_cast<double>(num) + of_b * static_cast<double>(more)) /
               static_cast<double>(num + more);
    }
  }
  return row;
}

}  // namespace

double trained_seconds(uint64_t steps, double step_time_ms, double wall_seconds) {
  const double seconds = static_cast<double>(steps) * step_time_ms / 1000;
  return wall_seconds > 0 ? std::min(seconds, wall_seconds) : seconds;
}

void CurveHistory::clear() {
  offset_ = 0;
  partial_.clear();
  is_too_long_ = false;
  last_line_.clear();
  last_line_offset_ = 0;
  rows_.clear();
  records_per_row_ = 1;
  num_merged_ = 0;
  if (last_) first_of_file_ = ++count_;
  last_.reset();
  recent_.clear();
}

// Whether the file still has the last line that was read.
bool CurveHistory::is_continued(int fd) const {
  if (offset_ == 0) return true;
  const std::string expected = last_line_ + partial_;
  std::string found(expected.size(), '\0');
  const ssize_t size =
      ::pread(fd, found.data(), found.size(), static_cast<off_t>(last_line_offset_));
  return size == static_cast<ssize_t>(found.size()) && found == expected;
}

void CurveHistory::refresh(uint64_t max_bytes) {
  const auto fd = default_file_system().open(path_, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!fd.ok() || ::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (info.st_ino != inode_ || static_cast<uint64_t>(info.st_size) < offset_ ||
      !is_continued(fd->get()))
    clear();
  inode_ = info.st_ino;
  std::string block(kReadBytes, '\0');
  const uint64_t before = offset_;
  for (ssize_t size;
       offset_ - before < max_bytes &&
       (size = ::pread(fd->get(), block.data(), block.size(), static_cast<off_t>(offset_))) > 0;) {
    const std::string_view text(block.data(), static_cast<size_t>(size));
    size_t begin = 0;
    for (size_t newline; (newline = text.find('\n', begin)) != text.npos; begin = newline + 1) {
      std::string line = std::exchange(partial_, {});
      line += text.substr(begin, newline - begin);
      if (!std::exchange(is_too_long_, false)) add_line(line);
      line += '\n';
      // Of a line that is too long: its newline.
      last_line_ = line.size() <= metrics::kMaxLineBytes ? std::move(line) : "\n";
      last_line_offset_ = offset_ + newline + 1 - last_line_.size();
    }
    const std::string_view rest = text.substr(begin);
    is_too_long_ = is_too_long_ || partial_.size() + rest.size() > metrics::kMaxLineBytes;
    if (is_too_long_)
      partial_.clear();
    else
      partial_ += rest;
    offset_ += static_cast<uint64_t>(size);
  }
}

void CurveHistory::add_line(std::string_view line) {
  const auto record = metrics::parse_record(line);
  if (!record.ok()) return;
  const auto parsed = metrics::train_metrics_from(*record);
  if (!parsed.ok()) return;
  const auto step = static_cast<double>(parsed->step);
  const double before = last_ ? (*last_)[kStep] : 0;
  // A rollback truncates the file; what is behind it now replaces what was read.
  if (last_ && step <= before) {
    const uint64_t offset = offset_;
    clear();
    offset_ = offset;
  }
  if (!last_) started_ = parsed->wall_time;
  const auto start = parse_iso8601(started_), now = parse_iso8601(parsed->wall_time);
  Row row(kColumns);
  row[kStep] = step;
  row[kSeconds] = start && now ? std::chrono::duration<double>(*now - *start).count() : kNan;
  const double wall = last_ ? row[kSeconds] - (*last_)[kSeconds] : kNan;
  row[kTrainedSeconds] =
      (last_ ? (*last_)[kTrainedSeconds] : 0) +
      trained_seconds(static_cast<uint64_t>(step - std::min(last_ ? before : 0, step)),
                      parsed->step_time_ms, wall);
  row[kEpoch] = static_cast<double>(parsed->epoch);
  row[kExchangeMs] = parsed->maybe_exchange_ms.value_or(kNan);
  row[kLoss] = row[kLossMin] = row[kLossMax] = parsed->loss;
  row[kLr] = parsed->lr;
  row[kGradNorm] = parsed->grad_norm;
  row[kSamplesPerSecond] = parsed->samples_per_second;
  row[kStepMs] = parsed->step_time_ms;
  row[kWaitMs] = parsed->data_wait_ms;
  row[kStallMs] = parsed->checkpoint_stall_ms / std::max(1.0, step - std::min(before, step));
  for (size_t i = 0; i < kRecordedResources; ++i)
    row[kFirstResource + i] = parsed->resources.values()[i];
  add_metrics(*parsed, row);
  add(row);
}

void CurveHistory::add_metrics(const metrics::TrainMetrics& record, Row& row) {
  for (const auto& [name, value] : record.metrics) {
    auto found = std::ranges::find(metric_names_, name);
    if (found == metric_names_.end()) {
      if (metric_names_.size() == kMaxMetrics) continue;
      found = metric_names_.insert(found, name);
    }
    const size_t column = kColumns + static_cast<size_t>(found - metric_names_.begin());
    row.resize(std::max(row.size(), column + 1), kNan);
    row[column] = value;
  }
}

void CurveHistory::add(const Row& row) {
  last_ = row;
  ++count_;
  recent_.push_back(row);
  if (recent_.size() > kMaxRecent) recent_.pop_front();
  merged_ = num_merged_ == 0 ? row : merge(merged_, num_merged_, row, 1);
  if (++num_merged_ < records_per_row_) return;
  rows_.push_back(merged_);
  num_merged_ = 0;
  if (rows_.size() < 2 * kMaxRows) return;
  merge_rows(rows_);
  records_per_row_ *= 2;
}

void CurveHistory::merge_rows(std::vector<Row>& rows) {
  size_t size = 0;
  for (size_t i = 0; i < rows.size(); i += 2)
    rows[size++] = i + 1 < rows.size() ? merge(rows[i], 1, rows[i + 1], 1) : rows[i];
  rows.resize(size);
}

std::vector<CurveHistory::Row> CurveHistory::rows() const {
  std::vector<Row> rows = rows_;
  if (num_merged_ > 0) rows.push_back(merged_);
  return rows;
}

std::optional<std::vector<CurveHistory::Row>> CurveHistory::rows_since(uint64_t& count) const {
  const uint64_t before = std::exchange(count, count_);
  if (before < first_of_file_ || count_ - before > recent_.size()) return std::nullopt;
  return std::vector<Row>(recent_.end() - static_cast<std::ptrdiff_t>(count_ - before),
                          recent_.end());
}

std::string CurveHistory::name_of(size_t column) const {
  if (column < kFirstResource) return std::string(kNames[column]);
  return column < kColumns
             ? "resource/" + std::string(kResourceFields[column - kFirstResource].name)
             : "metric/" + metric_names_[column - kColumns];
}

bool CurveHistory::is_empty(const std::vector<Row>& rows, size_t column) {
  return column >= kFirstResource && column < kColumns &&
         std::ranges::all_of(rows, [column](const Row& row) { return std::isnan(row[column]); });
}

std::string CurveHistory::to_json(const std::vector<Row>& rows) const {
  std::string out = "{";
  for (size_t column = 0; column < kColumns + metric_names_.size(); ++column) {
    if (is_empty(rows, column)) continue;
    out += (column > 0 ? "," : "") + boost::json::serialize(name_of(column)) + ":[";
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i > 0) out += ',';
      append_number(out, value_of(rows[i], column));
    }
    out += "]";
  }
  return out + "}";
}

std::string CurveHistory::to_json(size_t max_rows) const {
  std::vector<Row> shown = rows();
  size_t records = records_per_row_;
  for (; shown.size() > std::max<size_t>(2, max_rows); records *= 2) merge_rows(shown);
  metrics::MetricsRecord head;
  head.add("started", started_);
  head.add("records_per_row", static_cast<uint64_t>(records));
  std::string text = metrics::to_json(head);
  text.pop_back();
  text += ",\"columns\":" + to_json(shown) + ",\"last\":{";
  for (size_t column = 0; last_ && column < kColumns + metric_names_.size(); ++column) {
    text += (column > 0 ? "," : "") + boost::json::serialize(name_of(column)) + ':';
    append_number(text, value_of(*last_, column));
  }
  return text + "}}";
}

}  // namespace stoker::view
