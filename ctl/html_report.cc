#include "ctl/html_report.h"

#include <algorithm>
#include <set>

#include <boost/json.hpp>

#include "shared/base/clock.h"
#include "shared/base/json_parser.h"
#include "shared/view/base64.h"
#include "shared/view/page.h"
#include "shared/view/run_view.h"

namespace stoker::ctl {
namespace {

namespace json = boost::json;

constexpr size_t kCurveRows = 12'000;  // of all runs
constexpr size_t kMinCurveRows = 100;

// The names of the directories, or numbered paths if two have the same name.
std::vector<std::string> distinct_names(const std::vector<run::RunLayout>& runs) {
  std::vector<std::string> names;
  std::set<std::string> unique;
  for (const run::RunLayout& run : runs) {
    names.push_back(view::RunView(run).name());
    unique.insert(names.back());
  }
  if (unique.size() == names.size()) return names;
  names.clear();
  for (size_t i = 0; i < runs.size(); ++i)
    names.push_back(std::to_string(i + 1) + ": " + runs[i].root());
  return names;
}

// {NAME: data URL or text} of the newest step and of the best one.
json::object embed_artifacts(const view::RunView& run, const json::object& overview,
                             size_t& bytes_left) {
  const json::array& artifacts = overview.at("artifacts").as_array();
  std::set<uint64_t> steps;
  if (!artifacts.empty()) steps.insert(artifacts.back().at("step").to_number<uint64_t>());
  if (const auto* const best = overview.if_contains("best"))
    steps.insert(best->at("step").to_number<uint64_t>());
  json::object embedded;
  for (size_t i = artifacts.size(); i-- > 0;) {
    const std::string name(artifacts[i].at("name").as_string());
    if (!steps.contains(artifacts[i].at("step").to_number<uint64_t>())) continue;
    const auto file = run.read_artifact(name);
    if (!file.ok()) continue;
    const std::string text = file->content_type == "image/png"
                                 ? "data:image/png;base64," + view::to_base64(file->bytes)
                                 : file->bytes;
    if (text.size() * 2 > bytes_left) continue;  // escaped, it can be longer
    bytes_left -= text.size();
    embedded[name] = text;
  }
  return embedded;
}

std::string render(const std::vector<run::RunLayout>& runs, size_t artifact_bytes) {
  const std::vector<std::string> names = distinct_names(runs);
  json::array bundles;
  for (size_t i = 0; i < runs.size(); ++i) {
    view::RunView view(runs[i], names[i]);
    view.read_all_curves();
    boost::system::error_code ignored;
    json::object overview = parse_json(view.overview(), ignored).as_object();
    json::object artifacts = embed_artifacts(view, overview, artifact_bytes);
    json::array shown;
    for (const json::value& one : overview.at("artifacts").as_array())
      if (artifacts.contains(one.at("name").as_string())) shown.push_back(one);
    overview["artifacts"] = std::move(shown);
    const size_t rows = std::max(kMinCurveRows, kCurveRows / runs.size());
    bundles.push_back(json::object{{"run", std::move(overview)},
                                   {"curves", parse_json(view.curves(rows), ignored)},
                                   {"artifacts", std::move(artifacts)}});
  }
  return view::report_page(json::serialize(json::object{
      {"runs", std::move(bundles)}, {"created_at", to_iso8601(system_clock().wall())}}));
}

}  // namespace

Result<std::string> render_html_report(const std::vector<run::RunLayout>& runs) {
  const size_t without = render(runs, 0).size();
  if (without > kMaxReportBytes)
    return Status(StatusCode::kInvalidArgument,
                  std::to_string(runs.size()) + " runs take " + std::to_string(without >> 20) +
                      " MiB, more than " + std::to_string(kMaxReportBytes >> 20) +
                      "; report fewer of them");
  std::string page = render(runs, kMaxReportBytes - without);
  return page.size() <= kMaxReportBytes ? std::move(page) : render(runs, 0);
}

}  // namespace stoker::ctl
