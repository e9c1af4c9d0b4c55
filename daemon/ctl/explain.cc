#include "daemon/ctl/explain.h"

#include <cassert>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "daemon/ctl/number_text.h"
#include "daemon/ctl/text_table.h"
#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/index.h"
#include "shared/dataset/sample_plan.h"
#include "shared/feed/plan_settings.h"
#include "shared/metrics/json_lines.h"

namespace stoker::ctl {
namespace {

constexpr const char* kSet = "train";

// (ticket, sample) of what could not be read.
using BadSamples = std::set<std::pair<uint64_t, uint64_t>>;

Result<std::unique_ptr<dataset::Dataset>> open_data(const run::RunLayout& layout,
                                                    const config::DatasetConfig& config) {
  const std::string path = join_path(layout.index(), std::string(kSet) + ".index");
  const auto index = dataset::load_index(path);
  if (!index.ok() && index.status().code() == Code::kNotFound) {
    return Status(Code::kNotFound,
                  path + ": no index yet; stokerd makes it when it first reads the data");
  }
  if (!index.ok()) return index.status();
  // The index as the run uses it; the data may have changed since, and are not looked at.
  return dataset::open_indexed(kSet, config, layout.index(), index->fingerprint());
}

Result<BadSamples> read_bad_samples(const std::string& path, uint64_t first, uint64_t last) {
  BadSamples bad;
  const auto read = metrics::read_rows(path);
  if (!read.ok() && read.status().code() == Code::kNotFound) return bad;
  if (!read.ok()) return read.status();
  for (const metrics::Row& row : read->rows) {
    const auto ticket = row.maybe_count("ticket");
    const auto sample = row.maybe_count("sample");
    if (!ticket || !sample)
      return Status(Code::kCorrupt, path + ": a line without 'ticket' or 'sample'");
    if (*ticket >= first && *ticket <= last) bad.emplace(*ticket, *sample);
  }
  return bad;
}

ExplainedSample explain_sample(const dataset::SamplePlan& plan, const dataset::Dataset& data,
                               const BadSamples& bad, uint64_t ticket, uint64_t row) {
  const dataset::PlannedSample planned = plan.at(ticket, row);
  dataset::PlannedSample used = planned;
  for (uint64_t attempt = 1; bad.contains({ticket, used.sample}) && attempt < data.size();
       ++attempt)
    used = plan.stand_in(ticket, row, attempt);
  dataset::Origin origin = data.origin(used.sample);
  ExplainedSample explained{.ticket = ticket,
                            .row = row,
                            .epoch = used.epoch,
                            .sample = used.sample,
                            .file = std::move(origin.file),
                            .offset = origin.offset,
                            .maybe_instead_of = std::nullopt};
  if (used.sample != planned.sample) explained.maybe_instead_of = planned.sample;
  return explained;
}

}  // namespace

Result<ExplainedStep> explain_step(const run::RunLayout& layout, uint64_t step) {
  assert(step >= 1);
  STOKER_ASSIGN_OR_RETURN(const auto config, config::load_config(layout.config_file(), {}));
  const auto train = config.data.find(kSet);
  if (train == config.data.end())
    return Status(Code::kInvalidArgument, layout.config_file() + ": no data set named train");
  STOKER_ASSIGN_OR_RETURN(const auto data, open_data(layout, train->second));
  const dataset::SamplePlan plan(feed::plan_settings(config, data->size()));
  const auto tickets = static_cast<uint64_t>(config.train.accumulate);
  const uint64_t batch = plan.settings().batch;
  if (step > dataset::kMaxPlanSize / tickets / batch) {
    return Status(Code::kInvalidArgument,
                  "no run gets to step " + std::to_string(step) + ": it has too many samples");
  }
  const uint64_t first = (step - 1) * tickets;
  STOKER_ASSIGN_OR_RETURN(const BadSamples bad,
                          read_bad_samples(layout.bad_samples_file(), first, first + tickets - 1));
  ExplainedStep explained{
      .step = step, .steps = config.train.steps, .size = data->size(), .samples = {}};
  for (uint64_t ticket = first; ticket < first + tickets; ++ticket)
    for (uint64_t row = 0; row < batch; ++row)
      explained.samples.push_back(explain_sample(plan, *data, bad, ticket, row));
  return explained;
}

std::string render_explanation(const ExplainedStep& explained, const TextStyle& style) {
  TextTable table({{.title = "ticket"},
                   {.title = "row"},
                   {.title = "epoch"},
                   {.title = "sample"},
                   {.title = "offset"},
                   {.title = "file", .left = true}});
  for (const ExplainedSample& one : explained.samples) {
    std::string file = one.file.empty() ? "(synthetic)" : printable(one.file);
    if (one.maybe_instead_of)
      file += "  (instead of sample " + format_count(*one.maybe_instead_of) + ": unreadable)";
    table.add({format_count(one.ticket), format_count(one.row), format_count(one.epoch),
               format_count(one.sample), format_count(one.offset), std::move(file)});
  }
  std::string out = "step " + format_count(explained.step) + " of " +
                    format_count(explained.steps) + ": " + format_count(explained.samples.size()) +
                    " of the " + format_count(explained.size) + " samples of data.train\n";
  if (explained.step > explained.steps) out += "the run ends before this step\n";
  return out + "\n" + table.render(style);
}

std::string to_json(const ExplainedStep& explained) {
  namespace json = boost::json;
  json::array samples;
  for (const ExplainedSample& one : explained.samples) {
    json::object fields{{"ticket", one.ticket}, {"row", one.row},   {"epoch", one.epoch},
                        {"sample", one.sample}, {"file", one.file}, {"offset", one.offset}};
    if (one.maybe_instead_of) fields["instead_of"] = *one.maybe_instead_of;
    samples.push_back(std::move(fields));
  }
  return json::serialize(json::object{{"step", explained.step},
                                      {"steps", explained.steps},
                                      {"size", explained.size},
                                      {"samples", std::move(samples)}});
}

}  // namespace stoker::ctl
