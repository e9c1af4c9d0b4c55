#include "shared/run/batch_sizes.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::run {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxBatchSizesBytes = 16 << 20;

BatchSize size_of(const config::TrainConfig& config) {
  return {.micro_batch_size = static_cast<uint64_t>(config.micro_batch_size),
          .gradient_accumulation_steps = static_cast<uint64_t>(config.gradient_accumulation_steps)};
}

BatchSize parse_size(const json::object& fields) {
  const auto count = [&fields](std::string_view name) {
    return fields.at(name).to_number<uint64_t>();
  };
  return {.steps_before = count("steps_before"),
          .first_ticket = count("first_ticket"),
          .samples_before = count("samples_before"),
          .micro_batch_size = count("micro_batch_size"),
          .gradient_accumulation_steps = count("gradient_accumulation_steps")};
}

}  // namespace

BatchSize batch_size_at(const BatchSizes& sizes, uint64_t steps,
                        const config::TrainConfig& config) {
  const auto later = std::ranges::upper_bound(sizes, steps, {}, &BatchSize::steps_before);
  return later == sizes.begin() ? size_of(config) : *std::prev(later);
}

void change_batch_size(BatchSizes& sizes, const config::TrainConfig& before,
                       const config::TrainConfig& now, uint64_t steps, uint64_t ticket) {
  BatchSize changed = size_of(now);
  if (size_of(before) == changed) return;
  if (sizes.empty()) sizes.push_back(size_of(before));
  changed.steps_before = steps;
  changed.first_ticket = ticket;
  changed.samples_before = sizes.back().samples_after(steps);
  if (sizes.back().steps_before == steps) sizes.pop_back();  // no step had it
  sizes.push_back(changed);
}

std::string to_json(const BatchSizes& sizes) {
  json::array array;
  for (const BatchSize& size : sizes)
    array.push_back(
        json::object{{"steps_before", size.steps_before},
                     {"first_ticket", size.first_ticket},
                     {"samples_before", size.samples_before},
                     {"micro_batch_size", size.micro_batch_size},
                     {"gradient_accumulation_steps", size.gradient_accumulation_steps}});
  return json::serialize(array);
}

Result<BatchSizes> parse_batch_sizes(std::string_view text, const std::string& path) {
  const auto read = [](const json::value& value) {
    BatchSizes sizes;
    for (const json::value& size : value.as_array()) sizes.push_back(parse_size(size.as_object()));
    return sizes;
  };
  STOKER_ASSIGN_OR_RETURN(BatchSizes sizes, parse_json_value<BatchSizes>(text, path, read));
  const bool has_order = std::ranges::adjacent_find(sizes, [](const auto& one, const auto& next) {
                           return one.steps_before >= next.steps_before;
                         }) == sizes.end();
  const bool has_sizes =
      std::ranges::all_of(sizes, [](const BatchSize& size) { return size.samples_per_step() > 0; });
  if (!sizes.empty() && (sizes.front().steps_before > 0 || !has_order || !has_sizes))
    return Status(StatusCode::kCorrupt, path + ": the batch sizes are not those of a run");
  return sizes;
}

Result<BatchSizes> read_batch_sizes(const std::string& path) {
  const auto text = read_file(path, kMaxBatchSizesBytes);
  if (text.status().code() == StatusCode::kNotFound) return BatchSizes();
  if (!text.ok()) return text.status();
  return parse_batch_sizes(*text, path);
}

Status write_batch_sizes(FileSystem& files, const std::string& path, const BatchSizes& sizes) {
  if (!sizes.empty()) return write_file_atomically(files, path, to_json(sizes) + "\n");
  const Status removed = files.remove_file(path);
  return removed.code() == StatusCode::kNotFound ? Status() : removed;
}

}  // namespace stoker::run
