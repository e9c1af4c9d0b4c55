#include "daemon/ctl/explain.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "daemon/ctl/number_text.h"
#include "daemon/ctl/text_table.h"
#include "shared/config/load_config.h"
#include "shared/dataset/batch_mix.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/length_buckets.h"
#include "shared/dataset/sample_plan.h"
#include "shared/feed/growth_history.h"
#include "shared/feed/plan_settings.h"
#include "shared/metrics/json_lines.h"

namespace stoker::ctl {
namespace {

// (ticket, sample) of what could not be read.
using BadSamples = std::set<std::pair<uint64_t, uint64_t>>;

// Tickets are counted anew when the batch size changes, steps are not.
Result<BadSamples> read_bad_samples(const std::string& path, uint64_t step, uint64_t first,
                                    uint64_t last) {
  BadSamples bad;
  const auto read = metrics::read_rows(path);
  if (!read.ok() && read.status().code() == Code::kNotFound) return bad;
  if (!read.ok()) return read.status();
  for (const metrics::Row& row : read->rows) {
    const auto ticket = row.maybe_count("ticket");
    const auto sample = row.maybe_count("sample");
    if (!ticket || !sample)
      return Status(Code::kCorrupt, path + ": a line without 'ticket' or 'sample'");
    if (row.maybe_count("step").value_or(step) != step) continue;
    if (*ticket >= first && *ticket <= last) bad.emplace(*ticket, *sample);
  }
  return bad;
}

uint64_t padded_length(const dataset::SamplePlan& plan, const dataset::Dataset& data,
                       uint64_t ticket) {
  const auto& maybe_buckets = plan.settings().maybe_buckets;
  return maybe_buckets == nullptr ? data.longest()
                                  : maybe_buckets->buckets()[plan.bucket_of(ticket)].length;
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
                            .pass = used.pass,
                            .sample = used.sample,
                            .file = std::move(origin.file),
                            .offset = origin.offset,
                            .set = std::move(origin.set),
                            .draws = data.describe_draws(used.sample, plan.draw_key(used)),
                            .length = data.length(used.sample),
                            .padded_to = padded_length(plan, data, ticket),
                            .maybe_instead_of = std::nullopt};
  if (used.sample != planned.sample) explained.maybe_instead_of = planned.sample;
  return explained;
}

// What is drawn for whole batches, which comes after what is drawn for their samples.
Status add_mixes(ExplainedStep& explained, const config::Config& config,
                 const std::vector<TensorSpec>& spec, uint64_t batch) {
  const auto input = std::ranges::find(spec, "input", &TensorSpec::name);
  if (input == spec.end()) return {};
  STOKER_ASSIGN_OR_RETURN(const auto settings,
                          dataset::mix_settings(config.data.at("train").batch_transforms, *input));
  if (!settings.any()) return {};
  for (ExplainedSample& one : explained.samples) {
    const auto mix = dataset::draw_mix(settings, config.run.seed, one.ticket);
    one.draws += (one.draws.empty() ? "" : " ") + dataset::describe(mix, one.row, batch);
  }
  return {};
}

// "18 % of their places are padding".
std::string padding_text(const std::vector<ExplainedSample>& samples) {
  uint64_t own = 0, all = 0;
  for (const ExplainedSample& one : samples) {
    own += one.length;
    all += one.padded_to;
  }
  return std::to_string((100 * (all - own) + all / 2) / all) + " % of their places are padding\n";
}

}  // namespace

Result<ExplainedStep> explain_step(const run::RunLayout& layout, uint64_t step) {
  assert(step >= 1);
  STOKER_ASSIGN_OR_RETURN(const auto config, config::load_config(layout.config_file(), {}));
  const auto tickets = static_cast<uint64_t>(config.train.gradient_accumulation_steps);
  const auto batch = static_cast<uint64_t>(config.train.micro_batch_size);
  if (step > dataset::kMaxPlanSize / tickets / batch) {
    return Status(Code::kInvalidArgument,
                  "no run gets to step " + std::to_string(step) + ": it has too many samples");
  }
  const uint64_t first = (step - 1) * tickets;
  STOKER_ASSIGN_OR_RETURN(const feed::GrowthHistory history,
                          feed::read_growth(layout.growth_file()));
  const auto state = history.empty() ? feed::DataState() : feed::state_at(history, first);
  const std::string index_dir = feed::index_dir_of(layout.index(), state);
  // The index as the run used it; the data may have changed since, and are not looked at.
  STOKER_ASSIGN_OR_RETURN(
      const auto data, dataset::open_indexed("train", config.data, index_dir, state.fingerprint));
  STOKER_ASSIGN_OR_RETURN(const dataset::SamplePlan plan,
                          feed::kept_plan(config, *data, index_dir, first, state.began));
  STOKER_ASSIGN_OR_RETURN(const BadSamples bad, read_bad_samples(layout.bad_samples_file(), step,
                                                                 first, first + tickets - 1));
  ExplainedStep explained{
      .step = step, .steps = config.train.max_steps, .size = data->size(), .samples = {}};
  for (uint64_t ticket = first; ticket < first + tickets; ++ticket)
    for (uint64_t row = 0; row < batch; ++row)
      explained.samples.push_back(explain_sample(plan, *data, bad, ticket, row));
  STOKER_RETURN_IF_ERROR(add_mixes(explained, config, data->spec(), batch));
  return explained;
}

std::string render_explanation(const ExplainedStep& explained, const TextStyle& style) {
  const auto any = [&explained](std::string ExplainedSample::*text) {
    return std::any_of(explained.samples.begin(), explained.samples.end(),
                       [text](const ExplainedSample& one) { return !(one.*text).empty(); });
  };
  const bool of_mixture = any(&ExplainedSample::set);
  const bool with_draws = any(&ExplainedSample::draws);
  const bool is_padded = !explained.samples.empty() && explained.samples.front().padded_to > 0;
  std::vector<Column> columns{
      {.title = "ticket"}, {.title = "row"}, {.title = "epoch"}, {.title = "sample"}};
  if (of_mixture) columns.push_back({.title = "dataset", .left = true});
  if (is_padded) columns.push_back({.title = "length"});
  columns.push_back({.title = "offset"});
  columns.push_back({.title = "path", .left = true});
  if (with_draws) columns.push_back({.title = "transforms", .left = true});
  TextTable table(std::move(columns));
  for (const ExplainedSample& one : explained.samples) {
    std::string file = one.file.empty() ? "(synthetic)" : printable(one.file);
    if (one.maybe_instead_of)
      file += "  (instead of sample " + format_count(*one.maybe_instead_of) + ": unreadable)";
    std::vector<std::string> cells{format_count(one.ticket), format_count(one.row),
                                   format_count(one.epoch), format_count(one.sample)};
    if (of_mixture) cells.push_back(one.set);
    if (is_padded) cells.push_back(format_count(one.length) + " of " + format_count(one.padded_to));
    cells.push_back(format_count(one.offset));
    cells.push_back(std::move(file));
    if (with_draws) cells.push_back(printable(one.draws));
    table.add(std::move(cells));
  }
  std::string out = "step " + format_count(explained.step) + " of " +
                    format_count(explained.steps) + ": " + format_count(explained.samples.size()) +
                    " of the " + format_count(explained.size) + " samples of data.train\n";
  if (is_padded) out += padding_text(explained.samples);
  if (explained.step > explained.steps) out += "the run ends before this step\n";
  return out + "\n" + table.render(style);
}

std::string to_json(const ExplainedStep& explained) {
  namespace json = boost::json;
  json::array samples;
  for (const ExplainedSample& one : explained.samples) {
    json::object fields{{"ticket", one.ticket}, {"row", one.row},       {"epoch", one.epoch},
                        {"pass", one.pass},     {"sample", one.sample}, {"path", one.file},
                        {"offset", one.offset}};
    if (!one.set.empty()) fields["dataset"] = one.set;
    if (!one.draws.empty()) fields["transforms"] = one.draws;
    if (one.padded_to > 0) {
      fields["length"] = one.length;
      fields["padded_to"] = one.padded_to;
    }
    if (one.maybe_instead_of) fields["replaces"] = *one.maybe_instead_of;
    samples.push_back(std::move(fields));
  }
  return json::serialize(json::object{{"step", explained.step},
                                      {"max_steps", explained.steps},
                                      {"num_samples", explained.size},
                                      {"samples", std::move(samples)}});
}

}  // namespace stoker::ctl
