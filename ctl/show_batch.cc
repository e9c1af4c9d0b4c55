#include "ctl/show_batch.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "ctl/daemon_client.h"
#include "ctl/directory_commands.h"
#include "ctl/text_format.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/control/command.h"

namespace stoker::ctl {
namespace {

constexpr uint64_t kMaxSamplesOfStep = 1 << 24;             // that are accepted from stokerd
constexpr std::chrono::milliseconds kBatchTimeout{60'000};  // of each request; opens the index

// For example "18 % padding".
std::string format_padding(const std::vector<batch::SampleDescription>& samples) {
  uint64_t own = 0, all = 0;
  for (const batch::SampleDescription& sample : samples) {
    own += sample.length;
    all += sample.padded_to;
  }
  return std::to_string((100 * (all - own) + all / 2) / all) + " % padding\n";
}

void print_batch(batch::BatchDescription description, const CommandLine& command,
                 const Console& console) {
  if (command.json)
    console.print_json(batch::to_json(std::move(description)));
  else
    console.out << render_batch(description, console.style);
}

// The samples from `first` on, as many as stokerd sends at a time.
Result<batch::BatchDescription> request_samples(DaemonClient& client, uint64_t step,
                                                uint64_t first) {
  const control::ShowBatch request{.step = step, .first_sample = first};
  STOKER_ASSIGN_OR_RETURN(const std::string reply,
                          client.request(control::FileRequest(request), kBatchTimeout));
  STOKER_ASSIGN_OR_RETURN(batch::BatchDescription part, batch::parse_batch_description(reply));
  const uint64_t end = first + part.samples.size();
  const bool is_requested = part.step == step && !part.samples.empty() &&
                            part.samples.size() <= control::ShowBatch::kMaxSamples;
  if (!is_requested || (part.maybe_next && (*part.maybe_next != end || end > kMaxSamplesOfStep)))
    return Status(StatusCode::kCorrupt, "the samples of the step: incomplete or wrong reply");
  return part;
}

Result<batch::BatchDescription> request_batch(const CommandLine& command) {
  STOKER_ASSIGN_OR_RETURN(DaemonClient client, DaemonClient::open(command));
  const uint64_t step = command.step.value_or(1);
  STOKER_ASSIGN_OR_RETURN(batch::BatchDescription all, request_samples(client, step, 0));
  while (all.maybe_next) {
    STOKER_ASSIGN_OR_RETURN(batch::BatchDescription part,
                            request_samples(client, step, *all.maybe_next));
    all.maybe_next = part.maybe_next;
    std::ranges::move(part.samples, std::back_inserter(all.samples));
  }
  return all;
}

}  // namespace

ExitCode show_batch(const run::RunLayout& layout, const CommandLine& command,
                    const Console& console) {
  auto description = batch::describe_batch(layout, command.step.value_or(1));
  if (!description.ok())
    return console.fail(description.status(), exit_code_for_reading(description.status()));
  print_batch(*std::move(description), command, console);
  return ExitCode::kSuccess;
}

ExitCode show_remote_batch(const CommandLine& command, const Console& console) {
  auto description = request_batch(command);
  if (!description.ok())
    return console.fail(description.status(), exit_code_for_reply(description.status()));
  print_batch(*std::move(description), command, console);
  return ExitCode::kSuccess;
}

std::string render_batch(const batch::BatchDescription& description, const TextStyle& style) {
  const auto any = [&description](std::string batch::SampleDescription::*text) {
    return std::any_of(
        description.samples.begin(), description.samples.end(),
        [text](const batch::SampleDescription& sample) { return !(sample.*text).empty(); });
  };
  const bool is_mixture = any(&batch::SampleDescription::dataset);
  const bool has_transforms = any(&batch::SampleDescription::transforms);
  const bool is_padded = !description.samples.empty() && description.samples.front().padded_to > 0;
  std::vector<Column> columns{
      {.title = "ticket"}, {.title = "row"}, {.title = "epoch"}, {.title = "sample"}};
  if (is_mixture) columns.push_back({.title = "dataset", .left = true});
  if (is_padded) columns.push_back({.title = "length"});
  columns.push_back({.title = "offset"});
  columns.push_back({.title = "path", .left = true});
  if (has_transforms) columns.push_back({.title = "transforms", .left = true});
  TextTable table(std::move(columns));
  for (const batch::SampleDescription& sample : description.samples) {
    std::string file = sample.file.empty() ? "(synthetic)" : printable(sample.file);
    if (sample.maybe_replaced_sample)
      file += "  (replaces unreadable sample " + format_count(*sample.maybe_replaced_sample) + ")";
    std::vector<std::string> cells{format_count(sample.ticket), format_count(sample.row),
                                   format_count(sample.epoch), format_count(sample.sample)};
    if (is_mixture) cells.push_back(printable(sample.dataset));
    if (is_padded)
      cells.push_back(format_count(sample.length) + " of " + format_count(sample.padded_to));
    cells.push_back(format_count(sample.offset));
    cells.push_back(std::move(file));
    if (has_transforms) cells.push_back(printable(sample.transforms));
    table.add(std::move(cells));
  }
  std::string out = "step " + format_count(description.step) + " of " +
                    format_count(description.steps) + ": " +
                    format_count(description.samples.size()) + " of the " +
                    format_count(description.size) + " samples of data.train\n";
  if (is_padded) out += format_padding(description.samples);
  if (description.step > description.steps) out += "the run ends before this step\n";
  return out + "\n" + table.render(style);
}

}  // namespace stoker::ctl
