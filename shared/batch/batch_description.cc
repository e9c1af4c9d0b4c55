#include "shared/batch/batch_description.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/json_parser.h"
#include "shared/base/tensor_role.h"
#include "shared/base/utf8.h"
#include "shared/config/owned_config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/bucket_plan.h"
#include "shared/data/order/sample_plan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/transform/batch_transforms.h"
#include "shared/data/transform/image_geometry.h"
#include "shared/feed/dataset_versions.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/sandboxed_dataset.h"
#include "shared/metrics/json_lines.h"
#include "shared/run/batch_sizes.h"

namespace stoker::batch {
namespace {

namespace json = boost::json;

// (ticket, sample) of the samples that could not be read.
using SampleErrors = std::set<std::pair<uint64_t, uint64_t>>;

Status check_has_batch(const config::Config& config, uint64_t step) {
  if (config.cluster.replicas != config::ReplicaMode::kAsync) return {};
  return Status(
      StatusCode::kInvalidArgument,
      "step " + std::to_string(step) +
          " is of an asynchronous run with parameter servers, where a step has no single "
          "batch: each server applies the gradients in another order; use cluster.replicas "
          "sync to find the samples of a step");
}

// Filters by step as well as by ticket: ticket numbers change meaning when the batch size changes,
// step numbers do not.
Result<SampleErrors> read_sample_errors(const std::string& path, uint64_t step, uint64_t first,
                                        uint64_t last) {
  SampleErrors sample_errors;
  const auto add = [&](const metrics::MetricsRecord& row, uint64_t) -> Status {
    const auto ticket = row.find_count("ticket");
    const auto sample = row.find_count("sample");
    if (!ticket || !sample)
      return Status(StatusCode::kCorrupt, path + ": record without 'ticket' or 'sample'");
    if (row.find_count("step").value_or(step) != step) return {};
    if (*ticket >= first && *ticket <= last) sample_errors.emplace(*ticket, *sample);
    return {};
  };
  const Status read = metrics::for_each_record(path, add);
  if (!read.ok() && read.code() != StatusCode::kNotFound) return read;
  return sample_errors;
}

// Those of all ranks that have had tickets of the step.
Result<SampleErrors> read_all_sample_errors(const run::RunLayout& layout, uint64_t step,
                                            uint64_t first, uint64_t last) {
  STOKER_ASSIGN_OR_RETURN(SampleErrors all,
                          read_sample_errors(layout.sample_errors_file(), step, first, last));
  std::error_code error;
  for (int rank = 1; std::filesystem::is_directory(layout.rank_dir(rank), error); ++rank) {
    const run::RunLayout own(layout.rank_dir(rank));
    STOKER_ASSIGN_OR_RETURN(SampleErrors others,
                            read_sample_errors(own.sample_errors_file(), step, first, last));
    all.merge(others);
  }
  return all;
}

uint64_t padded_length(const data::order::SamplePlan& plan, const data::Dataset& data,
                       uint64_t ticket) {
  const auto& maybe_buckets = plan.options().maybe_buckets;
  return maybe_buckets == nullptr ? data.max_length()
                                  : maybe_buckets->buckets()[plan.bucket_of(ticket)].length;
}

SampleDescription describe_sample(const data::order::SamplePlan& plan, const data::Dataset& data,
                                  const SampleErrors& sample_errors, uint64_t ticket,
                                  uint64_t row) {
  const data::order::PlannedSample planned = plan.at(ticket, row);
  data::order::PlannedSample used = planned;
  for (uint64_t attempt = 1; sample_errors.contains({ticket, used.sample}) && attempt < data.size();
       ++attempt)
    used = plan.replacement(ticket, row, attempt);
  data::SampleSource source = data.source(used.sample);
  const data::SampleFiles* const maybe_files = data.info().maybe_files;
  SampleDescription description{
      .ticket = ticket,
      .row = row,
      .epoch = used.epoch,
      .dataset_epoch = used.dataset_epoch,
      .sample = used.sample,
      .file = std::move(source.file),
      .offset = source.offset,
      .dataset = std::move(source.dataset),
      .transforms = maybe_files == nullptr
                        ? ""
                        : maybe_files->describe_transforms(used.sample, plan.random_key(used)),
      .length = data.length(used.sample),
      .padded_to = padded_length(plan, data, ticket),
      .maybe_replaced_sample = std::nullopt};
  if (used.sample != planned.sample) description.maybe_replaced_sample = planned.sample;
  return description;
}

// Appends the batch transforms, which are applied after the transforms of the samples.
Status add_batch_transforms(BatchDescription& description, const config::Config& config,
                            const std::vector<TensorSpec>& spec, uint64_t batch) {
  const auto input = std::ranges::find_if(
      spec, [](const TensorSpec& tensor) { return role_of(tensor) == TensorRole::kInput; });
  if (input == spec.end()) return {};
  STOKER_ASSIGN_OR_RETURN(
      const auto options,
      data::transform::make_mix_options(config.data.at("train").batch_transforms, *input));
  if (!options.any()) return {};
  for (SampleDescription& sample : description.samples) {
    const auto mix = data::transform::sample_mix(options, config.run.seed, sample.ticket);
    sample.transforms +=
        (sample.transforms.empty() ? "" : " ") + data::transform::describe(mix, sample.row, batch);
  }
  return {};
}

// Whether the random transforms of a sample depend on the size of its image.
bool decodes_images(const config::Config& config) {
  return std::ranges::any_of(config.data, [](const auto& dataset) {
    return data::transform::has_random_resized_crop(dataset.second);
  });
}

// ---- JSON

constexpr uint64_t kMaxLength = uint64_t{1} << 31;  // of a sequence, so that no sum overflows

json::object to_object(const SampleDescription& sample) {
  json::object fields{{"ticket", sample.ticket}, {"row", sample.row},
                      {"epoch", sample.epoch},   {"dataset_epoch", sample.dataset_epoch},
                      {"sample", sample.sample}, {"path", valid_utf8(sample.file)},
                      {"offset", sample.offset}};
  if (!sample.dataset.empty()) fields["dataset"] = valid_utf8(sample.dataset);
  if (!sample.transforms.empty()) fields["transforms"] = valid_utf8(sample.transforms);
  if (sample.padded_to > 0) {
    fields["length"] = sample.length;
    fields["padded_to"] = sample.padded_to;
  }
  if (sample.maybe_replaced_sample) fields["replaces"] = *sample.maybe_replaced_sample;
  return fields;
}

// These throw the exceptions of Boost.JSON.
uint64_t count_of(const json::object& fields, std::string_view name) {
  return fields.at(name).to_number<uint64_t>();
}

std::optional<uint64_t> maybe_count_of(const json::object& fields, std::string_view name) {
  return fields.contains(name) ? std::optional(count_of(fields, name)) : std::nullopt;
}

std::string text_of(const json::object& fields, std::string_view name) {
  const json::value* const text = fields.if_contains(name);
  return text == nullptr ? "" : std::string(text->as_string());
}

SampleDescription parse_sample(const json::object& fields) {
  return {.ticket = count_of(fields, "ticket"),
          .row = count_of(fields, "row"),
          .epoch = count_of(fields, "epoch"),
          .dataset_epoch = count_of(fields, "dataset_epoch"),
          .sample = count_of(fields, "sample"),
          .file = std::string(fields.at("path").as_string()),
          .offset = count_of(fields, "offset"),
          .dataset = text_of(fields, "dataset"),
          .transforms = text_of(fields, "transforms"),
          .length = maybe_count_of(fields, "length").value_or(0),
          .padded_to = maybe_count_of(fields, "padded_to").value_or(0),
          .maybe_replaced_sample = maybe_count_of(fields, "replaces")};
}

// That of another user, who also chooses the images, has them decoded in the sandbox whatever it says.
Result<config::Config> load_described_config(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(auto file, config::load_owned_config(path, {}));
  config::Config& config = file.config;
  if (file.is_own && !file.is_writable_by_others) return std::move(config);
  config.feed.sandbox = true;
  config.feed.num_processes = std::max(1, config.feed.num_processes);
  return std::move(config);
}

}  // namespace

Result<BatchDescription> describe_batch(const run::RunLayout& layout, uint64_t step,
                                        const DescribeOptions& options) {
  assert(step >= 1);
  STOKER_ASSIGN_OR_RETURN(auto config, load_described_config(layout.config_file()));
  if (const auto* const streamed = config::streamed_dataset(config))
    return Status(StatusCode::kInvalidArgument,
                  "data." + streamed->first +
                      " is a stream, which has no index: the samples of its batches are not known "
                      "before they are read");
  STOKER_RETURN_IF_ERROR(check_has_batch(config, step));
  // That of the step, if the batch size has changed since.
  STOKER_ASSIGN_OR_RETURN(const run::BatchSizes sizes,
                          run::read_batch_sizes(layout.batch_sizes_file()));
  const run::BatchSize size = run::batch_size_at(sizes, step - 1, config.train);
  const uint64_t tickets = size.gradient_accumulation_steps, batch = size.micro_batch_size;
  config.train.gradient_accumulation_steps = static_cast<int64_t>(tickets);
  config.train.micro_batch_size = static_cast<int64_t>(batch);
  if (step > data::order::kMaxPlanSize / tickets / batch) {
    return Status(StatusCode::kInvalidArgument,
                  "step " + std::to_string(step) + " is beyond the largest possible sample plan");
  }
  if (options.first_sample >= tickets * batch)
    return Status(StatusCode::kInvalidArgument, "step " + std::to_string(step) + " has " +
                                                    std::to_string(tickets * batch) + " samples");
  const uint64_t first = size.ticket_after(step - 1);
  STOKER_ASSIGN_OR_RETURN(const feed::DatasetVersions history,
                          feed::read_dataset_versions(layout.dataset_versions_file()));
  const auto state = history.empty() ? feed::DatasetVersion() : feed::version_at(history, first);
  const std::string index_dir = feed::index_dir_for(layout.index_dir(), state);
  // Use the index that the run used. The data can have changed since then and is not read, except
  // images of which random regions are described.
  STOKER_ASSIGN_OR_RETURN(
      auto data, data::pipeline::open_indexed("train", config.data, index_dir, state.fingerprint));
  if (config.feed.num_processes > 0 && decodes_images(config)) {
    STOKER_ASSIGN_OR_RETURN(data, feed::SandboxedDataset::open(config,
                                                               {.dataset = "train",
                                                                .index_dir = index_dir,
                                                                .feed_program = {},
                                                                .should_stop = options.should_stop},
                                                               std::move(data)));
  }
  STOKER_ASSIGN_OR_RETURN(const data::order::SamplePlan plan,
                          feed::load_sample_plan(config, *data, index_dir, first, state.start));
  STOKER_ASSIGN_OR_RETURN(const SampleErrors sample_errors,
                          read_all_sample_errors(layout, step, first, first + tickets - 1));
  const uint64_t end =
      options.first_sample + std::min(options.max_samples, tickets * batch - options.first_sample);
  BatchDescription description{.step = step,
                               .steps = config.train.max_steps,
                               .size = data->size(),
                               .first_sample = options.first_sample,
                               .samples = {},
                               .maybe_next = std::nullopt};
  uint64_t next = options.first_sample;
  for (; next < end; ++next) {
    SampleDescription sample =
        describe_sample(plan, *data, sample_errors, first + next / batch, next % batch);
    // The worker process may not have answered.
    if (options.should_stop && options.should_stop()) break;
    description.samples.push_back(std::move(sample));
  }
  if (description.samples.empty())
    return Status(StatusCode::kCancelled, "the samples of the step: stopped");
  if (next < tickets * batch) description.maybe_next = next;
  STOKER_RETURN_IF_ERROR(add_batch_transforms(description, config, data->spec(), batch));
  return description;
}

std::string to_json(BatchDescription description, size_t max_bytes) {
  constexpr size_t kBytesOfOtherFields = 256;
  json::array samples;
  size_t bytes = kBytesOfOtherFields;
  for (const SampleDescription& sample : description.samples) {
    json::object fields = to_object(sample);
    bytes += json::serialize(fields).size() + 1;  // with a comma
    if (!samples.empty() && bytes > max_bytes) break;
    samples.push_back(std::move(fields));
  }
  if (samples.size() < description.samples.size())
    description.maybe_next = description.first_sample + samples.size();
  json::object fields{{"step", description.step},
                      {"max_steps", description.steps},
                      {"num_samples", description.size},
                      {"samples", std::move(samples)}};
  if (description.maybe_next) fields["next"] = *description.maybe_next;
  return json::serialize(fields);
}

Result<BatchDescription> parse_batch_description(std::string_view text) {
  return parse_json_object<BatchDescription>(
      text, "the samples of the step", [](const json::object& fields) {
        BatchDescription description{.step = count_of(fields, "step"),
                                     .steps = count_of(fields, "max_steps"),
                                     .size = count_of(fields, "num_samples"),
                                     .first_sample = 0,
                                     .samples = {},
                                     .maybe_next = maybe_count_of(fields, "next")};
        for (const json::value& sample : fields.at("samples").as_array()) {
          description.samples.push_back(parse_sample(sample.as_object()));
          const SampleDescription& parsed = description.samples.back();
          if (parsed.length > parsed.padded_to || parsed.padded_to > kMaxLength)
            throw std::invalid_argument("the length of a sample is out of range");
        }
        return description;
      });
}

}  // namespace stoker::batch
