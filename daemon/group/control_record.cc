#include "daemon/group/control_record.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>

#include "shared/base/utf8.h"

namespace stoker::group {
namespace {

constexpr size_t kSharedNumbers = 10;
constexpr size_t kCommand = kSharedNumbers - 1;  // the last of them
constexpr size_t kRankUse = 5;                   // the first of the numbers of RankReport::use
constexpr size_t kRankNumbers = kRankUse + kProcessResources;
constexpr double kMaxCount = 9007199254740992;  // 2^53

// Whether it can be converted to an integer; NaN cannot.
bool is_count(double number) { return number >= 0 && number <= kMaxCount; }

bool are_counts(const ControlNumbers& sum) {
  for (size_t at = 1; at < kSharedNumbers; ++at)
    if (!is_count(sum[at])) return false;
  for (size_t at = kSharedNumbers; at < sum.size(); at += kRankNumbers)
    if (!is_count(sum[at + 2]) || !is_count(sum[at + 3]) || !is_count(sum[at + 4])) return false;
  return sum[kCommand] <= static_cast<double>(SharedCommand::kChangeSetting);
}

}  // namespace

size_t count_numbers(int world_size) {
  return kSharedNumbers + kRankNumbers * static_cast<size_t>(world_size);
}

ControlNumbers to_numbers(const ControlRecord& own, const RankReport& report, int rank,
                          int world_size) {
  ControlNumbers numbers{static_cast<double>(own.step),
                         static_cast<double>(own.stop),
                         static_cast<double>(own.preempted),
                         static_cast<double>(own.save),
                         static_cast<double>(own.snapshot),
                         static_cast<double>(own.refresh),
                         static_cast<double>(own.sample_errors),
                         static_cast<double>(own.can_capture),
                         static_cast<double>(own.gave_up_capture),
                         static_cast<double>(own.command)};
  numbers.resize(count_numbers(world_size));
  double* const ranks = numbers.data() + kSharedNumbers + kRankNumbers * static_cast<size_t>(rank);
  ranks[0] = report.compute_ms;
  ranks[1] = report.data_wait_ms;
  ranks[2] = static_cast<double>(report.quarantined);
  ranks[3] = static_cast<double>(report.optimizer_bytes);
  ranks[4] = static_cast<double>(report.checksum);
  std::ranges::copy(report.use, ranks + kRankUse);
  return numbers;
}

Result<ControlRecord> parse_sum(const ControlNumbers& sum, uint64_t own_step, int world_size) {
  const double steps = static_cast<double>(own_step) * world_size;
  if (sum.size() != count_numbers(world_size) || sum[0] != steps)
    return Status(StatusCode::kInternal,
                  "the ranks are not at the same step: this one has completed " +
                      std::to_string(own_step) + ", and the sum over " +
                      std::to_string(world_size) + " ranks is not a multiple of it");
  if (!are_counts(sum))
    return Status(StatusCode::kInternal, "a rank sent an invalid control record after step " +
                                             std::to_string(own_step) +
                                             "; test memory and network of the hosts");
  ControlRecord record{.step = own_step,
                       .stop = static_cast<uint64_t>(sum[1]),
                       .preempted = static_cast<uint64_t>(sum[2]),
                       .save = static_cast<uint64_t>(sum[3]),
                       .snapshot = static_cast<uint64_t>(sum[4]),
                       .refresh = static_cast<uint64_t>(sum[5]),
                       .sample_errors = static_cast<uint64_t>(sum[6]),
                       .can_capture = static_cast<uint64_t>(sum[7]),
                       .gave_up_capture = static_cast<uint64_t>(sum[8]),
                       .command = static_cast<SharedCommand>(sum[kCommand]),
                       .ranks = {}};
  for (size_t at = kSharedNumbers; at < sum.size(); at += kRankNumbers) {
    record.ranks.push_back({.compute_ms = sum[at],
                            .data_wait_ms = sum[at + 1],
                            .quarantined = static_cast<uint64_t>(sum[at + 2]),
                            .optimizer_bytes = static_cast<uint64_t>(sum[at + 3]),
                            .checksum = static_cast<uint64_t>(sum[at + 4])});
    std::copy_n(sum.begin() + static_cast<std::ptrdiff_t>(at + kRankUse), kProcessResources,
                record.ranks.back().use.begin());
  }
  return record;
}

std::string format_samples(const std::vector<uint64_t>& samples) {
  std::string text;
  for (const uint64_t sample : samples) text += std::to_string(sample) + " ";
  return text;
}

Result<std::vector<uint64_t>> parse_samples(const std::string& text, uint64_t count,
                                            uint64_t num_samples) {
  std::vector<uint64_t> samples;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    uint64_t sample = 0;
    const auto [next, error] = std::from_chars(at, end, sample);
    if (error != std::errc() || next == end || *next != ' ' || sample >= num_samples)
      return Status(StatusCode::kCorrupt, "it contains something other than numbers of samples");
    samples.push_back(sample);
    at = next + 1;
  }
  if (samples.size() < count)
    return Status(StatusCode::kCorrupt, "it has " + std::to_string(samples.size()) +
                                            " samples instead of " + std::to_string(count));
  return samples;
}

Status compare_checksums(const std::vector<RankReport>& ranks, uint64_t step,
                         const std::function<std::string(int)>& name_of) {
  std::map<uint64_t, size_t> counts;
  for (const RankReport& rank : ranks) ++counts[rank.checksum];
  if (counts.size() <= 1) return {};
  const auto most =
      std::ranges::max_element(counts, {}, &std::pair<const uint64_t, size_t>::second);
  const bool is_majority = 2 * most->second > ranks.size();
  std::vector<std::string> names;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    // Without a majority it is not known which one is right.
    if (!is_majority || ranks[rank].checksum != most->first)
      names.push_back(name_of(static_cast<int>(rank)));
  }
  const bool may_be_saved = !is_majority || ranks.front().checksum != most->first;
  return Status(
      StatusCode::kInternal,
      "the parameters of the ranks differ after step " + std::to_string(step) + ": " +
          (is_majority ? "wrong on " : "no two of these agree, or as many as others: ") +
          join(names, ", ") + "; test memory and processor of their hosts" +
          (may_be_saved ? ". Checkpoints since the comparison before "
                          "(distributed.consistency_check_every_steps) can be wrong: resume from "
                          "an older one with --resume"
                        : ""));
}

}  // namespace stoker::group
