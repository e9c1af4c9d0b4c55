#include "daemon/train/taps.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/cat.h>
#include <boost/json.hpp>

#include "daemon/train/tensor_statistics.h"
#include "shared/base/log.h"
#include "shared/config/config_errors.h"
#include "shared/model/name_glob.h"

namespace stoker::train {
namespace {

size_t most_tensors(const control::TapRequest& request) {
  return request.histogram ? control::TapRequest::kMaxHistograms : control::TapRequest::kMaxTensors;
}

std::string quoted(const std::string& text) {
  return boost::json::serialize(boost::json::value(text));
}

Status no_match(const std::string& glob, const std::vector<std::string>& names) {
  const std::string nearest = config::closest_match(glob, names);
  std::string text = "inspect_open: nothing is called '" + glob + "'; ";
  if (!nearest.empty()) return Status(Code::kNotFound, text + "did you mean '" + nearest + "'?");
  text += "there are, for instance:";
  const size_t each = std::max<size_t>(1, names.size() / 6);
  for (size_t i = 0; i < names.size(); i += each) text += " " + names[i];
  return Status(Code::kNotFound, text);
}

}  // namespace

Result<Taps::Tap> Taps::match(const control::TapRequest& request) const {
  Tap tap{.request = request};
  const model::NameGlob glob(request.glob);
  std::vector<std::string> names;
  const auto matches = [&](const std::string& name) {
    names.push_back(name);
    return glob.matches(name);
  };
  if (request.parameters || request.gradients) {
    for (const auto& item : model_.named_parameters()) {
      if (!matches(item.key())) continue;
      if (request.parameters) tap.parameters.emplace_back(item.key(), item.value());
      if (request.gradients && item.value().requires_grad())
        tap.gradients.emplace_back(item.key(), item.value());
    }
  }
  if (request.outputs) {
    for (const std::string& name : names_of_modules(model_))
      if (matches(name)) tap.outputs.push_back(name);
  }
  const size_t found = tap.parameters.size() + tap.gradients.size() + tap.outputs.size();
  if (found == 0) return no_match(request.glob, names);
  if (found > most_tensors(request)) {
    return Status(Code::kInvalidArgument,
                  "inspect_open: '" + request.glob + "' matches " + std::to_string(found) +
                      " tensors; an inspection has at most " +
                      std::to_string(most_tensors(request)) +
                      (request.histogram ? " with histograms" : "") + "; match fewer");
  }
  return tap;
}

void Taps::open(const Request& request, uint64_t step) {
  auto tap = match(request.tap);
  if (!tap.ok()) return answer(request, tap.status());
  const auto number = board_.open();
  if (!number.ok()) return answer(request, number.status());
  tap->number = *number;
  if (!tap->outputs.empty() && !outputs_) outputs_.emplace(model_);
  log_info("inspection started", {{"id", *number}, {"glob", request.tap.glob}, {"step", step}});
  answer(request, "{\"inspection\":" + std::to_string(*number) +
                      ",\"step\":" + std::to_string(step) +
                      ",\"parameters\":" + std::to_string(tap->parameters.size()) +
                      ",\"gradients\":" + std::to_string(tap->gradients.size()) +
                      ",\"activations\":" + std::to_string(tap->outputs.size()) + "}");
  taps_.push_back(*std::move(tap));
}

void Taps::begin_step(uint64_t step) {
  step_ = step;
  saw_forward_ = false;
  std::erase_if(taps_, [this](const Tap& tap) {
    if (board_.is_wanted(tap.number)) return false;
    log_info(
        "inspection ended",
        {{"id", tap.number}, {"glob", tap.request.glob}, {"step", step_}, {"records", tap.rows}});
    return true;
  });
  for (Tap& tap : taps_) {
    tap.looks = step % tap.request.every == 0;
    tap.seen.clear();
  }
}

void Taps::begin_forward() {
  const bool first = !std::exchange(saw_forward_, true);
  const bool wanted = std::any_of(taps_.begin(), taps_.end(),
                                  [](const Tap& tap) { return tap.looks && !tap.outputs.empty(); });
  if (!first || !wanted) return;
  outputs_->start(
      [this](const std::string& module, const at::Tensor& output) { see_output(module, output); });
}

void Taps::end_forward() noexcept {
  if (outputs_) outputs_->stop();
}

void Taps::see_output(const std::string& module, const at::Tensor& output) {
  for (Tap& tap : taps_) {
    if (!tap.looks) continue;
    if (std::find(tap.outputs.begin(), tap.outputs.end(), module) == tap.outputs.end()) continue;
    std::erase_if(tap.seen, [&module](const Seen& one) { return one.name == module; });
    tap.seen.push_back({"activation", module, enqueue_statistics(output, tap.request.histogram)});
  }
}

void Taps::see_gradients() {
  for (Tap& tap : taps_) {
    if (!tap.looks) continue;
    for (const auto& [name, parameter] : tap.gradients) {
      if (!parameter.grad().defined()) continue;
      tap.seen.push_back(
          {"gradient", name, enqueue_statistics(parameter.grad(), tap.request.histogram)});
    }
  }
}

std::string Taps::row_of(uint64_t step, const Tap& tap) {
  std::vector<at::Tensor> parts;
  for (const Seen& one : tap.seen) parts.push_back(one.statistics);
  const at::Tensor host = at::cat(parts).cpu();  // one copy for all
  std::string row = "{\"step\":" + std::to_string(step) + ",\"tensors\":[";
  int64_t at = 0;
  for (const Seen& one : tap.seen) {
    const auto summary = read_statistics(host.narrow(0, at, one.statistics.numel()));
    row += (at == 0 ? "" : ",") + ("{\"kind\":\"" + std::string(one.kind)) +
           "\",\"name\":" + quoted(one.name) + "," + metrics::to_json_fields(summary) + "}";
    at += one.statistics.numel();
  }
  return row + "]}";
}

void Taps::end_step() {
  for (Tap& tap : taps_) {
    if (!tap.looks) continue;
    for (const auto& [name, parameter] : tap.parameters)
      tap.seen.push_back({"parameter", name, enqueue_statistics(parameter, tap.request.histogram)});
    if (tap.seen.empty()) continue;  // outputs only, and none of those modules ran
    board_.push(tap.number, row_of(step_, tap));
    ++tap.rows;
    if (tap.request.steps == 0 || tap.rows < tap.request.steps) continue;
    board_.end(tap.number, "all requested steps are recorded");
    log_info(
        "inspection ended",
        {{"id", tap.number}, {"glob", tap.request.glob}, {"step", step_}, {"records", tap.rows}});
  }
  std::erase_if(
      taps_, [](const Tap& tap) { return tap.request.steps > 0 && tap.rows >= tap.request.steps; });
}

void Taps::end_all(const std::string& why) {
  board_.end_all(why);
  taps_.clear();
}

}  // namespace stoker::train
